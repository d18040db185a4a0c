"""Sorting and `top_k`: padding orders last, behind NaNs too.

No value of the dtype orders behind NaN, so `sort` gets a flag in front of its keys: keys are
compared lexicographically, and (valid, key) < (padding, any) for each key.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..._jax.typed import Values
from ..carriers.extremes import TopK
from ..dims import is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..monoids import is_low, last_in_order
from ..rule import Rule, Use, refuse, use
from ..typed_jax import jnp, lax
from ..xla_faults.low_bits import as_bits


def _sort_uses(op: Op) -> Iterator[Use]:
    dim = op.ins[0][op.params["dimension"]]
    dtypes = [str(atom.aval.dtype) for atom in op.eqn.invars]
    narrow = [dtype for dtype in dtypes if dtype in _TWO_BITS]
    if is_ragged(dim) and narrow:
        yield refuse(op, dim, f"sorts {narrow[0]} along it, beside which XLA sorts nothing else")
    elif is_ragged(dim) and _shows_ties(op):
        yield refuse(op, dim, "sorts it with no order of ties, which changes with its size")
    elif is_ragged(dim):
        yield use(op, dim, "sorted", "sorted")


def _shows_ties(op: Op) -> bool:
    """Return whether the order of ties is left to XLA and can be seen: by an operand that is no
    key. Keys that tie are equal: zeros of both signs, NaNs (`jnp.median` sorts so in jax 0.12).
    """
    return not op.params["is_stable"] and op.params["num_keys"] < len(op.eqn.invars)


# XLA for CPUs sorts these wrongly, and does not compile a sort of them with other operands (jax
# 0.10.2 and 0.12.0.1).
_TWO_BITS = (
    "int2",
    "uint2",
)


def _sort(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    axis = op.params["dimension"]
    dim = op.ins[0][axis]
    if not is_ragged(dim) or walk.is_full(dim):
        return walk.bind(op, values)
    padding = lax.bitwise_not(walk.inside(op.ins[0], axis))
    behind = lax.convert_element_type(padding, np.uint8)
    out = lax.sort(
        [behind, *values],
        dimension=axis,
        is_stable=op.params["is_stable"],
        num_keys=op.params["num_keys"] + 1,
    )
    return list(out[1:])


def _top_uses(op: Op) -> Iterator[Use]:
    dims = op.ins[0]
    dim = dims[op.params.get("axis", len(dims) - 1)]
    if is_ragged(dim):
        yield use(op, dim, "sorted", "the largest of it")


def _top(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    """Give padding the value that orders last in `top_k`. Ties are broken by position, and padding
    has the last positions.
    """
    (x,) = values
    axis = op.params.get("axis", x.ndim - 1)
    (count,) = walk.shape([op.params["k"]])
    dims = op.ins[0]

    def by_value(x: jax.Array) -> list[jax.Array]:
        last, here = last_in_order(x.dtype), walk.within()
        if not is_low(x.dtype):
            masked = here.keep(x, dims, [axis], last)
            return walk.bind(op, [masked], k=count)

        # XLA selects low types in a wider one and loses the sign of a NaN
        # (see `xla_faults/low_bits.py`), so the padding is put in as bits. Bits have no
        # derivative: the values are taken by index.
        bits = as_bits(lax.stop_gradient(x))
        bits = here.keep(bits, dims, [axis], last.view(bits.dtype))
        masked = lax.bitcast_convert_type(bits, x.dtype)
        _, places = walk.bind(op, [masked], k=count)
        return [jnp.take_along_axis(x, places, axis), places]

    def by_keys(x: jax.Array) -> list[jax.Array]:
        keys = walk.within().keep(ordered_keys(lax.stop_gradient(x)), dims, [axis], 0)
        _, places = lax.top_k(keys, count, axis=axis)
        return [jnp.take_along_axis(x, places, axis), places]

    if x.dtype not in _IN_KERNELS:
        return by_value(x)
    return lax.platform_dependent(x, cpu=by_value, default=by_keys)


# Those that kernels of GPUs select; others are sorted there too.
_IN_KERNELS = (np.float32, np.float64, np.float16, jnp.bfloat16)


def ordered_keys(x: jax.Array) -> jax.Array:
    """Unsigned integers in the order that `top_k` has for floating-point numbers, the total order
    of IEEE 754; 0 is the last of it.

    For GPUs. From 1,024 elements on, their kernel compares by `>`, so that a NaN that pads spoils
    the numbers beside it, and one among the data is lost, which at a smaller size it is not (jax
    0.11.2 on an H200).
    """
    bits = lax.bitcast_convert_type(x, np.dtype(f"u{x.dtype.itemsize}"))
    sign = lax.full(x.shape, 1 << (8 * x.dtype.itemsize - 1), bits.dtype)
    is_negative = lax.ne(bits & sign, lax.full(x.shape, 0, bits.dtype))
    return lax.select(is_negative, lax.bitwise_not(bits), bits | sign)


RULES: dict[str, Rule] = {
    "sort": Rule(_sort_uses, _sort, at_once=True),
    "top_k": Rule(_top_uses, _top, TopK()),
}
