"""Random numbers: each element is drawn from its key and its position in the whole array, so that
padded arrays and chunks draw the numbers of plain JAX.

JAX's default generator (`jax_threefry_partitionable`) is counter-based: element i, in row-major
order, is the encryption of the 64-bit number i under the key. `jax.extend.random.threefry2x32_p` is
that cipher. Padding of the leading axis does not change i; padding of any other axis does, and so
does a chunk, so there i is computed from the true size and the start of the chunk. Other generators
depend on the number of draws and are refused, unless each element has a key of its own.

    shape (3, n), n = 5 of 8 allocated: element [1, 2] has i = 1 * 5 + 2, not 1 * 8 + 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import random as ciphers

from ..dims import Dim, evaluate, is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..rule import Rule, Use, ragged_dims, refuse
from ..typed_jax import jnp, lax

# Bits of a word of the cipher, and of half of it.
_WORD, _HALF = 32, 16


def _uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.params["shape"])
    options: Any = jax.config
    if dims and not (
        options.jax_threefry_partitionable and str(op.eqn.invars[0].aval.dtype) == "key<fry>"
    ):
        yield refuse(
            op,
            dims,
            "draws random numbers from a generator whose draws depend on how many there are",
        )


def _bits(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(op.params["shape"]))

    # The two words of the cipher become bits as in JAX: joined for 64 bits, their xor otherwise.
    high, low = _encrypted(walk, op.params["shape"], values[0])
    width, dtype = op.params["bit_width"], op.eqn.outvars[0].aval.dtype
    if width > _WORD:
        wide = lax.shift_left(lax.convert_element_type(high, dtype), np.asarray(_WORD, dtype))
        return [lax.bitwise_or(wide, lax.convert_element_type(low, dtype))]
    return [lax.convert_element_type(lax.bitwise_xor(high, low), dtype)]


def _split(walk: PaddedInterpreter, op: Op, values: list[jax.Array]) -> list[Any]:
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(op.params["shape"]))
    words = jnp.stack(_encrypted(walk, op.params["shape"], values[0]), axis=-1)
    return [jax.random.wrap_key_data(words, impl=jax.random.key_impl(values[0]))]


def _is_counted_alike(walk: PaddedInterpreter, op: Op) -> bool:
    """Return whether valid elements have the same row-major number in the allocated array: no axis
    is symbolic but the leading one, and the array is not a chunk.
    """
    shape: Sequence[Dim] = op.params["shape"]
    return not any(map(is_ragged, shape)) or (not walk.start and not any(map(is_ragged, shape[1:])))


def _encrypted(walk: PaddedInterpreter, shape: Sequence[Dim], keys: Any) -> list[Any]:
    """The two cipher words of each element's number, under each of the keys."""
    words = jax.random.key_data(keys)
    ahead = words.shape[:-1]
    counts = [
        jnp.broadcast_to(count, (*ahead, *walk.shape(shape))) for count in _counts(walk, shape)
    ]
    halves = [
        lax.broadcast_in_dim(words[..., i], counts[0].shape, range(len(ahead))) for i in (0, 1)
    ]
    return list(ciphers.threefry2x32_p.bind(*halves, *counts))


def _counts(walk: PaddedInterpreter, shape: Sequence[Dim]) -> tuple[Any, Any]:
    """The row-major number of each element in the whole array, as a high and a low 32-bit word."""
    # Horner's scheme over the axes: number = number * size + position.
    sizes = [evaluate(dim, walk.whole) for dim in shape]
    high = low = jnp.zeros((), np.uint32)
    for axis, (dim, size, here) in enumerate(zip(shape, sizes, walk.shape(shape), strict=True)):
        begins = walk.start_of(dim) if is_ragged(dim) and walk.start else np.int32(0)
        positions = lax.add(
            jnp.arange(here, dtype=np.uint32), lax.convert_element_type(begins, np.uint32)
        )
        high, low = _further(
            high, low, lax.convert_element_type(jnp.asarray(size), np.uint32), positions
        )
        high, low = (
            (jnp.expand_dims(x, -1) for x in (high, low)) if axis + 1 < len(shape) else (high, low)
        )
    return high, low


def _further(high: Any, low: Any, size: Any, positions: Any) -> tuple[Any, Any]:
    """Multiply a 64-bit number by a 32-bit size and add positions, in two words of 32 bits."""
    # 64-bit integers need `jax_enable_x64`. The high word of low * size is the schoolbook product
    # of 16-bit halves, none of whose partial sums exceeds 32 bits.
    mask, half = np.uint32(2**_HALF - 1), np.uint32(_HALF)
    first, second = (low & mask, low >> half), (size & mask, size >> half)
    upper = first[1] * second[0] + (first[0] * second[0] >> half)
    carried = (
        first[1] * second[1] + (upper >> half) + (first[0] * second[1] + (upper & mask) >> half)
    )

    # A sum that wraps is smaller than its terms: that is the carry bit.
    product = low * size
    total = product + positions
    over = lax.convert_element_type(
        lax.lt(total, jnp.broadcast_to(product, total.shape)), np.uint32
    )
    return high * size + carried + over, total


RULES: dict[str, Rule] = {
    "random_bits": Rule(_uses, _bits, makes=True),
    "random_split": Rule(_uses, _split, makes=True),
}
