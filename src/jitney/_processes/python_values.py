"""Python numbers, texts and flags in a checkpoint: rows of text that preserve every bit.

Orbax writes the arrays of a checkpoint. A counter or a learning rate is a part of a run as well;
code is not, and comes from the program that restores. `Checkpoints` refuses all other leaves, since
they would come back in their initial state.

    ("opt.step", 1200)  <->  ("opt.step", "int", "0x4b0")
"""

from __future__ import annotations

import struct
import types
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._owners import owner_of_class

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
