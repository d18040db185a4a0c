"""Pickles of programs whose function is defined in `__main__`: in a script or in a notebook.

Any other program is pickled by its name, as a function is. A worker process has another `__main__`,
so picklers that are made for workers copy the code of its functions. `Program.__reduce__` is not
told which pickler calls it, and those that copy do so for functions only. A program of `__main__`
is therefore pickled as a function, its sender, which returns what it is made of:

    by name     `__main__.f._sender` is the sender itself, found as any attribute is
    by copying  the code of the sender, and the user's function in its closure

A worker gets a copy with each task. It has one program for all copies of equal content, or each
task would trace again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from .._signature.options import Options

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
