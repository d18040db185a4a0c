"""Leaves of a checkpoint: arrays as Orbax takes and gives them, a checksum of each, and Python
numbers, texts and flags.

Checkpoints that are saved from one mesh may be restored onto another, by another number of
processes. So the checksum does not depend on the sharding: each word of the array is multiplied by
an odd number that depends on its position in the whole array, and the products are summed modulo
2**32, in any order. A single flipped bit always changes the sum: 2**k times an odd number is not 0
modulo 2**32.

A counter or a learning rate is a part of a run as well, in rows of text that preserve every bit;
code is not, and comes from the program that restores. `Checkpoints` refuses all other leaves, since
they would come back in their initial state.

    ("opt.step", 1200)  <->  ("opt.step", "int", "0x4b0")
"""

from __future__ import annotations

import math
import struct
import types
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .._jax.arrays import bytes_of
from .._jax.trees import device_put, issubdtype
from .._jax.typed import Array, NumPyArray
from .._owners import owner_of_class
from .compare_processes import with_sharding

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


# Path, kind, text.
Row = tuple[str, str, str]


def _bits(*numbers: float) -> str:
    return struct.pack(f"<{len(numbers)}d", *numbers).hex()


def _doubles(text: str) -> tuple[float, ...]:
    return struct.unpack(f"<{len(text) // 16}d", bytes.fromhex(text))


# Exact types only: a member of an `IntEnum` is an int, and would come back as a plain one.
_WRITE: dict[type, Callable[[Any], str]] = {
    bool: str,
    # Python limits the number of decimal digits, not of hexadecimal ones.
    int: hex,
    # With the sign of a NaN.
    float: _bits,
    complex: lambda value: _bits(value.real, value.imag),
    str: str,
    bytes: bytes.hex,
}
_READ: dict[str, Callable[[str], object]] = {
    "bool": lambda text: {"True": True, "False": False}[text],
    "int": lambda text: int(text, 16),
    "float": lambda text: _doubles(text)[0],
    "complex": lambda text: complex(*_doubles(text)),
    "str": str,
    "bytes": bytes.fromhex,
}


def is_value(leaf: object) -> bool:
    """Return whether a leaf is saved as text."""
    return type(leaf) in _WRITE


def is_code(leaf: object) -> bool:
    """Return whether a leaf is code, not state: functions, classes, dtypes, modules.

    A callable object of the user with attributes may be state, such as a reader that counts.
    """
    if isinstance(leaf, (type, np.dtype, types.ModuleType)):
        return True
    if not callable(leaf):
        return False
    is_users = owner_of_class(type(leaf)) == "user"
    return not (is_users and bool(getattr(leaf, "__dict__", None)))


def to_rows(values: Sequence[tuple[str, object]]) -> list[Row]:
    """Paths and values as rows of text."""
    return [(path, type(value).__name__, _WRITE[type(value)](value)) for path, value in values]


def from_rows(rows: Sequence[Row]) -> list[object]:
    """The values of rows, to the bit."""
    return [_READ[kind](text) for _, kind, text in rows]


def checksum_of(rows: Sequence[Row]) -> int:
    """CRC-32 of all rows."""
    return zlib.crc32(repr(rows).encode("ascii", "backslashreplace"))


def orbax() -> Any:
    """Orbax, which is imported when a checkpoint is read or written."""
    import orbax.checkpoint as ocp  # half a second  # pyright: ignore

    return ocp


def is_key(leaf: Any) -> bool:
    """Return whether an array, or the shape of one, has random keys."""
    return issubdtype(leaf.dtype, jax.dtypes.prng_key)


def plain(leaf: Array) -> Array:
    """The array as orbax takes it: random keys as their numbers, local arrays as NumPy arrays."""
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
        return leaf
    return np.asarray(leaf)


def _multidevice_sharding(leaf: object) -> jax.sharding.Sharding | None:
    """Sharding of an array on several devices; None for others."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is not None and len(sharding.device_set) > 1:
        return sharding
    return None


def restore_argument(leaf: Any) -> object:
    """Orbax's word for an array that is to be like a leaf."""
    ocp = orbax()
    sharding = _multidevice_sharding(leaf)
    if sharding is None or is_key(leaf):
        return ocp.RestoreArgs(restore_type=np.ndarray)
    return ocp.ArrayRestoreArgs(
        sharding=sharding,
        global_shape=tuple(leaf.shape),
        dtype=leaf.dtype,
    )


def empty_like(leaf: Any) -> Array:
    """An array without elements, as it would be read."""
    if is_key(leaf):
        keys = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        words = jax.eval_shape(jax.random.key_data, keys)
        return np.zeros(words.shape, np.uint32)
    empty = np.zeros(leaf.shape, leaf.dtype)
    sharding = _multidevice_sharding(leaf)
    return empty if sharding is None else with_sharding(empty, sharding)


def like_leaf(value: Array, leaf: Any, impl: str) -> object:
    """An array that was read, converted to the type and sharding of the leaf that it replaces;
    random keys are stored as numbers and the name of their generator.
    """
    if isinstance(leaf, np.generic):
        return value[()]
    sharding = _multidevice_sharding(leaf)
    if isinstance(leaf, np.ndarray) or (sharding is not None and not is_key(leaf)):
        return value
    if is_key(leaf):
        key = jax.random.wrap_key_data(jnp.asarray(value), impl=impl)
        return key if sharding is None else with_sharding(key, sharding)
    committed = isinstance(leaf, jax.Array) and leaf.committed
    return device_put(value, leaf.sharding) if committed else jnp.asarray(value)
