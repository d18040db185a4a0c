"""What is opened while a program is traced: files, folders, sockets, other processes. What comes of
it is in no key.

Python reports it by audit events, whoever asks and under whatever name: `open`, `np.load`,
`eqx.tree_deserialise_leaves`. Libraries in C that open files past Python report nothing; none of
those whose code may run does so. An audit hook can never be removed, so there is one, from the
first trace that is watched on. While none is, it looks at one dict.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from .unsure import Unsure

Tell = Callable[[str, tuple[Any, ...], types.FrameType], None]
_OUTSIDE = frozenset(
    (
        "open",
        "os",
        "subprocess",
        "socket",
        "sqlite3",
        "mmap",
        "urllib",
        "http",
        "ftplib",
        "imaplib",
        "nntplib",
        "poplib",
        "smtplib",
        "telnetlib",
        "glob",
        "shutil",
        "tempfile",
        "pathlib",
        "fcntl",
        "webbrowser",
        "winreg",
        "msvcrt",
        "syslog",
        "resource",
    )
)
"""First parts of the names of events; those of others say what Python does inside of the
process.
"""
_TRIAL = "jitney.is_heard"
_told: dict[int, Tell] = {}  # by thread
_heard: set[str] = set()
_lock = threading.Lock()


def _hook(event: str, about: tuple[Any, ...]) -> None:
    if not _told:
        if event == _TRIAL:
            _heard.add(event)
        return
    tell = _told.get(threading.get_ident())
    if tell is not None and (event == "ctypes.dlopen" or event.partition(".")[0] in _OUTSIDE):
        tell(event, about, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]


@contextmanager
def told_of_opening(tell: Tell) -> Generator[None]:
    """Tell of each thing that this thread opens: the event, what it is about, and the frame that
    does it.

    Raises:
        Unsure: Another hook refuses this one.
    """
    _install()
    thread = threading.get_ident()
    before = _told.get(thread)
    _told[thread] = tell
    try:
        yield
    finally:
        if before is None:
            del _told[thread]
        else:
            _told[thread] = before


def _install() -> None:
    with _lock:
        if _TRIAL in _heard:
            return
        sys.addaudithook(_hook)
        sys.audit(_TRIAL)
        if _TRIAL not in _heard:
            raise Unsure(
                "an audit hook of this process refuses another one, so nobody sees which files are"
                " read"
            )


def described(event: str, about: tuple[Any, ...]) -> str:
    """Words for what was opened."""
    if event == "open":
        path = about[0] if about else ""
        named = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
        return f"opens the file {os.path.basename(named)!r}" if named else "opens a file"  # noqa: PTH119 - of bytes too
    return f"asks for what is outside of the process (`{event}`)"
