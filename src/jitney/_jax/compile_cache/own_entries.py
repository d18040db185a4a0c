"""jitney's own entries in the folder of compiled programs: written atomically, and read only if
this user wrote them.

They have the name suffix, mode and checksum of JAX's entries, so that code which lists, trims,
sweeps or checks those handles these too. JAX never looks up these names.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from ..._host.atomic_files import replace_file
from .entries import CODEC, ENTRY, UNFINISHED


def path_of(folder: Path, name: str) -> Path:
    """Return the path of an entry."""
    return folder / f"{name}{ENTRY}"


def read(entry: Path) -> bytes | None:
    """Return the content of an entry, or None if it is missing or cannot be trusted. A damaged
    entry of this user is deleted.
    """
    try:
        # Check owner and mode on the open file, not on the path, which could be replaced in
        # between.
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
    """Write an entry that only its user can access, atomically. Return False if that fails, as on a
    full or read-only disk.
    """
    try:
        replace_file(entry, CODEC.compress(content), private=True, marks=("-", UNFINISHED))
    except OSError:
        return False
    return True


def delete_unfinished(entry: Path) -> None:
    """Delete what processes that were killed have left of an entry. If another process writes it
    just now, that one's `write` returns False.
    """
    for unfinished in entry.parent.glob(f"{entry.name}-*{UNFINISHED}"):
        delete(unfinished)


def delete(entry: Path) -> None:
    """Delete an entry."""
    with suppress(OSError):
        entry.unlink(missing_ok=True)


def _is_own(status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
