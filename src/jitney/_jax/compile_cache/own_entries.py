"""What jitney itself keeps among the compiled programs: written whole or not at all, and read only
as this user wrote it.

Such a file looks as an entry of JAX's does, name, mode and checksum, so that what lists, trims,
sweeps and checks those does so with these. JAX asks for entries by names of its own, and never for
one of these.
"""

from __future__ import annotations

import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

from .entries import CODEC, ENTRY, UNFINISHED


def path_of(folder: Path, name: str) -> Path:
    """Where an entry of this name lies."""
    return folder / f"{name}{ENTRY}"


def read(entry: Path) -> bytes | None:
    """What was written; None where nothing is, or what cannot be trusted, which is deleted if it is
    this user's.
    """
    try:
        opened = os.open(entry, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(file.fileno())
        if not _is_own(status):
            return None
        try:
            return CODEC.unpacked(file.read())
        except (*CODEC.errors, OSError):
            delete(entry)
            return None


def write(entry: Path, content: bytes) -> bool:
    """Put an entry there, for its user only; whether it worked. A disk that is full or read-only
    keeps nothing.
    """
    unfinished = entry.with_name(f"{entry.name}-{os.getpid()}-{threading.get_ident()}{UNFINISHED}")
    try:
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
        ) as file:
            file.write(CODEC.made(content))
        unfinished.replace(entry)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return False
    return True


def delete(entry: Path) -> None:
    """Take an entry away."""
    with suppress(OSError):
        entry.unlink(missing_ok=True)


def _is_own(status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
