"""Pickles of programs: by name, as a function is pickled; one of `__main__` by what it is made of,
and a bound one by its function, its options and its arguments.

A worker process has another `__main__`, so picklers that are made for workers copy the code of its
functions. `Program.__reduce__` is not told which pickler calls it, and those that copy do so for
functions only. A program of `__main__` is therefore pickled as a function, its sender, which
returns what it is made of:

    by name     `__main__.f._sender` is the sender itself, found as any attribute is
    by copying  the code of the sender, and the user's function in its closure

A worker gets a copy with each task. It has one program for all copies of equal content, or each
task would trace again.
"""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakValueDictionary

from .._program.registry import REGISTRY
from .._signature.options import Options
from .calling import CallableProgram

if TYPE_CHECKING:
    from .bound import Defaults

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_Pickled = TypeVar("_Pickled", bound="PickledProgram[..., object]")

Parts = tuple[Callable[..., object], Options, object]
"""The user's function, the options, and the usual arguments of its derivatives."""
Sender = Callable[[], Parts]
Sent = Callable[..., object]
"""A program."""
SENDER: Final = "_sender"
"""Attribute of a program that is its sender."""
# Received programs that are kept.
_MOST = 256


class Sending:
    """Identity of a program of `__main__` while it is pickled: a random name, and its sender."""

    def __init__(self, program: Sent, name: str, parts: Parts):
        # Picklers copy it, so it uses no global name.
        def sender() -> Parts:
            return parts

        sender.__module__ = "__main__"
        sender.__name__ = SENDER
        sender.__qualname__ = f"{name}.{SENDER}"
        self.sender: Sender = sender
        self.token = uuid.uuid4().hex
        _SENT[self.token] = program


class _Received:
    """Programs that other processes have sent, by their content."""

    def __init__(self) -> None:
        self.by_digest: dict[str, Sent] = {}
        self.lock = threading.Lock()


_SENT: WeakValueDictionary[str, Sent] = WeakValueDictionary()
_RECEIVED = _Received()


def digest_of(parts: Parts) -> str | None:
    """Digest of a program and all that its function can read; None if something has no reliable
    digest, so that each copy is a program of its own.
    """
    # The only part of a call's way that needs the content of a function, in a process that sends.
    from .._record.unsure import NotDeterministic
    from .._record.values import ContentHasher

    walk = ContentHasher()
    try:
        for part in parts:
            walk.add(part)
        return walk.digest()
    except NotDeterministic:
        return None


def known_program(token: str, digest: str | None) -> Sent | None:
    """Return the program that was sent from this process, or one of the same content that was
    received before; else None.
    """
    own = _SENT.get(token)
    return own if own is not None or digest is None else _RECEIVED.by_digest.get(digest)


def remember(program: Sent, digest: str | None) -> None:
    """Keep a received program for copies of the same content; of many, the latest."""
    if digest is None:
        return
    with _RECEIVED.lock:
        _RECEIVED.by_digest[digest] = program
        while len(_RECEIVED.by_digest) > _MOST:
            del _RECEIVED.by_digest[next(iter(_RECEIVED.by_digest))]


class PickledProgram(CallableProgram[P, R]):
    """A program that can be pickled."""

    # Set once it is pickled, if it is a program of `__main__`.
    _sending: Sending | None = None

    def _with(self, **changed: object) -> Self:
        same = super()._with(**changed)
        same._sending = None
        return same

    def __reduce__(self) -> str | tuple[object, ...]:
        # As a function is pickled: by its name, which must lead to this very program.
        if self._args or self._kwargs or not _found_by_name(self):
            bound = (self._args, self._kwargs, self._defaults)
            return _restore, (type(self), self._fn, self._core.options, *bound)
        if self.__dict__["__module__"] != "__main__":
            return self.__dict__["__qualname__"]
        sending = self._sending_from_main()
        digest = digest_of(self._parts)
        return _receive, (type(self), sending.token, digest), (sending.sender, digest)

    def __setstate__(self, state: tuple[Sender, str | None]) -> None:
        # A program that is known here already stays as it is.
        if "_core" in vars(self):
            return
        sender, digest = state
        fn, options, defaults = sender()
        core = REGISTRY.core(fn, options)
        type(self).__init__(
            self, core, cast("Callable[P, R]", fn), defaults=cast("Defaults", defaults)
        )
        remember(self, digest)

    @property
    def _parts(self) -> Parts:
        return self._fn, self._core.options, self._defaults

    def _sending_from_main(self) -> Sending:
        if self._sending is None:
            self._sending = Sending(self, self.__dict__["__qualname__"], self._parts)
        return self._sending

    @property
    def _sender(self) -> Sender:
        """The function that pickle finds by its name, for a program of `__main__`."""
        return self._sending_from_main().sender


def _found_by_name(program: object) -> bool:
    names = vars(program)
    reached: object = sys.modules.get(names["__module__"] or "")
    for part in names["__qualname__"].split("."):
        reached = getattr(reached, part, None)
    return reached is program


def _restore(
    cls: type[_Pickled],
    fn: Callable[..., object],
    options: Options,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    defaults: Defaults,
) -> _Pickled:
    return cls(REGISTRY.core(fn, options), fn, args, kwargs, defaults=defaults)


def _receive(cls: type[_Pickled], token: str, digest: str | None) -> _Pickled:
    """Return a known program, or one that its state is yet to fill: functions of `__main__` may
    refer to each other, so a program is an object before its function is.
    """
    known = known_program(token, digest)
    return cls.__new__(cls) if known is None else cast("_Pickled", known)
