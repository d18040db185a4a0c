"""A checksum of an array that does not depend on where its parts lie.

It stands beside the checkpoints: what is saved from one mesh may be restored onto another, by
another number of processes. So each word of the array counts by its place in the whole, times an
odd number, and the sum is taken modulo 2**32, in any order. A single flipped bit always changes it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from .._jax.trees import is_a

_jax: Any = jax
_jnp: Any = jax.numpy
_AT_ONCE = 2**20  # words
_WORD = 4  # bytes


def checksum(array: Any) -> int | None:
    """Of an array of the host, or of one that lies on any devices; None for numbers of less than a
    byte.
    """
    if array.dtype.name.lstrip("u").startswith(("int2", "int4", "float4")):
        return None
    if is_a(array, jax.Array) and not array.is_fully_addressable:
        return int(_jax.jit(_on_devices)(array).addressable_data(0))
    return _on_host(np.asarray(array))


def _on_host(array: np.ndarray[Any, Any]) -> int:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = flat.view(f"u{min(_WORD, array.dtype.itemsize)}") if array.size else flat
    total = 0
    for start in range(0, len(words), _AT_ONCE):
        part = words[start : start + _AT_ONCE].astype(np.uint32)
        total += int(
            np.sum(
                part * _weight(np.arange(start, start + len(part)).astype(np.uint32)),
                dtype=np.uint32,
            )
        )
    return total % 2**32


def _on_devices(array: Any) -> Any:
    """The same, each device of its part, so that no process needs the whole."""
    if _jnp.iscomplexobj(array):
        array = _jnp.stack([array.real, array.imag], -1)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    bits = _jax.lax.bitcast_convert_type(
        array, np.dtype(f"u{min(_WORD, array.dtype.itemsize)}")
    ).astype(np.uint32)
    place = _jnp.zeros(bits.shape, np.uint32)
    for axis in range(bits.ndim):
        stride = np.uint32(math.prod(bits.shape[axis + 1 :]) % 2**32)
        place = place + _jax.lax.broadcasted_iota(np.uint32, bits.shape, axis) * stride
    return _jnp.sum(bits * _weight(place), dtype=np.uint32)


def _weight(place: Any) -> Any:
    mixed = place * np.uint32(0x9E3779B1)
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA77)
    return (mixed ^ (mixed >> np.uint32(13))) | np.uint32(1)
