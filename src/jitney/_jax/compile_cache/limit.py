"""Size limit of the folder of compiled programs: the least recently used entries are deleted.

JAX has a size limit, but it reads two files per entry at each write, under one lock: 120 ms per
compile with 5000 entries in the folder, even for `x + 1`. So JAX writes without a limit, which is
its default, and jitney checks the whole folder once per process and again after many programs, at
37 ms for 5000 entries. Between two checks the folder may exceed its limit.
"""

from __future__ import annotations

import os
from pathlib import Path

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
