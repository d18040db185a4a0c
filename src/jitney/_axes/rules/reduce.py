"""Reductions and cumulative operations: the identity of the monoid stands behind what is valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ..._jax.jaxprs import is_written, opened, variables
from ..dims import Dim, evaluate
from ..monoids import CUMULATIVE, MONOIDS, PLACES, REDUCTIONS, Monoid, is_ordered
from ..rule import Across, Rule, Use, Way, ragged_dims, refuse, use
from ..typed_jax import dtypes, make_jaxpr
from ..walk import Op, Walk


def unordered(op: Op, dims: Sequence[Dim], monoid: Monoid) -> list[Use]:
    """The refusal of an extreme that depends on the order in which XLA finds it."""
    dtype = op.eqn.invars[0].aval.dtype
    if monoid not in (MONOIDS["max"], MONOIDS["min"]) or is_ordered(dtype):
        return []
    return [
        refuse(
            op,
            dims,
            f"looks for an extreme of {dtype} numbers, whose NaNs XLA drops or keeps by the order"
            " it goes in",
        )
    ]


def uncounted(op: Op, dims: Sequence[Dim]) -> list[Use]:
    """The refusal of a place in a type that cannot count the axis: of equal elements XLA finds the
    one whose place, wrapped, is first.
    """
    dtype = op.params.get("index_dtype")
    most = {symbol: high for symbol, (_, high) in op.ranges.items()}
    if dtype is None or all(evaluate(dim, most) - 1 <= dtypes.iinfo(dtype).max for dim in dims):
        return []
    return [refuse(op, dims, f"gives places along it as {dtype}, which cannot count them")]


_COMPUTATIONS = {name: MONOIDS[name] for name in ("add", "mul", "max", "min", "and", "or", "xor")}


def monoid_of_program(program: Any) -> Monoid | None:
    """The monoid of a program of two values that does nothing but to put them together; None of any
    other.
    """
    jaxpr, held = opened(program)
    if len(jaxpr.eqns) != 1 or len(jaxpr.invars) != 2 or held:
        return None
    (eqn,) = jaxpr.eqns
    puts_together = {*variables(eqn.invars)} == {*jaxpr.invars} and list(eqn.outvars) == list(
        jaxpr.outvars
    )
    return _COMPUTATIONS.get(eqn.primitive.name) if puts_together else None


def _reduction(monoid: Monoid, word: str = "", way: Way = "folded") -> Rule:
    own = monoid if way == "folded" else None  # the place of the largest is not the largest

    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0][axis] for axis in op.params["axes"])
        if dims:
            yield from (
                unordered(op, dims, monoid)
                or uncounted(op, dims)
                or [use(op, dims, "reduced", word, monoid=own)]
            )

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(op, [walk.keep(x, op.ins[0], op.params["axes"], monoid.identity(x.dtype))])

    return Rule(uses, pad, Across(way, monoid))


def _cumulative(monoid: Monoid) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims([op.ins[0][op.params["axis"]]])
        if dims:
            yield from unordered(op, dims, monoid) or [
                use(
                    op,
                    dims,
                    "scanned",
                    f"cumulative {monoid.word}{', from the end' if op.params['reverse'] else ''}",
                )
            ]

    def pad(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
        x = values[0]
        return walk.bind(
            op, [walk.keep(x, op.ins[0], [op.params["axis"]], monoid.identity(x.dtype))]
        )

    return Rule(uses, pad, Across("cumulated", monoid))


# `lax.reduce`: with a monoid that is known it is that one's own reduction, put together with what
# it begins with. XLA may begin with that
# in several places, so that of a sum the number is its own affair.

_ONCE_OR_OFTEN = tuple(MONOIDS[name] for name in ("max", "min", "and", "or"))


def as_reduction(op: Op) -> Any | None:
    """The program of a `lax.reduce` in terms of the reduction by its monoid; None where that is not
    known.
    """
    monoid = monoid_of_program(op.params["jaxpr"]) if len(op.eqn.outvars) == 1 else None
    if monoid is None or not (monoid in _ONCE_OR_OFTEN or begins_with_nothing(op, monoid)):
        return None

    def reduced(x: Any, first: Any) -> Any:
        return monoid.combine(first, monoid.fold(x, axes=tuple(op.params["dimensions"])))

    return make_jaxpr(reduced)(
        *(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in op.eqn.invars)
    )


def begins_with_nothing(op: Op, monoid: Monoid) -> bool:
    """Whether it is written into a program that a reduction begins with what changes nothing."""
    first = op.eqn.invars[-1]
    return is_written(first) and bool(
        np.all(np.asarray(first.val) == monoid.identity(first.aval.dtype))
    )


def _reduce_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.ins[0][axis] for axis in op.params["dimensions"])
    if not dims or as_reduction(op) is not None:
        return
    if len(op.eqn.outvars) == 1 and monoid_of_program(op.params["jaxpr"]) is not None:
        yield refuse(
            op,
            dims,
            "begins a sum or product along it with a number that XLA may count several times",
        )
    else:
        yield refuse(op, dims, "reduces it by no known sum, product or extreme")


def _reduce(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    program = as_reduction(op)
    return walk.bind(op, values) if program is None else walk.run(program, values)


RULES: dict[str, Rule] = {
    **{name: _reduction(MONOIDS[monoid]) for name, monoid in REDUCTIONS.items()},
    **{name: _reduction(MONOIDS[monoid], name, "placed") for name, monoid in PLACES.items()},
    "reduce": Rule(_reduce_uses, _reduce),
    **{name: _cumulative(MONOIDS[monoid]) for name, monoid in CUMULATIVE.items()},
}
