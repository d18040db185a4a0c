"""Comparison of the values of a call with their annotations: kinds, axis sizes, and the call as a
whole.

    def residual(t: Float[Array, "points"], y: Float[Array, "points"]): ...

`contract.contract_of` reads the signature into a `Contract`. `contract.check_arguments` walks the
arguments in order: `fit_shape` binds `points` to 100 by 't', finds 99 in 'y' and returns a
`Mismatch`, which becomes a ContractError:

    residual() at fit.py:12: axis 'points' has two sizes, 100 from 't' and 99 from 'y'.
    Every argument annotated with 'points' must agree on it.
    Fix: pass equal sizes, or rename the axis in one annotation.
"""
