"""Find code that takes a decision from a size while the size is a symbol.

Ordering a symbolic size, looping over it or converting it fails by itself, unless the code catches
that. Comparing it for equality, testing its truth, hashing it and printing it do not: JAX answers
for a size that equals nothing but itself. Where the answer would depend on the size, the code must
not be padded. So while a function is traced these questions are watched, and the first from outside
JAX that has no single answer stops the trace. Whoever asks for its type or for an attribute that it
does not have may go another way with a number: such code is traced at each size, as is code that
may have asked unseen.

The class of symbolic dimensions has no public name or hook. This file reaches it by the type of a
public value, changes some of its methods for the time of one trace, and puts them back; one lock
for all threads. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from ..._jax.trees import is_a
from ..._owners import Owner, owner_of, place_of
from ..dims import is_symbolic, symbolic_class
from ..refusal import Refused
from ..typed_jax import InconclusiveDimensionOperation
from .code_that_ran import scanned
from .mapped_sizes import named_sizes

_LOCK = threading.RLock()
_QUESTIONS = {
    "__eq__": "compares the size {0} with {1}",
    "__ne__": "compares the size {0} with {1}",
    "__bool__": "tests whether the size {0} is zero",
    "__hash__": "looks the size {0} up in a set or a dict",
    "__str__": "turns the size {0} into text",
    "__repr__": "turns the size {0} into text",
    "__format__": "turns the size {0} into text",
}
_FAILING = {  # they raise where there is no single answer
    "__lt__": "compares the size {0} with {1}",
    "__le__": "compares the size {0} with {1}",
    "__gt__": "compares the size {0} with {1}",
    "__ge__": "compares the size {0} with {1}",
    "__int__": "turns the size {0} into a number",
}


@dataclass
class Seen:
    """What code asked of symbolic sizes.

    Args:
        refused: Questions whose answer is not the same at all sizes.
        looks: Questions that have an answer of their own for symbols, such as that of a type: each
            size has to be traced.
    """

    refused: list[Refused] = field(default_factory=list[Refused])
    looks: list[str] = field(default_factory=list[str])


@contextmanager
def watched() -> Generator[Seen]:
    """Raise `Refused` where code outside JAX decides by a symbolic size, and keep it in the list,
    should that code catch it.

    One trace at a time; other threads are not watched.
    """
    seen = Seen()
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
                    seen.refused.append(refusal)
                    raise refusal
            return plain(self, *others)

        return asked

    def trying(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def asked(self: Any, *others: Any) -> Any:
            nonlocal asking
            try:
                return plain(self, *others)
            except (InconclusiveDimensionOperation, TypeError):  # whoever asked may catch it
                frame = None if asking or threading.get_ident() != watching else _asker("stdlib")
                if frame is not None and not _may(name, frame):
                    asking = True
                    seen.refused.append(
                        Refused(
                            place_of(frame), _FAILING[name].format(str(self), *map(str, others))
                        )
                    )
                    asking = False
                raise

        return asked

    def present(self: Any, name: str) -> Any:
        if name == "__class__":  # isinstance, match, singledispatch
            look("the type")
        return object.__getattribute__(self, name)

    def missing(self: Any, name: str) -> Any:
        look(f"the attribute {name!r}")
        raise AttributeError(
            f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    def look(what: str) -> None:
        frame = _asker("numpy", "stdlib")
        if (
            threading.get_ident() == watching
            and frame is not None
            and owner_of(frame) not in (*_OURS, "equinox")
        ):
            seen.looks.append(f"{place_of(frame)} looks at {what} of a size")

    hooks: dict[str, Any] = {name: hook(name, getattr(kind, name, _is_true)) for name in _QUESTIONS}
    hooks |= {name: trying(name, getattr(kind, name)) for name in _FAILING}
    hooks |= {"__getattribute__": present, "__getattr__": missing}
    with _LOCK:
        before = {name: kind.__dict__.get(name) for name in hooks}
        for name, method in hooks.items():
            setattr(kind, name, method)
        try:
            with scanned(seen.looks.append), named_sizes():
                yield seen
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
    # JAX counts sizes with `collections.Counter`, to say what does not fit
    frame = _asker("stdlib")
    if frame is None or _may(name, frame) or _decided(name, size, *others):
        return None
    return Refused(place_of(frame), _QUESTIONS[name].format(str(size), *map(str, others)))


def _asker(*workers: Owner) -> FrameType | None:
    """The frame that asked. Code that a tool wrote (a dataclass's `__eq__`), and those who are
    named, ask for whoever called them.
    """
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (
        frame.f_code.co_filename == __file__ or owner_of(frame) in ("generated", *workers)
    ):
        frame = frame.f_back
    return frame


_OURS = ("jax", "jaxlib", "jitney")


def _may(name: str, frame: FrameType) -> bool:
    """JAX asks in order to trace, and jitney in order to find a program; jitney's contracts compare
    sizes for the user.
    """
    asker = owner_of(frame)
    return asker in ("jax", "jaxlib") or (
        asker == "jitney" and name not in ("__eq__", "__ne__", "__bool__", *_FAILING)
    )


def _decided(name: str, size: Any, *others: Any) -> bool:
    """Whether the question has one answer for every size that the symbols can take."""
    if name in ("__eq__", "__ne__"):
        return _settled(size, others[0])
    return name == "__bool__" and _never_equal(size)


_NO_NUMBERS = (str, bytes, tuple, list, dict, set, frozenset, type, np.dtype)


def _settled(size: Any, other: Any) -> bool:
    """Whether a size is equal to something, or is not, whichever size it is."""
    if other is None or other is Ellipsis or is_a(other, _NO_NUMBERS):
        return True
    if is_symbolic(other):
        return _never_equal(size - other)
    # arrays, fractions, complex numbers, and what nobody knows
    if not is_a(other, (int, float, np.integer, np.floating)):
        return False
    return not float(other).is_integer() or _never_equal(size - int(other))


def _never_equal(difference: Any) -> bool:
    """Whether a difference is a constant, or is known not to be zero."""
    return (
        not is_symbolic(difference)
        or _known(lambda: difference >= 1)
        or _known(lambda: difference <= -1)
    )


def _known(question: Callable[[], bool]) -> bool:
    try:
        return bool(question())
    except InconclusiveDimensionOperation:
        return False
