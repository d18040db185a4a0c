"""What JAX leaves untyped, private or changing: trees, programs as data, its cache, texts of
compiled programs, memory, the mesh.
"""
