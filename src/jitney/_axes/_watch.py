"""Find code that takes a decision from a size while the size is a symbol.

Ordering a symbolic size, looping over it or converting it fails by itself. Comparing it for equality, testing its truth, hashing it
and printing it do not: JAX answers for a size that equals nothing but itself. Where the answer would depend on the size, the code must
not be padded. So while a function is traced these questions are watched, and the first from outside JAX that has no single answer stops
the trace.

The class of symbolic dimensions has no public name or hook. This file reaches it by the type of a public value, changes
five of its methods for the time of one trace, and puts them back; one lock for all threads. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np

from ._extent import is_symbolic, symbolic_class
from ._jax import InconclusiveDimensionOperation
from ._refusal import Refused

_LOCK = threading.RLock()
_JAX = str(Path(jax.__file__).parent)
_JITNEY = str(Path(__file__).parent.parent)
LIBRARIES = (_JAX, _JITNEY)
_QUESTIONS = {
    "__eq__": "compares the size {0} with {1}",
    "__ne__": "compares the size {0} with {1}",
    "__bool__": "tests whether the size {0} is zero",
    "__hash__": "looks the size {0} up in a set or a dict",
    "__str__": "turns the size {0} into text",
    "__repr__": "turns the size {0} into text",
    "__format__": "turns the size {0} into text",
}


@contextmanager
def watched() -> Generator[list[Refused]]:
    """Raise `Refused` where code outside JAX decides by a symbolic size, and keep it in the list, should that code catch it.

    One trace at a time; other threads are not watched.
    """
    found: list[Refused] = []
    kind, watching = symbolic_class(), threading.get_ident()
    asking = False

    def hook(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def asked(self: Any, *others: Any) -> Any:
            nonlocal asking
            if not asking and threading.get_ident() == watching:
                asking = True
                try:
                    refusal = _refusal(name, self, others)
                finally:
                    asking = False
                if refusal is not None:
                    found.append(refusal)
                    raise refusal
            return plain(self, *others)

        return asked

    with _LOCK:
        before = {name: kind.__dict__.get(name) for name in _QUESTIONS}
        plain = {name: getattr(kind, name, _is_true) for name in _QUESTIONS}
        for name in _QUESTIONS:
            setattr(kind, name, hook(name, plain[name]))
        try:
            yield found
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(kind, name)
                else:
                    setattr(kind, name, method)


def _is_true(size: Any) -> bool:
    """What Python says of an object that does not say it itself."""
    return True


def _refusal(name: str, size: Any, others: tuple[Any, ...]) -> Refused | None:
    frame = _asker()
    if frame is None or _may(name, frame) or _decided(name, size, *others):
        return None
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})"
    return Refused(place, _QUESTIONS[name].format(str(size), *map(str, others)))


def _asker() -> FrameType | None:
    """The frame that asked. Generated code (`<string>`) asks for whoever called it."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (frame.f_code.co_filename.startswith("<") or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return frame


def _may(name: str, frame: FrameType) -> bool:
    """JAX asks in order to trace, and jitney in order to find a program; jitney's contracts compare sizes for the user."""
    return frame.f_code.co_filename.startswith(_JAX if name in ("__eq__", "__ne__", "__bool__") else LIBRARIES)


def _decided(name: str, size: Any, *others: Any) -> bool:
    """Whether the question has one answer for every size that the symbols can take."""
    if name in ("__eq__", "__ne__"):
        (other,) = others
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        return not (is_symbolic(other) or isinstance(other, (int, np.integer))) or _never_equal(size - other)
    return name == "__bool__" and _never_equal(size)


def _never_equal(difference: Any) -> bool:
    """Whether a difference is a constant, or is known not to be zero."""
    return not is_symbolic(difference) or _known(lambda: difference >= 1) or _known(lambda: difference <= -1)


def _known(question: Callable[[], bool]) -> bool:
    try:
        return bool(question())
    except InconclusiveDimensionOperation:
        return False
