"""Traced programs as data: readers of jaxprs, the walk over them, families of operations, constants
that are too large, derivatives at a point.
"""
