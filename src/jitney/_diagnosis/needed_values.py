"""Whether an error says that a traced value was needed as a number: the one place that knows how
JAX words that.

JAX has four exceptions for it. Where a size, a slice or a key of a dict is made of a traced value,
it raises Python's own TypeError, IndexError or ValueError instead, which only their words tell from
those of the user. Tried on jax 0.10.2 and 0.12.0.1, NumPy 2.

It stands before `tracer_errors.py`, which says it to the user.
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
from .._jax.trees import is_a, issubdtype
from .._owners import owner_of

Kind = Literal["value", "shape", "slice", "mask", "size", "key"]
"""What the value was needed for: a decision or a number, a shape, the end of a slice, the rows that
a mask takes, a count of results, or what is looked up by value: the key of a dict, a static
argument of JAX's.
"""
CAUGHT = (TypeError, IndexError, ValueError)
"""What such an error may be. `need_of` says whether it is one."""

_ERRORS = (
    jax.errors.ConcretizationTypeError,  # and its subclass TracerBoolConversionError
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
# how a traced value prints itself; no class of a user's prints its dtype so
_TRACER = r"\b\w+Tracer\((?:~?\w+\[|aval=|primal=)"
_WORDS: tuple[tuple[type[Exception], str, Kind], ...] = (
    (TypeError, rf"Shapes must be 1D sequences of concrete values[^\n]*{_TRACER}", "shape"),
    (TypeError, rf"expected a sequence of integers or a single integer, got '?{_TRACER}", "shape"),
    # 0.10
    (IndexError, rf"Slice entries must be static integers\. Got slice\([^\n]*{_TRACER}", "slice"),
    # 0.12
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
# by Python, of a class
_NAMED = re.compile(
    r"unhashable type: '(\w+)'$|unsupported format string passed to (\w+)\.__format__$"
)
_SIZE = re.compile(r"\bsize argument of jnp\.\w+|for the size argument")
# How JAX names the argument that a value depends on. Without a match no argument is named.
_ARGUMENT = re.compile(r"the values? of the arguments? (.*?)\.?$", re.MULTILINE)


@dataclass(frozen=True)
class Need:
    """A traced value that was needed as a number.

    Args:
        kind: What for.
        arguments: Which arguments it depends on, by their place among the arrays of the program, as
            far as JAX says.
    """

    kind: Kind
    arguments: tuple[int, ...]


def need_of(error: BaseException, paths: Sequence[str] = ()) -> Need | None:
    """What an error asks of a traced value; None for all other errors, which are the user's own.

    Args:
        error: Any error.
        paths: What the arrays of the program are called, for `arguments`.
    """
    kind = _kind(error)
    if kind is None:
        return None
    return Need(
        kind,
        tuple(
            _arguments(str(error), paths)
            or dict.fromkeys(n for x in _blamed(error, kind) for n in _origin(x, paths))
        ),
    )


def _kind(error: BaseException) -> Kind | None:
    if isinstance(error, JitneyError):
        return None
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return "mask"
    text = str(error)
    if isinstance(error, _ERRORS):
        return "size" if _SIZE.search(text) else "value"
    if is_a(error, CAUGHT):
        for cls, words, kind in _WORDS:
            if type(error) is cls and re.match(words, text):
                return kind
        named = _NAMED.match(text)
        if named and (named[1] or named[2]) in _classes(Tracer):
            return "key" if named[1] else "value"
    return None


def _classes(cls: type) -> set[str]:
    """The names of the classes of traced values."""
    return {cls.__name__}.union(*(_classes(inner) for inner in cls.__subclasses__()))


def _arguments(message: str, paths: Sequence[str]) -> list[int]:
    """The places of the arguments that a message of JAX's blames."""
    match = _ARGUMENT.search(message)
    if match is None:
        return []
    # as they are called where two have one path
    numbered = [f"arrays[{number}]" for number in range(len(paths))]
    return [
        i
        for i, names in enumerate(zip(paths, numbered, strict=True))
        if any(_stands_in(match[1], name) for name in names)
    ]


def _stands_in(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.\]'\"]){re.escape(name)}(?![\w.\['\"])", text) is not None


def _blamed(error: BaseException, kind: Kind) -> list[Any]:
    """The traced values that are at fault, where the message does not say: those that JAX was
    handed on the user's line, or else the one of the user's function that can be.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    innermost = max(
        (i for i, frame in enumerate(frames) if owner_of(frame) == "user"), default=len(frames)
    )
    for frame in frames[innermost + 1 :]:
        found = _handed(frame, kind)
        if found:
            return found
    own = (
        _handed(frames[innermost], "mask" if kind == "mask" else "value")
        if innermost < len(frames)
        else []
    )
    return own if len(own) == 1 else []


def _handed(frame: FrameType, kind: Kind) -> list[Any]:
    values = [
        x
        for name, value in frame.f_locals.items()
        if name != "self"
        for x in _tracers(value, inside=kind != "slice")
    ]
    return [x for x in values if (issubdtype(x.dtype, np.bool_) if kind == "mask" else x.ndim == 0)]


def _tracers(value: Any, *, inside: bool) -> Iterator[Any]:
    """The traced values in an index or an argument; of an index with a slice (not `inside`), those
    in the slice.
    """
    if is_a(value, Tracer):
        if inside:
            yield value
    elif is_a(value, slice):
        for part in (value.start, value.stop, value.step):
            yield from _tracers(part, inside=True)
    elif type(value) in (tuple, list):
        for part in value:
            yield from _tracers(part, inside=inside)


def _origin(value: Any, paths: Sequence[str]) -> list[int]:
    """The arguments that a traced value depends on, as JAX says where its numbers are asked for."""
    try:
        np.asarray(value)
    except jax.errors.TracerArrayConversionError as error:
        return _arguments(str(error), paths)
    return []
