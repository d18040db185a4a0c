"""Table of the transfer functions: primitive name -> `Rule`, collected by family.

A rule answers three questions about one equation whose shapes hold symbolic sizes. For
`b:f32[] = reduce_sum[axes=(0,)] a:f32[n]`, `RULES["reduce_sum"]` says:

    uses    Use({"n"}, "reduced", "sum", monoid=add): the equation looks along `n`
    pad     reduce_sum(select(iota < n, a, -0.0)): exact where `a` is longer than `n`
    carrier Fold(add): the results of chunks are added up

A primitive without an entry is refused as soon as a symbolic size touches it.
"""

from ..rule import Rule as Rule
from . import (
    callback,
    control,
    elementwise,
    linear,
    matrices,
    order,
    random,
    reduce,
    shape,
    windows,
)
from .indexing import gather, scatter

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **shape.RULES,
    **reduce.RULES,
    **windows.RULES,
    **linear.RULES,
    **matrices.RULES,
    **order.RULES,
    **gather.RULES,
    **scatter.RULES,
    **random.RULES,
    **control.RULES,
    **callback.RULES,
}
