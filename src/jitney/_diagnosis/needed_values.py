"""Recognition of errors that a traced value was needed as a number, by JAX's classes and words.

JAX has four exceptions for it. If a size, a slice or a key of a dict is computed from a traced
value, it raises Python's own TypeError, IndexError or ValueError instead, and only the words
distinguish these from errors of the user. Tried on jax 0.10.2 and 0.12.0.1, NumPy 2.

`need_of` returns the kind of need and the arguments that the value depends on; `tracer_errors.py`
writes the message for the user.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import jax
import numpy as np
from jax.core import Tracer

from .._errors import JitneyError
from .._jax.trees import issubdtype
from .._owners import owner_of

Kind = Literal["value", "shape", "slice", "mask", "size", "key"]
"""Use of the value: a decision or a number, a shape, the end of a slice, the rows that a mask
takes, a count of results, or a look-up by value (the key of a dict, a static argument of JAX).
"""
CAUGHT = (TypeError, IndexError, ValueError)
"""Exception classes of such errors; `need_of` decides whether an instance is one."""

_ERRORS = (
    # Includes its subclass `TracerBoolConversionError`.
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
# `repr` of a traced value, such as `JitTracer(float32[3])`; no class of a user prints its dtype so.
_TRACER = r"\b\w+Tracer\((?:~?\w+\[|aval=|primal=)"
_WORDS: tuple[tuple[type[Exception], str, Kind], ...] = (
    (TypeError, rf"Shapes must be 1D sequences of concrete values[^\n]*{_TRACER}", "shape"),
    (TypeError, rf"expected a sequence of integers or a single integer, got '?{_TRACER}", "shape"),
    # Words of JAX 0.10.
    (IndexError, rf"Slice entries must be static integers\. Got slice\([^\n]*{_TRACER}", "slice"),
    # Words of JAX 0.12.
    (
        IndexError,
        rf"Array slice indices must have static start/stop/step [^\n]*Got slice\([^\n]*{_TRACER}",
        "slice",
    ),
    (
        TypeError,
        (
            r"As of JAX v0\.7, parameters to jaxpr equations must have __hash__[^\n]*not hashable:"
            rf" [^\n]*{_TRACER}"
        ),
        "value",
    ),
    (ValueError, rf"Non-hashable static arguments are not supported\.[^\n]*{_TRACER}", "key"),
)
# Words of Python, which name the class only.
_NAMED = re.compile(
    r"unhashable type: '(\w+)'$|unsupported format string passed to (\w+)\.__format__$"
)
_SIZE = re.compile(r"\bsize argument of jnp\.\w+|for the size argument")
# Words by which JAX names the argument that a value depends on. Without a match, none is named.
_ARGUMENT = re.compile(r"the values? of the arguments? (.*?)\.?$", re.MULTILINE)


@dataclass(frozen=True)
class Need:
    """Traced value that was needed as a number.

    Args:
        kind: Use of the value.
        arguments: Positions, among the arrays of the program, of the arguments that it depends on,
            as far as JAX names them.
    """

    kind: Kind
    arguments: tuple[int, ...]


def need_of(error: BaseException, paths: Sequence[str] = ()) -> Need | None:
    """Return the traced value that an error is about; None for all other errors, which are the
    user's.

    Args:
        error: Any error.
        paths: Names of the program's arrays, for `arguments`.
    """
    kind = _kind(error)
    if kind is None:
        return None
    arguments = _arguments(str(error), paths)
    if not arguments:
        for value in _suspects(error, kind):
            arguments += _origin(value, paths)
    return Need(kind, tuple(dict.fromkeys(arguments)))


def _kind(error: BaseException) -> Kind | None:
    if isinstance(error, JitneyError):
        return None
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return "mask"
    text = str(error)
    if isinstance(error, _ERRORS):
        return "size" if _SIZE.search(text) else "value"

    # Python's own exceptions: the class and JAX's words, or the name of a class of traced values.
    if isinstance(error, CAUGHT):
        for cls, words, kind in _WORDS:
            if type(error) is cls and re.match(words, text):
                return kind
        named = _NAMED.match(text)
        if named and (named[1] or named[2]) in _classes(Tracer):
            return "key" if named[1] else "value"
    return None


def _classes(cls: type) -> set[str]:
    """Names of the classes of traced values."""
    return {cls.__name__}.union(*(_classes(inner) for inner in cls.__subclasses__()))


def _arguments(message: str, paths: Sequence[str]) -> list[int]:
    """Positions of the arguments that a message of JAX names."""
    match = _ARGUMENT.search(message)
    if match is None:
        return []
    # Names that are used if two arrays have the same path.
    numbered = [f"arrays[{number}]" for number in range(len(paths))]
    return [
        i
        for i, names in enumerate(zip(paths, numbered, strict=True))
        if any(_stands_in(match[1], name) for name in names)
    ]


def _stands_in(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.\]'\"]){re.escape(name)}(?![\w.\['\"])", text) is not None


def _suspects(error: BaseException, kind: Kind) -> list[object]:
    """Traced values that are at fault if the message names none."""
    # The values that the user's line passed to JAX; else the only scalar among the local variables
    # of the user's function, if there is only one.
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    innermost = max(
        (i for i, frame in enumerate(frames) if owner_of(frame) == "user"), default=len(frames)
    )
    for frame in frames[innermost + 1 :]:
        values = _frame_tracers(frame, kind)
        if values:
            return values
    if innermost == len(frames):
        return []
    own = _frame_tracers(frames[innermost], "mask" if kind == "mask" else "value")
    return own if len(own) == 1 else []


def _frame_tracers(frame: FrameType, kind: Kind) -> list[object]:
    values: list[Any] = []
    for name, value in frame.f_locals.items():
        if name != "self":
            values += _tracers(value, inside=kind != "slice")
    if kind == "mask":
        return [x for x in values if issubdtype(x.dtype, np.bool_)]
    return [x for x in values if x.ndim == 0]


def _tracers(value: Any, *, inside: bool) -> Iterator[Any]:
    """Traced values in an index or an argument; with `inside=False`, only those within a slice."""
    if isinstance(value, Tracer):
        if inside:
            yield value
    elif isinstance(value, slice):
        for part in (value.start, value.stop, value.step):
            yield from _tracers(part, inside=True)
    elif type(value) in (tuple, list):
        for part in value:
            yield from _tracers(part, inside=inside)


def _origin(value: object, paths: Sequence[str]) -> list[int]:
    """Positions of the arguments that a traced value depends on."""
    # JAX names them only in the error that it raises for a conversion to NumPy.
    try:
        np.asarray(value)
    except jax.errors.TracerArrayConversionError as error:
        return _arguments(str(error), paths)
    return []
