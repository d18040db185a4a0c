"""What may be made of the parts of a sum, a product or an extreme before they are put together.

Where an axis is cut, each chunk has its part of a sum over it, inside a loop over another axis.
What is linear in the part makes the part of what it would make of the sum: parts are moved, added
to each other, and multiplied by what is the same in each chunk. (Where that is infinite, a part of
zero makes a NaN, where the sum makes an infinity.) Of an extreme they may be moved, and compared
with each other. Whatever else reads a part would read what no number of the program is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..._jax.primitives import REARRANGED
from ..._jax.trees import Tracer, extended, is_a, issubdtype
from ..monoids import CUMULATIVE, MONOIDS, REDUCTIONS, SCATTERS, Monoid
from ..typed_jax import dtypes, lax
from ..walk import Op

Standing = Literal["fixed", "zero", "start", "along"] | Monoid
"""What a value is in a chunk: the same in each; that, and zero; that, and what a loop starts with,
as long as no turn is known to make anything else of it; what has the axis; or a part of what the
monoid puts together.
"""

_ADD = MONOIDS["add"]
_IDEMPOTENT = tuple(MONOIDS[name] for name in ("max", "min", "and", "or"))
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
# the filler of a pad is moved as well
_MOVED = REARRANGED | {"copy", "copy_p", "pad", "split", "stack", "tile", "unstack"}
# -> how many operands are read; positions come behind
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


def is_zero(value: Any) -> bool:
    """Whether a number that a program holds is zero all over."""
    dtype = getattr(value, "dtype", None)
    if is_a(value, Tracer) or (dtype is not None and issubdtype(dtype, extended)):
        return False
    return not np.any(np.asarray(value))


def is_fixed(standing: Standing) -> bool:
    """Whether a value is the same in each chunk."""
    return standing in ("fixed", "zero", "start")


def within(monoid: Monoid, standing: Standing) -> bool:
    """Whether a value is a part of what the monoid puts together: of an extreme that is the same in
    each chunk too.
    """
    if standing == "zero":
        return monoid is not MONOIDS["mul"]
    return standing in ("start", monoid) or (standing == "fixed" and monoid in _IDEMPOTENT)


def of_fixed(op: Op, given: Sequence[Standing]) -> Standing:
    """What an operation makes of values that are the same in each chunk: of zeros what is linear in
    them makes zeros.
    """
    at = _values(op, len(given))
    zeros: list[Standing] = [
        _ADD if i in at and each != "fixed" else each for i, each in enumerate(given)
    ]
    if not any(each is _ADD for each in zeros) or not keeps(op, zeros, _ADD):
        return "fixed"
    return (
        "start" if op.name in (*_MOVED, "convert_element_type") and "zero" not in given else "zero"
    )


def _values(op: Op, count: int) -> Sequence[int]:
    """Which operands are numbers, and no positions or choices."""
    if op.name == "scatter" or op.name in SCATTERS:
        return (0, 2)
    return range(1, count) if op.name == "select_n" else range(_AT_POSITIONS.get(op.name, count))


def keeps(op: Op, given: Sequence[Standing], monoid: Monoid) -> bool:
    """Whether an operation of parts makes parts.

    Args:
        op: The operation.
        given: What its operands are; one of them is a part.
        monoid: By which the parts are put together.
    """
    parts = [within(monoid, each) for each in given]
    if op.name in _MOVED or MONOIDS.get(_COMBINING.get(op.name, "")) is monoid:
        return all(parts)
    if op.name == "select_n":
        return is_fixed(given[0]) and all(parts[1:])
    if op.name in _AT_POSITIONS:
        read = _AT_POSITIONS[op.name]
        return all(parts[:read]) and all(map(is_fixed, given[read:])) and not _fills(op)
    if op.name in SCATTERS or op.name == "scatter":
        by = SCATTERS.get(op.name)
        return (
            (by is None or MONOIDS[by] is monoid) and parts[0] and is_fixed(given[1]) and parts[2]
        )
    by = REDUCTIONS.get(op.name) or CUMULATIVE.get(op.name)
    if by is not None and MONOIDS[by] is monoid:
        return True
    if op.name == "convert_element_type":
        return _converts(op, monoid)
    return monoid is _ADD and _is_linear(op, given, parts)


def _is_linear(op: Op, given: Sequence[Standing], parts: Sequence[bool]) -> bool:
    """Whether an operation is linear in the parts among its operands. One of whole numbers may wrap
    in a part, and not in the sum.
    """
    if op.name in _LINEAR:
        return all(parts) and (op.name in ("neg", "sub") or _is_inexact(op))
    if not _is_inexact(op):
        return False
    if op.name in _PRODUCTS:
        return sum(map(is_fixed, given)) == len(given) - 1
    if op.name == "div":
        return parts[0] and is_fixed(given[1])
    return op.name == "triangular_solve" and is_fixed(given[0]) and parts[1]


def _converts(op: Op, monoid: Monoid) -> bool:
    """Whether parts stay parts in another type. A sum of whole numbers is one up to a power of two,
    which a narrower type divides.
    """
    was, now = (np.dtype(atom.aval.dtype) for atom in (*op.eqn.invars, *op.eqn.outvars))
    if was == now:
        return True
    if monoid is _ADD and all(issubdtype(each, np.integer) for each in (was, now)):
        return dtypes.iinfo(now).bits <= dtypes.iinfo(was).bits
    return _is_inexact(op) and monoid in (_ADD, MONOIDS["max"], MONOIDS["min"])


def _is_inexact(op: Op) -> bool:
    return all(
        issubdtype(atom.aval.dtype, np.inexact) for atom in (*op.eqn.invars, *op.eqn.outvars)
    )


def _fills(op: Op) -> bool:
    """Whether an operation puts a number there where a position is outside: a NaN is one of each
    part and of their sum.
    """
    if op.params.get("mode") != lax.GatherScatterMode.FILL_OR_DROP or op.name != "gather":
        return False
    filler = op.params["fill_value"]
    return (
        not issubdtype(op.eqn.outvars[0].aval.dtype, np.inexact)
        if filler is None
        else not (is_zero(filler) or np.isnan(filler))
    )
