"""Checksum of an array that does not depend on its sharding.

Checkpoints that are saved from one mesh may be restored onto another, by another number of
processes. So each word of the array is multiplied by an odd number that depends on its position in
the whole array, and the products are summed modulo 2**32, in any order. A single flipped bit always
changes the sum: 2**k times an odd number is not 0 modulo 2**32.
"""

from __future__ import annotations

import math
from typing import TypeVar

import jax
import numpy as np

from .._jax.arrays import bytes_of
from .._jax.typed import Array, NumPyArray

Words = TypeVar("Words", jax.Array, NumPyArray)

# Number of words that are summed at a time on the host.
_AT_ONCE = 2**20
# Bytes of a word.
_WORD = 4


def checksum(array: Array) -> int | None:
    """Checksum of an array of the host or of any devices; None for dtypes of less than a byte."""
    if array.dtype.name.lstrip("u").startswith(("int2", "int4", "float4")):
        return None
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return int(jax.jit(_on_devices)(array).addressable_data(0))
    return _on_host(np.asarray(array))


def _on_host(array: NumPyArray) -> int:
    flat = bytes_of(array)
    # Words as on the devices: of 4 bytes, or of the dtype's own size if that is smaller.
    words = flat.view(f"u{min(_WORD, array.dtype.itemsize)}") if array.size else flat
    total = 0
    for start in range(0, len(words), _AT_ONCE):
        part = words[start : start + _AT_ONCE].astype(np.uint32)
        place = np.arange(start, start + len(part)).astype(np.uint32)
        weighted = part * _weight(place)
        total += int(np.sum(weighted, dtype=np.uint32))
    return total % 2**32


def _on_devices(array: jax.Array) -> jax.Array:
    """The same checksum, computed by each device on its part, so that no process needs the whole
    array.
    """
    if jax.numpy.iscomplexobj(array):
        array = jax.numpy.stack([array.real, array.imag], -1)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    word = np.dtype(f"u{min(_WORD, array.dtype.itemsize)}")
    bits = jax.lax.bitcast_convert_type(array, word).astype(np.uint32)

    # Row-major position of each word in the whole array, modulo 2**32. A dtype of 8 bytes has a
    # last axis of two words, in the order of memory.
    place = jax.numpy.zeros(bits.shape, np.uint32)
    for axis in range(bits.ndim):
        stride = math.prod(bits.shape[axis + 1 :]) % 2**32
        index = jax.lax.broadcasted_iota(np.uint32, bits.shape, axis)
        place = place + index * np.uint32(stride)
    return jax.numpy.sum(bits * _weight(place), dtype=np.uint32)


def _weight(place: Words) -> Words:
    """Odd pseudo-random factor of a position: a mix of shifts and the primes of xxHash, with the
    last bit set.
    """
    mixed = place * np.uint32(0x9E3779B1)
    mixed = mixed ^ (mixed >> np.uint32(15))
    mixed = mixed * np.uint32(0x85EBCA77)
    mixed = mixed ^ (mixed >> np.uint32(13))
    return mixed | np.uint32(1)
