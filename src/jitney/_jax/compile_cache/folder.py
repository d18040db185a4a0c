"""The folder of compiled programs: who may write into it, and how large it may become.

Entries are native code, so whoever can write them can run code as this user. The checks cover who
can write the folder, who can write a folder above it (and so replace it), and who owns the files in
it. A folder that others could write once is not trusted afterwards, whatever its mode is now: the
advice is a new folder, never a `chmod`.

The least recently used entries are deleted beyond a limit. JAX has a size limit too, but it reads
two files per entry at each write, under one lock: 120 ms per compile with 5000 entries in the
folder, even for `x + 1`. So JAX writes without a limit, which is its default, and jitney checks the
whole folder once per process and again after many programs, at 37 ms for 5000 entries. Between two
checks the folder may exceed its limit.
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

_LEAST_FREE: Final = 64 * 2**20
_PROBE: Final = 64 * 2**10
# the limit of Linux
_MOST_LINKS: Final = 40
ANOTHER: Final = "set JITNEY_CACHE_DIR to a writable folder of your own."
_NEW: Final = (
    "set JITNEY_CACHE_DIR to a new folder, below one that only you can write; what is here may be"
    " somebody else's."
)


@dataclass(frozen=True)
class Refusal:
    """Reason why a folder is not used, and a fix."""

    what: str
    fix: str


def prepare(base: Path) -> Refusal | None:
    """Create `base` and the folder for compiled programs inside it. Return a refusal if they cannot
    be trusted or used.
    """
    if not base.is_absolute():
        return Refusal(
            "is not an absolute local path",
            "set HOME, or JITNEY_CACHE_DIR to a local folder of your own.",
        )
    if printable_path(base) != str(base):
        return Refusal(
            "is not UTF-8, which XLA asks of the path of its files",
            "set JITNEY_CACHE_DIR to a folder named in UTF-8.",
        )

    # If nobody else can write the folders above, a folder that passes `_check_owner` cannot be
    # replaced later.
    try:
        for folder in (base, base / NAME):
            refusal = _check_parents(folder)
            if refusal is None:
                _make(folder.parent)
                folder.mkdir(mode=0o700, exist_ok=True)
                refusal = _check_owner(folder)
            if refusal is not None:
                return refusal
        others = sweep(base / NAME)
        if others:
            return Refusal(f"holds files of another user (id {max(others)})", _NEW)
        return _check_space(base / NAME)
    except OSError as error:
        return Refusal(f"cannot be used ({error.strerror or error})", ANOTHER)


def limited_by_jax(base: Path) -> Refusal | None:
    """Prepare the folder for a size limit that the user set in JAX, or refuse it."""
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


def printable_path(path: Path) -> str:
    """Return a path as printable text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _make(folder: Path) -> None:
    """Create a folder and its parents, private as XDG asks for: a loose umask would let others
    write them.
    """
    if not folder.exists():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _check_owner(folder: Path) -> Refusal | None:
    # Windows has no owner or mode bits, and the profile folder is private.
    if sys.platform == "win32":
        return None
    # If the folder is a link, both the link and its target must be the user's.
    status = folder.stat()
    others = {status.st_uid, folder.lstat().st_uid} - {os.geteuid()}
    if others:
        return Refusal(f"belongs to another user (id {max(others)})", _NEW)
    return Refusal("can be written by other users", _NEW) if _others_write(status) else None


def _check_parents(base: Path) -> Refusal | None:
    """Refuse a path if others can replace a part of it.

    Whoever can write a folder above can replace `base`, unless the sticky bit reserves each entry
    for its owner.
    """
    if sys.platform == "win32":
        return None
    trusted = {0, os.geteuid()}
    for passed in _path_steps(base):
        try:
            status = passed.lstat()
        except FileNotFoundError:
            # The rest does not exist yet; it is created below folders that were checked.
            return None
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


def _path_steps(path: Path) -> Generator[Path]:
    """Yield the folders and links on the way to a path, following each link one step at a time."""
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

        # A relative target continues at the folder of the link.
        target = step.readlink()
        at = Path(target.anchor) if target.is_absolute() else at
        rest.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _alone_in(status.st_gid)


def _alone_in(group: int) -> bool:
    """Return whether a group is root's or the user's private one, which many systems combine with a
    umask that lets the group write.
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


def _check_space(folder: Path) -> Refusal | None:
    """Refuse a folder on a full disk, after a trial write. Other failures raise OSError."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE))
        probe.flush()
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        return Refusal(
            f"is on a full disk ({free >> 20} MiB free)", f"free some space, or {ANOTHER}"
        )
    return None


# suffixes of JAX, the same in 0.10.0 and 0.12.0.1
_ENTRY, _STAMP = "-cache", "-atime"


def trim(folder: Path, limit: int) -> None:
    """Delete entries until they take `limit` bytes or less, least recently used first.

    The last use is the later of access time and modification time, so a file system without access
    times deletes the oldest entries first. Another process may trim at the same time, so an entry
    may be gone already.
    """
    files: list[tuple[int, int, str]] = []
    for entry in os.scandir(folder):
        if entry.name.endswith(_ENTRY):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            files.append((max(status.st_atime_ns, status.st_mtime_ns), status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        for gone in (path, path.removesuffix(_ENTRY) + _STAMP):
            Path(gone).unlink(missing_ok=True)
        total -= size


def complete(folder: Path) -> None:
    """Give each entry its time stamp, for a limit that the user set in JAX.

    In jax 0.10.2 one entry without a stamp (from a killed process, or from a time without a limit)
    makes every later write under a size limit fail; 0.12.0.1 treats it as the oldest, like an empty
    stamp. Delete this when the oldest supported jax does so.
    """
    names = {entry.name for entry in os.scandir(folder)}
    for name in names:
        stamp = name.removesuffix(_ENTRY) + _STAMP
        if name.endswith(_ENTRY) and stamp not in names:
            (folder / stamp).touch(mode=0o600)
