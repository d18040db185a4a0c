"""Callbacks: refused along a named axis, since Python would see the padding of an array.

The callbacks of `eqx.error_if` are allowed: they raise, whatever array they are given.
`_jax/equinox_checks.py` recognises them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from ..._jax.equinox_checks import is_of_check
from ..._jax.primitives import CALLBACKS
from ..interpreter import Op, PaddedInterpreter
from ..monoids import MONOIDS, Monoid
from ..rule import CarriedState, Rule, Use, ragged_dims, refuse, use


def _uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(dim for shape in (*op.ins, *op.outs) for dim in shape)
    if dims and not is_of_check(op.eqn):
        yield refuse(op, dims, "hands it to a callback, which would see padding, or a part of it")


def _raise(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    avals = tuple(aval.update(shape=walk.shape(aval.shape)) for aval in op.params["result_avals"])
    return walk.bind(op, values, result_avals=avals)


def _same(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    return _raise(walk, op, values) if "result_avals" in op.params else walk.bind(op, values)


def _unmapped(monoid: Monoid) -> Rule:
    """Rule of Equinox's reductions over all mapped axes, by which `eqx.error_if` finds whether any
    element is in error: padding is replaced by the identity.
    """

    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0])
        if dims:
            yield use(op, dims, "reduced", monoid=monoid)

    def pad(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
        (x,) = values
        return walk.bind(op, [walk.keep(x, op.ins[0], range(x.ndim), monoid.identity(x.dtype))])

    return Rule(uses, pad, CarriedState("folded", monoid))


RULES: dict[str, Rule] = {
    # `makes`: a check returns the same in each chunk.
    **dict.fromkeys(("pure_callback", *CALLBACKS), Rule(_uses, _same, makes=True)),
    **{
        f"unvmap_{name}": _unmapped(MONOIDS[monoid])
        for name, monoid in (("any", "or"), ("all", "and"), ("max", "max"))
    },
}
