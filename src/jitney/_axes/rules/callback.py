"""Callbacks: refused along a named axis, since Python would see the padding of an array.

The callbacks of `eqx.error_if` are allowed: they raise, whatever array they are given.
`_jax/equinox_checks.py` recognises them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ..._jax.equinox_checks import is_of_check
from ..._jax.programs.primitives import CALLBACKS
from ..._jax.typed import Aval, Values
from ..carriers.folds import Fold
from ..interpreter import Op, PaddedInterpreter
from ..monoids import MONOIDS, Monoid
from ..rule import Rule, Use, ragged_dims, refuse, use


def _uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(chain.from_iterable((*op.ins, *op.outs)))
    if dims and not is_of_check(op.eqn):
        yield refuse(op, dims, "hands it to a callback, which would see padding, or a part of it")


def _raise(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    avals: Sequence[Aval] = op.params["result_avals"]
    allocated: list[Aval] = []
    for aval in avals:
        shape = walk.shape(aval.shape)
        allocated.append(aval.update(shape=shape))
    return walk.bind(op, values, result_avals=tuple(allocated))


def _bind_or_raise(
    walk: PaddedInterpreter,
    op: Op,
    values: Values,
) -> Values:
    if "result_avals" in op.params:
        return _raise(walk, op, values)
    return walk.bind(op, values)


def _unvmap_rule(monoid: Monoid) -> Rule:
    """Rule of Equinox's reductions over all mapped axes, by which `eqx.error_if` finds whether any
    element is in error: padding is replaced by the identity.
    """

    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0])
        if dims:
            yield use(op, dims, "reduced", monoid=monoid)

    def pad(
        walk: PaddedInterpreter,
        op: Op,
        values: Values,
    ) -> Values:
        (x,) = values
        identity = monoid.identity(x.dtype)
        masked = walk.keep(x, op.ins[0], range(x.ndim), identity)
        return walk.bind(op, [masked])

    return Rule(uses, pad, Fold(monoid))


_REDUCTIONS = {
    "unvmap_any": "or",
    "unvmap_all": "and",
    "unvmap_max": "max",
}

RULES: dict[str, Rule] = {
    # `makes`: a check returns the same in each chunk.
    **dict.fromkeys(("pure_callback", *CALLBACKS), Rule(_uses, _bind_or_raise, makes=True)),
    **{name: _unvmap_rule(MONOIDS[monoid]) for name, monoid in _REDUCTIONS.items()},
}
