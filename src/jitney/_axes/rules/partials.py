"""Abstract domain of partial reductions, and which operations map partials to partials.

Where an axis is cut, each chunk computes its partial sum over it, inside a loop over another axis.
A linear operation commutes with the sum over chunks, f(a + b) = f(a) + f(b), so it may be applied
to the partials: they may be moved, added to each other, and multiplied by a value that is the same
in each chunk. (If that value is infinite, a partial of zero makes a NaN where the sum makes an
infinity.) Partial maxima and minima may be moved, and compared with each other. Any other operation
on a partial would compute a number that does not occur in the program.

    scan body      abstract values (x: varying in the batch; w: fixed)
    s = sum(x)     partial[add]
    t = w * s      partial[add]: linear in s
    u = tanh(t)    refused: not linear
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..._jax.programs.primitives import REARRANGED
from ..._jax.trees import Tracer, extended, issubdtype
from ..interpreter import Op
from ..monoids import CUMULATIVE, MONOIDS, REDUCTIONS, SCATTERS, Monoid
from ..typed_jax import dtypes, lax

AbstractValue = Literal["fixed", "zero", "start", "along"] | Monoid
"""Abstract value, per chunk: "fixed" (the same in each chunk), "zero" (fixed, and zero), "start"
(fixed, and the initial value of a carry that no iteration is known to change), "along" (has the
axis), or a monoid: a partial result that the monoid combines over chunks.
"""

_ADD = MONOIDS["add"]
_IDEMPOTENT = tuple(MONOIDS[name] for name in ("max", "min", "and", "or"))
_TRUTHS = ("and", "or")
_LATTICE = tuple(MONOIDS[name] for name in _TRUTHS)
_CONVERTED = (_ADD, MONOIDS["max"], MONOIDS["min"])
_COMBINING = {
    "add": "add",
    "add_any": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
# `pad` is here because its filler is checked as an operand: it must be a partial like the rest.
_MOVED = REARRANGED | {
    "copy",
    "copy_p",
    "nonbatchable",
    "pad",
    "split",
    "stack",
    "tile",
    "unstack",
}
# Primitive -> the number of leading operands that hold data; the others are positions.
_AT_POSITIONS = {"dynamic_slice": 1, "gather": 1, "dynamic_update_slice": 2}
_LINEAR = (
    "complex",
    "conj",
    "cumsum",
    "fft",
    "imag",
    "neg",
    "real",
    "reduce_precision",
    "reduce_sum",
    "reduce_window_sum",
    "sub",
)
_PRODUCTS = ("conv_general_dilated", "dot_general", "mul")


def is_zero(value: object) -> bool:
    """Return whether a constant of a program is zero in all elements."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, Tracer):
        return False
    if dtype is not None and issubdtype(dtype, extended):
        return False
    return not np.any(np.asarray(value))


def is_fixed(standing: AbstractValue) -> bool:
    """Return whether an abstract value is the same in each chunk."""
    return standing in ("fixed", "zero", "start")


def is_partial_of(monoid: Monoid, standing: AbstractValue) -> bool:
    """Return whether a value may stand for a partial result of the monoid.

    In an idempotent monoid a fixed value may: combining it once per chunk is combining it once.
    Zero may in every monoid but the product.
    """
    if standing == "zero":
        return monoid is not MONOIDS["mul"]
    return standing in ("start", monoid) or (standing == "fixed" and monoid in _IDEMPOTENT)


def transfer_fixed(op: Op, given: Sequence[AbstractValue]) -> AbstractValue:
    """Transfer function for operands that are all fixed: an operation that is linear in its zeros
    returns zero.
    """
    # An operation that keeps partial sums is linear, and a linear operation maps zero to zero.
    zeros = list(given)
    for i in _values(op, len(given)):
        if given[i] != "fixed":
            zeros[i] = _ADD
    if _ADD not in zeros or not preserves_partials(op, zeros, _ADD):
        return "fixed"
    moves = op.name in (*_MOVED, "convert_element_type")
    return "start" if moves and "zero" not in given else "zero"


def _values(op: Op, count: int) -> Sequence[int]:
    """The positions of the operands that hold data, not indices or predicates."""
    if op.name == "scatter" or op.name in SCATTERS:
        return (0, 2)
    if op.name == "select_n":
        return range(1, count)
    return range(_AT_POSITIONS.get(op.name, count))


def preserves_partials(
    op: Op,
    given: Sequence[AbstractValue],
    monoid: Monoid,
) -> bool:
    """Return whether an operation maps partial results to partial results.

    Args:
        op: The operation.
        given: Abstract values of its operands; one of them is a partial result.
        monoid: The monoid that combines the partial results.
    """
    # Moves, and the monoid's own operation: (a1 + a2) + (b1 + b2) = (a1 + b1) + (a2 + b2).
    parts = [is_partial_of(monoid, each) for each in given]
    combines_by = MONOIDS.get(_COMBINING.get(op.name, ""))
    if op.name in _MOVED or combines_by is monoid:
        return all(parts)

    # Truths are a distributive lattice: (a or b) and c = (a and c) or (b and c).
    if op.name in _TRUTHS and monoid in _LATTICE:
        return any(map(is_fixed, given))

    # Reads, writes and selections, if each chunk makes them at the same positions.
    if op.name == "select_n":
        return is_fixed(given[0]) and all(parts[1:])
    if op.name in _AT_POSITIONS:
        count = _AT_POSITIONS[op.name]
        data, positions = parts[:count], given[count:]
        return all(data) and all(map(is_fixed, positions)) and not _fills(op)
    if op.name in SCATTERS or op.name == "scatter":
        by = SCATTERS.get(op.name)
        if by is not None and MONOIDS[by] is not monoid:
            return False
        return parts[0] and is_fixed(given[1]) and parts[2]

    # Reductions over other axes by the same monoid: the order of summation may be exchanged.
    by = REDUCTIONS.get(op.name) or CUMULATIVE.get(op.name)
    if by is not None and MONOIDS[by] is monoid:
        return True
    if op.name == "convert_element_type":
        return _converts(op, monoid)
    return monoid is _ADD and _is_linear(op, given, parts)


def _is_linear(
    op: Op,
    given: Sequence[AbstractValue],
    parts: Sequence[bool],
) -> bool:
    """Return whether an operation is linear in the partial results among its operands. Integer
    operations are not, but for `neg` and `sub`: a partial may wrap where the sum does not.
    """
    if op.name in _LINEAR:
        return all(parts) and (op.name in ("neg", "sub") or _is_inexact(op))
    if not _is_inexact(op):
        return False
    # A product is linear in each factor alone: exactly one of the factors may be a partial.
    if op.name in _PRODUCTS:
        return sum(map(is_fixed, given)) == len(given) - 1
    if op.name == "div":
        return parts[0] and is_fixed(given[1])
    return op.name == "triangular_solve" and is_fixed(given[0]) and parts[1]


def _converts(op: Op, monoid: Monoid) -> bool:
    """Return whether partial results stay partial results in another dtype.

    Integer sums are sums modulo 2**bits, and 2**narrow divides 2**wide: conversion to a type of as
    many bits or fewer commutes with the sum.
    """
    atoms = (*op.eqn.invars, *op.eqn.outvars)
    was, now = (np.dtype(atom.aval.dtype) for atom in atoms)
    if was == now:
        return True
    are_integers = all(issubdtype(each, np.integer) for each in (was, now))
    if monoid is _ADD and are_integers:
        bits, bits_before = dtypes.iinfo(now).bits, dtypes.iinfo(was).bits
        return bits <= bits_before
    return _is_inexact(op) and monoid in _CONVERTED


def _is_inexact(op: Op) -> bool:
    atoms = (*op.eqn.invars, *op.eqn.outvars)
    return all(issubdtype(atom.aval.dtype, np.inexact) for atom in atoms)


def _fills(op: Op) -> bool:
    """Return whether a gather fills positions out of bounds with a number that is not a partial
    result. Zero is one, and so is NaN: NaN + NaN is NaN.
    """
    mode = op.params.get("mode")
    if op.name != "gather" or mode != lax.GatherScatterMode.FILL_OR_DROP:
        return False
    filler = op.params["fill_value"]
    if filler is not None:
        return not (is_zero(filler) or np.isnan(filler))
    return not issubdtype(op.eqn.outvars[0].aval.dtype, np.inexact)
