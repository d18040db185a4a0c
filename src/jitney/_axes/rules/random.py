"""Random numbers: each is that of its key and its position, so that a chunk draws what the whole
would have there.

JAX's default generator (`jax_threefry_partitionable`) encrypts the number of each element, counted
through the whole array, with the key. `jax.extend.random.threefry2x32_p` is that cipher. In front
of what was filled in, along the leading axis, the numbers are the same anyway; behind another axis
they are counted by the true size, in a chunk from where it starts. Other generators draw by how
many there are, and are refused. Where each element has a key of its own, it is alone, whatever the
generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import random as ciphers

from ..dims import Dim, evaluate, is_ragged
from ..rule import Rule, Use, ragged_dims, refuse
from ..typed_jax import jnp, lax
from ..walk import Op, Walk

_random: Any = jax.random
_ciphers: Any = ciphers
_WORD, _HALF = 32, 16  # bits


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


def _bits(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(op.params["shape"]))
    high, low = _encrypted(walk, op.params["shape"], values[0])
    width, dtype = op.params["bit_width"], op.eqn.outvars[0].aval.dtype
    if width > _WORD:
        wide = lax.shift_left(lax.convert_element_type(high, dtype), np.asarray(_WORD, dtype))
        return [lax.bitwise_or(wide, lax.convert_element_type(low, dtype))]
    return [lax.convert_element_type(lax.bitwise_xor(high, low), dtype)]


def _split(walk: Walk, op: Op, values: list[Any]) -> list[Any]:
    if _is_counted_alike(walk, op):
        return walk.bind(op, values, shape=walk.shape(op.params["shape"]))
    words = jnp.stack(_encrypted(walk, op.params["shape"], values[0]), axis=-1)
    return [_random.wrap_key_data(words, impl=_random.key_impl(values[0]))]


def _is_counted_alike(walk: Walk, op: Op) -> bool:
    """Whether the numbers of the elements that are there are those that JAX would count in an array
    of this shape.
    """
    shape: Sequence[Dim] = op.params["shape"]
    return not any(map(is_ragged, shape)) or (not walk.start and not any(map(is_ragged, shape[1:])))


def _encrypted(walk: Walk, shape: Sequence[Dim], keys: Any) -> list[Any]:
    """The two words that the cipher makes of the number of each element, for each of the keys."""
    words = _random.key_data(keys)
    ahead = words.shape[:-1]
    counts = [
        jnp.broadcast_to(count, (*ahead, *walk.shape(shape))) for count in _counts(walk, shape)
    ]
    halves = [
        lax.broadcast_in_dim(words[..., i], counts[0].shape, range(len(ahead))) for i in (0, 1)
    ]
    return list(_ciphers.threefry2x32_p.bind(*halves, *counts))


def _counts(walk: Walk, shape: Sequence[Dim]) -> tuple[Any, Any]:
    """The number of each element of the whole array, the high word and the low one."""
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
    """A number of two words times a size, and positions added to it."""
    mask, half = np.uint32(2**_HALF - 1), np.uint32(_HALF)
    first, second = (low & mask, low >> half), (size & mask, size >> half)
    upper = first[1] * second[0] + (first[0] * second[0] >> half)
    carried = (
        first[1] * second[1] + (upper >> half) + (first[0] * second[1] + (upper & mask) >> half)
    )
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
