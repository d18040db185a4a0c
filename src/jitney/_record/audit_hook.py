"""Audit hook for files, folders, sockets and processes that a trace opens: their content is in no
key.

Python raises an audit event whatever the name of the function: `open`, `np.load`,
`eqx.tree_deserialise_leaves`. C libraries that open files without Python raise none; the packages
whose code may run do not do so. An audit hook cannot be removed, so there is one, installed by the
first watched trace. Outside of such traces it costs one dict look-up.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager

from .unsure import NotDeterministic

Tell = Callable[[str, tuple[object, ...], types.FrameType], None]
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
"""First parts of the names of events; events with other names concern the inside of the process."""
_TRIAL = "jitney.is_heard"
# active callbacks by thread
_told: dict[int, Tell] = {}
_heard: set[str] = set()
_lock = threading.Lock()


def _hook(event: str, about: tuple[object, ...]) -> None:
    if not _told:
        if event == _TRIAL:
            _heard.add(event)
        return
    # Hooks run in every thread; only the thread that traces has a callback.
    tell = _told.get(threading.get_ident())
    if tell is not None and (event == "ctypes.dlopen" or event.partition(".")[0] in _OUTSIDE):
        tell(event, about, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]


@contextmanager
def report_opens(tell: Tell) -> Generator[None]:
    """Report each thing that this thread opens: event, arguments, and the frame that opens it.

    Raises:
        NotDeterministic: Another audit hook refuses this one.
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
        # An existing hook may veto a new one, and `addaudithook` then fails silently; a trial event
        # shows it.
        sys.audit(_TRIAL)
        if _TRIAL not in _heard:
            raise NotDeterministic(
                "an audit hook of this process refuses another one, so it cannot be seen which"
                " files are read"
            )


def describe_event(event: str, about: tuple[object, ...]) -> str:
    """Describe an event for a message."""
    if event == "open":
        path = about[0] if about else ""
        named = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
        return f"opens the file {os.path.basename(named)!r}" if named else "opens a file"  # noqa: PTH119 - of bytes too
    return f"asks for what is outside of the process (`{event}`)"
