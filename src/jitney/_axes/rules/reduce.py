"""Reductions and cumulative operations: padding is replaced by the monoid's identity element.

The theorem is the definition of an identity: a fold over the valid elements and any number of
identities equals the fold over the valid elements, for each association that XLA may choose.

Collectives over the named axis of a `vmap` (`jax.lax.psum(x, "batch")`) are reductions over an
ordinary axis of the array, once `vmap` has mapped it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import jax
import numpy as np

from ..._jax.programs.jaxprs import is_literal, open_jaxpr, variables
from ..._jax.typed import AnyJaxpr, ClosedJaxpr, Values
from ..carriers.extremes import ArgExtreme
from ..carriers.folds import Fold, Prefix
from ..dims import Dim, evaluate
from ..interpreter import Op, PaddedInterpreter
from ..monoids import CUMULATIVE, MONOIDS, PLACES, REDUCTIONS, Monoid, is_ordered
from ..rule import Rule, Use, ragged_dims, refuse, use
from ..typed_jax import dtypes, make_jaxpr
from ..xla_faults.lost_nans import fold
from ..xla_faults.partitioner_fixes import partition_safe


def refuse_unordered(
    op: Op,
    dims: Sequence[Dim],
    monoid: Monoid,
) -> list[Use]:
    """Refuse a maximum or minimum that depends on the order in which XLA compares elements."""
    dtype = op.eqn.invars[0].aval.dtype
    if monoid not in (MONOIDS["max"], MONOIDS["min"]) or is_ordered(dtype):
        return []
    why = (
        f"looks for an extreme of {dtype} numbers, whose NaNs XLA drops or keeps by the order"
        " it goes in"
    )
    return [refuse(op, dims, why)]


def refuse_uncountable(op: Op, dims: Sequence[Dim]) -> list[Use]:
    """Refuse an argmax whose index type cannot count the axis: XLA breaks ties by the smallest
    index, and compares indices after they have wrapped.
    """
    dtype = op.params.get("index_dtype")
    most = {symbol: high for symbol, (_, high) in op.ranges.items()}
    if dtype is None:
        return []
    last = dtypes.iinfo(dtype).max
    if all(evaluate(dim, most) - 1 <= last for dim in dims):
        return []
    return [refuse(op, dims, f"gives places along it as {dtype}, which cannot count them")]


_NAMES = ("add", "mul", "max", "min", "and", "or", "xor")
_COMPUTATIONS = {name: MONOIDS[name] for name in _NAMES}


def monoid_of_program(program: AnyJaxpr) -> Monoid | None:
    """The monoid that a binary reducer computes, if it consists of that one equation; else None."""
    jaxpr, held = open_jaxpr(program)
    if len(jaxpr.eqns) != 1 or len(jaxpr.invars) != 2 or held:
        return None
    (eqn,) = jaxpr.eqns
    reads_both = {*variables(eqn.invars)} == {*jaxpr.invars}
    if not reads_both or list(eqn.outvars) != list(jaxpr.outvars):
        return None
    return _COMPUTATIONS.get(eqn.primitive.name)


def _reduction(
    monoid: Monoid,
    word: str = "",
    carrier: type[Fold | ArgExtreme] = Fold,
) -> Rule:
    # An argmax looks through the axis by the monoid "max", but its result is an index: no monoid
    # combines the indices of two chunks.
    own = monoid if carrier.is_combined else None

    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims(op.ins[0][axis] for axis in op.params["axes"])
        if dims:
            yield from (
                refuse_unordered(op, dims, monoid)
                or refuse_uncountable(op, dims)
                or [use(op, dims, "reduced", word, monoid=own)]
            )

    # An argmax stays right where all valid elements equal the identity: of equal elements XLA
    # takes the first, and padding comes last.
    def pad(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
        x = values[0]
        identity = monoid.identity(x.dtype)
        masked = walk.keep(x, op.ins[0], op.params["axes"], identity)
        return walk.bind(op, [masked])

    return Rule(uses, pad, carrier(monoid))


def _cumulative(monoid: Monoid) -> Rule:
    def uses(op: Op) -> Iterator[Use]:
        dims = ragged_dims([op.ins[0][op.params["axis"]]])
        if dims:
            how = f"cumulative {monoid.word}"
            if op.params["reverse"]:
                how += ", from the end"
            yield from refuse_unordered(op, dims, monoid) or [use(op, dims, "scanned", how)]

    # From the front, prefix i never reads the padding behind i. From the end (`reverse`) the scan
    # crosses the padding first, and arrives at the last valid element with the identity.
    def pad(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
        x = values[0]
        identity = monoid.identity(x.dtype)
        masked = walk.keep(x, op.ins[0], [op.params["axis"]], identity)
        return walk.bind(op, [masked])

    return Rule(uses, pad, Prefix(monoid))


# `lax.reduce` with a known monoid is that monoid's own reduction, combined with the init value.
# XLA may combine the init value with several partial results. That changes nothing in an
# idempotent monoid (x * x = x); in a sum or product it does, so there the init value must be the
# identity.

_ONCE_OR_OFTEN = tuple(MONOIDS[name] for name in ("max", "min", "and", "or"))


def as_reduction(op: Op) -> ClosedJaxpr | None:
    """A jaxpr for a `lax.reduce` that uses its monoid's own reduction; None if the monoid is not
    known, or the init value could be counted several times.
    """
    monoid = monoid_of_program(op.params["jaxpr"]) if len(op.eqn.outvars) == 1 else None
    if monoid is None or not (monoid in _ONCE_OR_OFTEN or starts_from_identity(op, monoid)):
        return None

    def reduced(x: jax.Array, first: jax.Array) -> jax.Array:
        axes = tuple(op.params["dimensions"])
        folded = monoid.fold(x, axes=axes)
        return monoid.combine(first, folded)

    avals = [atom.aval for atom in op.eqn.invars]
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    return make_jaxpr(reduced)(*structs)


def starts_from_identity(op: Op, monoid: Monoid) -> bool:
    """Return whether the init value of a reduction is a literal that equals the identity."""
    first = op.eqn.invars[-1]
    if not is_literal(first):
        return False
    identity = monoid.identity(first.aval.dtype)
    return bool(np.all(np.asarray(first.val) == identity))


def _reduce_uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.ins[0][axis] for axis in op.params["dimensions"])
    if not dims or as_reduction(op) is not None:
        return
    if len(op.eqn.outvars) == 1 and monoid_of_program(op.params["jaxpr"]) is not None:
        why = "begins a sum or product along it with a number that XLA may count several times"
        yield refuse(op, dims, why)
    else:
        yield refuse(op, dims, "reduces it by no known sum, product or extreme")


def _reduce(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    program = as_reduction(op)
    if program is None:
        return walk.bind(op, values)
    return walk.run(program, values)


def _over_mapped(monoid: Monoid) -> Rule:
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
            return [fold(monoid, x, axes)]

        if walk.is_spread:
            return partition_safe(reduced)(x)
        return reduced(x)

    return Rule(uses, pad, Fold(monoid))


RULES: dict[str, Rule] = {
    **{name: _reduction(MONOIDS[monoid]) for name, monoid in REDUCTIONS.items()},
    **{name: _reduction(MONOIDS[monoid], name, ArgExtreme) for name, monoid in PLACES.items()},
    "reduce": Rule(_reduce_uses, _reduce),
    **{name: _cumulative(MONOIDS[monoid]) for name, monoid in CUMULATIVE.items()},
    "psum": _over_mapped(MONOIDS["add"]),
    "pmax": _over_mapped(MONOIDS["max"]),
    "pmin": _over_mapped(MONOIDS["min"]),
}
