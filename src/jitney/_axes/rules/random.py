"""Random numbers: each element is drawn from its key and its position in the whole array, so that
padded arrays and chunks draw the numbers of plain JAX.

JAX's default generator (`jax_threefry_partitionable`) is counter-based: element i, in row-major
order, is the encryption of the 64-bit number i under the key. `jax.extend.random.threefry2x32_p` is
that cipher. Padding of the leading axis does not change i; padding of any other axis does, and so
does a chunk, so there i is computed from the true size and the start of the chunk. Other generators
depend on the number of draws and are refused, unless each element has a key of its own. Even then
`rbg` and `unsafe_rbg` are: JAX maps them by drawing for all keys from the first one.

    shape (3, n), n = 5 of 8 allocated: element [1, 2] has i = 1 * 5 + 2, not 1 * 8 + 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.extend import random as ciphers

from ..._jax.programs.jaxprs import draws_jointly
from ..._jax.typed import Values
from ..dims import Dim, evaluate, is_ragged
from ..interpreter import Op, PaddedInterpreter
from ..rule import Rule, Use, evaluate_unchanged, ragged_dims, refuse
from ..typed_jax import jnp, lax

# Bits of a word of the cipher, and of half of it.
_WORD, _HALF = 32, 16


def _uses(op: Op) -> Iterator[Use]:
    dims = ragged_dims(op.params["shape"])
    options: Any = jax.config
    if dims and not (options.jax_threefry_partitionable and _key_dtype(op) == "key<fry>"):
        why = "draws random numbers from a generator whose draws depend on how many there are"
        yield refuse(op, dims, why)
    yield from _uses_of_keys(op)


def _uses_of_keys(op: Op) -> Iterator[Use]:
    dims = ragged_dims(chain.from_iterable(op.ins))
    if dims and draws_jointly(op.eqn):
        why = "draws for all its keys at once, where a draw depends on the keys beside its own"
        yield refuse(op, dims, why)


def _key_dtype(op: Op) -> str:
    return str(op.eqn.invars[0].aval.dtype)


def _bits(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    shape = op.params["shape"]
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(shape))

    # The two words of the cipher become bits as in JAX: joined for 64 bits, their xor otherwise.
    high, low = _cipher_words(walk, shape, values[0])
    dtype = op.eqn.outvars[0].aval.dtype
    if op.params["bit_width"] <= _WORD:
        mixed = lax.bitwise_xor(high, low)
        return [lax.convert_element_type(mixed, dtype)]
    high = lax.convert_element_type(high, dtype)
    high = lax.shift_left(high, np.asarray(_WORD, dtype))
    low = lax.convert_element_type(low, dtype)
    return [lax.bitwise_or(high, low)]


def _split(walk: PaddedInterpreter, op: Op, values: Values) -> Values:
    shape = op.params["shape"]
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(shape))
    (keys,) = values
    words = jnp.stack(_cipher_words(walk, shape, keys), axis=-1)
    cipher = jax.random.key_impl(keys)
    return [jax.random.wrap_key_data(words, impl=cipher)]


def _is_counted_alike(walk: PaddedInterpreter, op: Op) -> bool:
    """Return whether valid elements have the same row-major number in the allocated array: no axis
    is symbolic but the leading one, and the array is not a chunk.
    """
    shape: Sequence[Dim] = op.params["shape"]
    if not any(map(is_ragged, shape)):
        return True
    return not walk.start and not any(map(is_ragged, shape[1:]))


def _cipher_words(
    walk: PaddedInterpreter,
    shape: Sequence[Dim],
    keys: jax.Array,
) -> Values:
    """The two cipher words of each element's number, under each of the keys."""
    words = jax.random.key_data(keys)
    ahead = words.shape[:-1]
    full = (*ahead, *walk.shape(shape))
    counts = [jnp.broadcast_to(count, full) for count in _counts(walk, shape)]
    if not ahead:
        # As in JAX: a key broadcast before the rounds would be three arrays more in their loop.
        return list(ciphers.threefry2x32_p.bind(words[0], words[1], *counts))

    # Of many keys, the cipher takes four arrays of one shape: the halves of keys and of numbers.
    axes = range(len(ahead))
    first = lax.broadcast_in_dim(words[..., 0], full, axes)
    second = lax.broadcast_in_dim(words[..., 1], full, axes)
    return list(ciphers.threefry2x32_p.bind(first, second, *counts))


def _counts(walk: PaddedInterpreter, shape: Sequence[Dim]) -> tuple[jax.Array, jax.Array]:
    """The row-major number of each element in the whole array, as a high and a low 32-bit word."""
    # Horner's scheme over the axes: number = number * size + position.
    sizes = [evaluate(dim, walk.whole) for dim in shape]
    high = low = jnp.zeros((), np.uint32)
    last = len(shape) - 1
    axes = zip(shape, sizes, walk.shape(shape), strict=True)
    for axis, (dim, size, here) in enumerate(axes):
        begins = walk.start_of(dim) if is_ragged(dim) and walk.start else np.int32(0)
        positions = jnp.arange(here, dtype=np.uint32)
        begins = lax.convert_element_type(begins, np.uint32)
        positions = lax.add(positions, begins)
        size = lax.convert_element_type(jnp.asarray(size), np.uint32)
        high, low = _further(high, low, size, positions)
        if axis < last:
            high = jnp.expand_dims(high, -1)
            low = jnp.expand_dims(low, -1)
    return high, low


def _further(
    high: jax.Array,
    low: jax.Array,
    size: jax.Array,
    positions: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Multiply a 64-bit number by a 32-bit size and add positions, in two words of 32 bits."""
    # 64-bit integers need `jax_enable_x64`. The high word of low * size is the schoolbook product
    # of 16-bit halves, none of whose partial sums exceeds 32 bits.
    mask = np.uint32(2**_HALF - 1)
    half = np.uint32(_HALF)
    low_half, high_half = low & mask, low >> half
    size_low, size_high = size & mask, size >> half
    upper = high_half * size_low + (low_half * size_low >> half)
    carried = high_half * size_high + (upper >> half)
    carried = carried + ((low_half * size_high + (upper & mask)) >> half)

    # A sum that wraps is smaller than its terms: that is the carry bit.
    product = low * size
    total = product + positions
    wraps = lax.lt(total, jnp.broadcast_to(product, total.shape))
    over = lax.convert_element_type(wraps, np.uint32)
    return high * size + carried + over, total


RULES: dict[str, Rule] = {
    "random_bits": Rule(_uses, _bits, makes=True),
    "random_split": Rule(_uses, _split, makes=True),
    "random_fold_in": Rule(_uses_of_keys, evaluate_unchanged),
}
