"""How few directions give all elements of a matrix of known structure: by columns or rows, or by
its symmetry.
"""
