"""Graph colouring: few directions that give all elements of a matrix of known sparsity pattern,
by columns, by rows, or by its symmetry.
"""
