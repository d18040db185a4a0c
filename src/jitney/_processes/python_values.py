"""Numbers, texts and flags of Python in a checkpoint: as text that keeps every bit, with a
checksum.

It stands beside the checkpoints, whose arrays orbax writes. A counter or a learning rate is as much
a part of a run as an array is; code is not, and comes from the program that restores. All else is
refused by `Checkpoints`, since it would come back as it began.
"""

from __future__ import annotations

import struct
import types
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._jax.trees import is_a, type_of
from .._owners import owner_of_class

Row = tuple[str, str, str]  # path, kind, text


def _bits(*numbers: float) -> str:
    return struct.pack(f"<{len(numbers)}d", *numbers).hex()


def _doubles(text: str) -> tuple[float, ...]:
    return struct.unpack(f"<{len(text) // 16}d", bytes.fromhex(text))


# Of exactly these types: a member of an `IntEnum` is an int, and would come back as a plain one.
_WRITE: dict[type, Callable[[Any], str]] = {
    bool: str,
    int: hex,  # decimal digits are limited by Python
    float: _bits,  # with the sign of a NaN
    complex: lambda value: _bits(value.real, value.imag),
    str: str,
    bytes: bytes.hex,
}
_READ: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: {"True": True, "False": False}[text],
    "int": lambda text: int(text, 16),
    "float": lambda text: _doubles(text)[0],
    "complex": lambda text: complex(*_doubles(text)),
    "str": str,
    "bytes": bytes.fromhex,
}


def is_value(leaf: Any) -> bool:
    """Whether a leaf is saved as text."""
    return type_of(leaf) in _WRITE


def is_code(leaf: Any) -> bool:
    """Whether a leaf is what a program does, not what it has reached: functions, classes, dtypes.

    An object of the user's that can be called and has attributes may be anything, such as a reader
    that counts.
    """
    if is_a(leaf, (type, np.dtype, types.ModuleType)):
        return True
    return callable(leaf) and not (
        owner_of_class(type_of(leaf)) == "user" and bool(getattr(leaf, "__dict__", None))
    )


def written(values: Sequence[tuple[str, Any]]) -> list[Row]:
    """Paths and values as rows of text."""
    return [
        (path, type_of(value).__name__, _WRITE[type_of(value)](value)) for path, value in values
    ]


def read(rows: Sequence[Row]) -> list[Any]:
    """The values, to the bit."""
    return [_READ[kind](text) for _, kind, text in rows]


def checksum_of(rows: Sequence[Row]) -> int:
    """Of all of the text."""
    return zlib.crc32(repr(rows).encode("ascii", "backslashreplace"))
