"""Every key of a configuration, once: its section, its default, what it may be, and the words of
the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from ..._stream.chunk_axis import ChunkOf
from ..._text.json import Data

Every = int | str | None
# Sections whose keys are parameters of the function.
FREE = ("data", "values")


@dataclass(frozen=True)
class ConfigKey:
    """Key of a section.

    Args:
        section: Its section.
        name: Its name.
        default: Value if it is not written; `...` if it must be.
        reads: Returns the value, or raises `ValueError`.
        says: What it may be, behind "It is".
        shown: Line of the template, without the name.
        why: Comment of the template.
    """

    section: str
    name: str
    default: object
    reads: Callable[[object], object]
    says: str
    shown: str
    why: str


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def function(value: object) -> str:
    place, colon, name = text(value).rpartition(":")
    if not (place and colon and name):
        raise ValueError
    return text(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _whole(least: int) -> Callable[[object], int]:
    def reads(value: object) -> int:
        # `type` and not `isinstance`: booleans of TOML are ints in Python.
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return reads


def _size(value: object) -> int | Literal["auto"]:
    return "auto" if value == "auto" else _whole(1)(value)


def _chunk(value: object) -> ChunkOf:
    if not isinstance(value, dict):
        return _size(value)
    sizes = cast("Data", value)
    if len(sizes) != 1:
        raise ValueError
    return {axis: _size(size) for axis, size in sizes.items()}


def _every(value: object) -> Every:
    if isinstance(value, str):
        if not re.fullmatch(r"\d+(\.\d+)?s", value) or float(value[:-1]) <= 0:
            raise ValueError
        return value
    return _whole(1)(value)


def _output(value: object) -> str:
    if not text(value).endswith(".npz"):
        raise ValueError
    return text(value)


_ON: object = True
KEYS = (
    ConfigKey(
        "stream",
        "function",
        ...,
        function,
        "'module:function' or 'script.py:function', a function under @jitney.optimize",
        '"script.py:function"',
        "or package.module:function; it is under @jitney.optimize",
    ),
    ConfigKey(
        "stream",
        "chunk",
        None,
        _chunk,
        "a size, 'auto', or one axis with its size, as { n = 65536 }",
        "{ n = 65536 }",
        "elements that are read at a time, by axis; or a size, or 'auto'",
    ),
    ConfigKey(
        "stream",
        "retries",
        None,
        _whole(0),
        "a whole number, 0 or more",
        "2",
        "a chunk whose reading fails is read again so often",
    ),
    ConfigKey("stream", "progress", _ON, _flag, "true or false", "true", "a bar on stderr"),
    ConfigKey(
        "checkpoint",
        "folder",
        None,
        text,
        "a folder in quotes",
        '"checkpoint"',
        "what an interrupted run goes on from; without it nothing is stored",
    ),
    ConfigKey(
        "checkpoint",
        "every",
        None,
        _every,
        "seconds in quotes, as '30s', or a number of chunks",
        '"30s"',
        "or a number of chunks",
    ),
    ConfigKey(
        "checkpoint",
        "resume",
        _ON,
        _flag,
        "true or false",
        "true",
        "false begins anew, and removes what was stored",
    ),
    ConfigKey(
        "output",
        "file",
        ...,
        _output,
        "a file in quotes that ends in .npz",
        '"result.npz"',
        "each array of the result, by its place in it",
    ),
)
SECTIONS = ("stream", *FREE, "checkpoint", "output")
_DATA = """\
x = "x.npy"              # each parameter of the function that is read in parts: .npy or .npz,
# y = ["1.npy", "2.npy"]   # several files, one behind the other,
# z = { file = "run.h5", dataset = "entry/z" }   # .h5, .hdf5, .zarr; a column of .arrow,
# w = { file = "w.bin", open = "script.py:opener" }   # or what a function of the path returns
"""
_VALUES = """\
# order = 3                # each other parameter: numbers, texts, lists
"""


def template() -> str:
    """Return a configuration with every key and what it is."""
    parts = ["# python -m jitney stream config.toml; paths begin at the folder of this file\n"]
    for section in SECTIONS:
        parts.append(f"[{section}]\n")
        if section in FREE:
            parts.append(_DATA if section == "data" else _VALUES)
        for key in KEYS:
            if key.section == section:
                line = f"{key.name} = {key.shown}"
                parts.append(f"{line:<24} # {key.why}\n")
        parts.append("\n")
    return "".join(parts).removesuffix("\n")
