"""Collectives over the named axis of a `vmap` (`jax.lax.psum(x, "batch")`): a reduction over an
ordinary axis of the array, once `vmap` has mapped it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import jax

from ..._jax.typed import Values
from ..carriers.folds import Fold
from ..interpreter import Op, PaddedInterpreter
from ..monoids import MONOIDS, Monoid
from ..partitioner_fixes import partition_safe
from ..rule import Rule, Use, ragged_dims, refuse, use
from .reduce import refuse_unordered


def _over(monoid: Monoid) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        axes = op.params["axes"]
        if (
            len(op.ins) != 1
            or op.params["axis_index_groups"] is not None
            or not all(isinstance(axis, int) for axis in axes)
        ):
            dims = ragged_dims(chain.from_iterable(op.ins))
            yield refuse(op, dims, "reduces over an axis of a mesh, or in groups")
            return
        dims = ragged_dims(op.ins[0][axis] for axis in axes)
        if dims:
            reduced = use(op, dims, "reduced", monoid=monoid)
            yield from refuse_unordered(op, dims, monoid) or [reduced]

    def pad(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
        x = values[0]
        axes = tuple(op.params["axes"])
        x = walk.keep(x, op.ins[0], axes, monoid.identity(x.dtype))

        def reduced(x: jax.Array) -> Values:
            return [monoid.fold(x, axes=axes)]

        if walk.is_spread:
            return partition_safe(reduced)(x)
        return reduced(x)

    return Rule(uses, pad, Fold(monoid))


RULES: dict[str, Rule] = {
    "psum": _over(MONOIDS["add"]),
    "pmax": _over(MONOIDS["max"]),
    "pmin": _over(MONOIDS["min"]),
}
