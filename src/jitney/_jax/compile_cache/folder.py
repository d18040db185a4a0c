"""Whether a folder may hold compiled programs: only its user can have put there what lies in it.

Entries are native code: whoever can write them runs code as this user. So it counts who can write
the folder, who can write one above it (and could put another in its place), and whose the files are
that lie there already. Where others could write once, nothing of it is trusted afterwards, whatever
its mode is now: the advice is a new folder, never a `chmod`.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .entries import NAME, sweep
from .limit import complete

_LEAST_FREE: Final = 64 * 2**20
_PROBE: Final = 64 * 2**10
_MOST_LINKS: Final = 40  # as Linux has it
ANOTHER: Final = "set JITNEY_CACHE_DIR to a writable folder of your own."
_NEW: Final = (
    "set JITNEY_CACHE_DIR to a new folder, below one that only you can write; what lies here may be"
    " somebody else's."
)


@dataclass(frozen=True)
class Refusal:
    """Why a folder is not used, and what to do."""

    what: str
    fix: str


def prepare(base: Path) -> Refusal | None:
    """Make `base` and the folder for compiled programs inside it, or say why they cannot be trusted
    or used.
    """
    if not base.is_absolute():
        return Refusal(
            "is not an absolute local path",
            "set HOME, or JITNEY_CACHE_DIR to a local folder of your own.",
        )
    if shown(base) != str(base):
        return Refusal(
            "is not UTF-8, which XLA asks of the path of its files",
            "set JITNEY_CACHE_DIR to a folder named in UTF-8.",
        )
    try:
        for folder in (base, base / NAME):
            refusal = _exposed(folder)
            if refusal is None:
                _make(folder.parent)
                folder.mkdir(mode=0o700, exist_ok=True)
                refusal = _untrusted(folder)
            if refusal is not None:
                return refusal
        others = sweep(base / NAME)
        if others:
            return Refusal(f"holds files of another user (id {max(others)})", _NEW)
        return _cramped(base / NAME)
    except OSError as error:
        return Refusal(f"cannot be used ({error.strerror or error})", ANOTHER)


def limited_by_jax(base: Path) -> Refusal | None:
    """What JAX needs to keep a size limit of the user's."""
    if importlib.util.find_spec("filelock") is None:
        return Refusal(
            "has a size limit from `jax_compilation_cache_max_size`, which needs filelock",
            "install filelock, or set that to -1.",
        )
    try:
        complete(base / NAME)
    except OSError as error:
        return Refusal(f"cannot be used ({error.strerror or error})", ANOTHER)
    return None


def shown(path: Path) -> str:
    """A path as text that can be printed."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _make(folder: Path) -> None:
    """With the folders above it, private as XDG has it for its own: a loose umask would leave them
    to others.
    """
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _untrusted(folder: Path) -> Refusal | None:
    # no owner or mode bits to look at; the profile folder is private there
    if sys.platform == "win32":
        return None
    status = folder.stat()  # of what a link leads to
    others = {status.st_uid, folder.lstat().st_uid} - {os.geteuid()}
    if others:
        return Refusal(f"belongs to another user (id {max(others)})", _NEW)
    return Refusal("can be written by other users", _NEW) if _others_write(status) else None


def _exposed(base: Path) -> Refusal | None:
    """Who can write a folder above can put another one in the place of `base`, unless its sticky
    bit leaves that to the owner of each.
    """
    if sys.platform == "win32":
        return None
    trusted = {0, os.geteuid()}
    for passed in _passed(base):
        try:
            status = passed.lstat()
        except FileNotFoundError:
            return None  # it is made below what was looked at
        if status.st_uid not in trusted:
            return Refusal(
                f"is reached through {passed}, which belongs to another user (id {status.st_uid})",
                _NEW,
            )
        if (
            stat.S_ISDIR(status.st_mode)
            and not status.st_mode & stat.S_ISVTX
            and _others_write(status)
        ):
            return Refusal(f"lies below {passed}, which other users can write", _NEW)
    return None


def _passed(path: Path) -> Generator[Path]:
    """The folders and links on the way to a path, each link followed step by step."""
    at, rest, links = Path(path.anchor), list(reversed(path.parts[1:])), 0
    while rest:
        yield at
        step = at.parent if rest[-1] == ".." else at / rest[-1]
        rest.pop()
        if not step.is_symlink():
            at = step
            continue
        yield step
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = step.readlink()
        at = Path(target.anchor) if target.is_absolute() else at
        rest.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _alone_in(status.st_gid)


def _alone_in(group: int) -> bool:
    """Whether a group is the user's private one, as many systems give everybody (with a umask that
    lets the group write), or root's.
    """
    if sys.platform == "win32":
        return True
    import grp
    import pwd

    try:
        members, user = grp.getgrgid(group), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return members.gr_name in (user, "root") and set(members.gr_mem) <= {user, "root"}


def _cramped(folder: Path) -> Refusal | None:
    """Write a little and look at the free space; what fails here raises OSError."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE))
        probe.flush()
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        return Refusal(
            f"is on a full disk ({free >> 20} MiB free)", f"free some space, or {ANOTHER}"
        )
    return None
