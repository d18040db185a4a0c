"""Detect code that decides by a size while the size is a symbol.

Ordering a symbolic size, looping over it or converting it raises, unless the code catches that.
Equality, truth, hashing and printing do not raise: JAX treats the symbol as equal to itself only.
Where the result would differ between sizes, the function must not be padded. So these operations
are hooked while a function is traced, and the first one from outside of JAX without a single result
for all sizes stops the trace:

    if x.shape[0] == 3: ...     Refused("fit.py:12 (residual)", "compares the size n with 3")
    if x.shape[0] == 0: ...     not refused if n >= 1: False at each size

Code that reads the type of a size, or an attribute that a symbol does not have, may branch
differently on a number. Such code is traced again at each size; so is code that may have looked at
a size unseen (`executed_code.py`).

The class of symbolic dimensions has no public name or hook. It is reached by the type of a public
value, some of its methods are monkeypatched for the time of one trace, and a lock admits one thread
at a time. Tried on jax 0.10.0, 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

import numpy as np

from ..._owners import Owner, owner_of, place_of
from ..dims import Dim, is_symbolic, symbolic_class
from ..refusal import AsksForSize, Refused
from ..typed_jax import InconclusiveDimensionOperation
from .executed_code import observe_code
from .jax_sizes import exact_position_dtypes, named_sizes, patched_sizes

_QUESTIONS = {
    "__eq__": "compares the size {0} with {1}",
    "__ne__": "compares the size {0} with {1}",
    "__bool__": "tests whether the size {0} is zero",
    "__hash__": "looks the size {0} up in a set or a dict",
    "__str__": "turns the size {0} into text",
    "__repr__": "turns the size {0} into text",
    "__format__": "turns the size {0} into text",
}
# JAX raises for these where there is no single result for all sizes.
_FAILING = {
    "__lt__": "compares the size {0} with {1}",
    "__le__": "compares the size {0} with {1}",
    "__gt__": "compares the size {0} with {1}",
    "__ge__": "compares the size {0} with {1}",
    "__int__": "turns the size {0} into a number",
}

# `a < b` and `a >= b` ask for the sign of a - b, the others for that of b - a.
_SIGNED = {"__lt__": 1, "__ge__": 1, "__le__": -1, "__gt__": -1}
# Methods by which JAX takes the least or the largest of two sizes.
_PICKING = ("min", "max", "rmin", "rmax")


@dataclass
class SizeUses:
    """Record of the operations on symbolic sizes during a trace.

    Args:
        refused: Operations whose result is not the same at all sizes.
        looks: Operations with a result that only a symbol has, such as reading its type: each size
            has to be traced.
        undecided: Differences that are negative at some sizes and not at others, where that was
            asked.
        ties: True if the least or the largest of a size and a number was taken, where the size is
            that number.
    """

    refused: list[Refused] = field(default_factory=list[Refused])
    looks: list[str] = field(default_factory=list[str])
    undecided: list[Dim] = field(default_factory=list[Dim])
    ties: bool = False


@contextmanager
def hooked_dims(*, keeps_size: bool = False) -> Generator[SizeUses]:
    """Raise `Refused` where code outside of JAX decides by a symbolic size, and record it, since
    that code may catch the exception.

    Only one trace runs at a time; other threads are not watched.

    Args:
        keeps_size: Whether the least or the largest of a size and an equal number is the size, not
            the number as in JAX.
    """
    seen = SizeUses()
    kind, watching = symbolic_class(), threading.get_ident()
    # Guards against recursion: finding a refusal compares and prints sizes itself.
    asking = False

    def hook(name: str, plain: Callable[..., object]) -> Callable[..., object]:
        def asked(self: Dim, *others: object) -> object:
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

    def trying(name: str, plain: Callable[..., object]) -> Callable[..., object]:
        def asked(self: Dim, *others: object) -> object:
            nonlocal asking
            try:
                return plain(self, *others)
            # Recorded before it is raised on, since the caller may catch it.
            except (InconclusiveDimensionOperation, TypeError):
                if asking or threading.get_ident() != watching:
                    raise
                if name in _SIGNED and (is_symbolic(others[0]) or isinstance(others[0], int)):
                    note(_SIGNED[name] * (self - others[0]))
                frame = _asker("stdlib")
                if frame is not None and not _may(name, frame):
                    asking = True
                    why = _FAILING[name].format(str(self), *map(str, others))
                    seen.refused.append(AsksForSize(place_of(frame), why))
                    asking = False
                raise

        return asked

    def picking(plain: Callable[..., object]) -> Callable[..., object]:
        def asked(self: Dim, other: Dim) -> object:
            picked = plain(self, other)
            if threading.get_ident() != watching:
                return picked
            # One of the two where it is known which is less, and the number where they are equal.
            if picked is not self and picked is not other:
                note(self - other)
                note(other - self)
            elif picked is other and not is_symbolic(other) and is_equal(self, other):
                seen.ties = True
                return self if keeps_size else other
            return picked

        return asked

    def note(difference: Dim) -> None:
        if is_symbolic(difference):
            seen.undecided.append(difference)

    def is_equal(size: Dim, number: Dim) -> bool:
        nonlocal asking
        was, asking = asking, True
        try:
            return _is_provable(lambda: size >= number) and _is_provable(lambda: size <= number)
        finally:
            asking = was

    def present(self: Dim, name: str) -> object:
        # Read by isinstance, match and singledispatch.
        if name == "__class__":
            look("the type")
        return object.__getattribute__(self, name)

    def missing(self: Dim, name: str) -> NoReturn:
        look(f"the attribute {name!r}")
        message = f"{kind.__name__!r} object has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=self)

    def look(what: str) -> None:
        # The search for a refusal looks at types itself.
        if asking:
            return
        frame = _asker("numpy", "stdlib")
        if (
            threading.get_ident() == watching
            and frame is not None
            and owner_of(frame) not in (*_OURS, "equinox")
        ):
            seen.looks.append(f"{place_of(frame)} looks at {what} of a size")

    hooks = {name: hook(name, getattr(kind, name, _is_true)) for name in _QUESTIONS}
    hooks |= {name: trying(name, getattr(kind, name)) for name in _FAILING}
    hooks |= {name: picking(getattr(kind, name)) for name in _PICKING if hasattr(kind, name)}
    hooks |= {"__getattribute__": present, "__getattr__": missing}

    with (
        patched_sizes(hooks),
        observe_code(seen.looks.append),
        named_sizes(),
        exact_position_dtypes(),
    ):
        yield seen


def _is_true(size: object) -> bool:
    """Python's default truth value, for a class without `__bool__`."""
    return True


def _refusal(
    name: str,
    size: Dim,
    others: tuple[object, ...],
) -> Refused | None:
    # "stdlib" is skipped: JAX counts sizes with `collections.Counter` for its error messages.
    frame = _asker("stdlib")
    if frame is None or _may(name, frame) or _is_invariant(name, size, *others):
        return None
    why = _QUESTIONS[name].format(str(size), *map(str, others))
    return AsksForSize(place_of(frame), why)


def _asker(*workers: Owner) -> FrameType | None:
    """The frame that uses the size. Generated code (a dataclass's `__eq__`) and the owners in
    `workers` are skipped: they act for their caller.
    """
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (
        frame.f_code.co_filename == __file__ or owner_of(frame) in ("generated", *workers)
    ):
        frame = frame.f_back
    return frame


_OURS = ("jax", "jaxlib", "jitney")


def _may(name: str, frame: FrameType) -> bool:
    """Return whether a frame may use a size so: JAX traces with it, and jitney looks up programs by
    it. jitney may not compare sizes, since its contracts do that for the user.
    """
    asker = owner_of(frame)
    if asker == "jitney":
        return name not in ("__eq__", "__ne__", "__bool__", *_FAILING)
    return asker in ("jax", "jaxlib")


def _is_invariant(name: str, size: Dim, *others: object) -> bool:
    """Return whether the operation has the same result for all sizes in the ranges."""
    if name in ("__eq__", "__ne__"):
        return _equality_is_invariant(size, others[0])
    return name == "__bool__" and _never_equal(size)


_NO_NUMBERS = (str, bytes, tuple, list, dict, set, frozenset, type, np.dtype)


def _equality_is_invariant(size: Dim, other: object) -> bool:
    """Return whether equality of a size with another value has the same result for all sizes."""
    if other is None or other is Ellipsis or isinstance(other, _NO_NUMBERS):
        return True
    if is_symbolic(other):
        return _never_equal(size - other)
    # Unknown for arrays, fractions, complex numbers, and other classes.
    if not isinstance(other, (int, float, np.integer, np.floating)):
        return False
    return not float(other).is_integer() or _never_equal(size - int(other))


def _never_equal(difference: Dim) -> bool:
    """Return whether a difference is a constant, or never zero in the ranges of its symbols."""
    if not is_symbolic(difference):
        return True
    return _is_provable(lambda: difference >= 1) or _is_provable(lambda: difference <= -1)


def _is_provable(question: Callable[[], bool]) -> bool:
    try:
        return bool(question())
    except InconclusiveDimensionOperation:
        return False
