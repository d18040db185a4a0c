"""Derivatives of programs: `f.grad`, `f.jacobian` and their like, and `@lazy_derivatives`.

    f.grad(x, wrt="x")          `Derivative.__call__` (`derivative.py`): the program of this
                                derivative, made when it is first requested, and called
    wrt=, skip=                 names of arguments (`varying_arguments.py`)
    f.jacobian(x, i), sparse    other integers in `i` have another structure
                                (`sparse_positions.py`)

`lazy_derivatives.py` has the decorator, which gives all derivatives of a function their defaults.
"""
