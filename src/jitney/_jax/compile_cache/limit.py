"""Keep the folder of compiled programs under its size limit: what was used least recently goes.

JAX has a limit of its own, but keeps it by reading two files for every entry at every write, under
one lock: 120 ms for each compile with 5000 entries in the folder, which a compile of `x + 1` pays
too. So JAX writes without a limit, as it does by default, and jitney looks at the whole folder once
per process and again after many programs, at 37 ms for 5000 entries: between two looks the folder
may be larger than its limit.
"""

from __future__ import annotations

import os
from pathlib import Path

_ENTRY, _STAMP = "-cache", "-atime"  # of JAX, the same in 0.10.0 and 0.12.0.1


def trim(folder: Path, limit: int) -> None:
    """Delete entries until they take `limit` bytes or less.

    The last use is the later of the times of reading and writing: a file system that notes no reads
    leaves the oldest to go first. Another process may do the same at the same time, so an entry may
    be gone already.
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
    """Give each entry its time stamp, for a limit that the user gave to JAX.

    In jax 0.10.2 one entry without a stamp (of a killed process, or of a time without limit) fails
    every later write under a size limit; 0.12.0.1 takes it for the oldest, as an empty stamp is.
    Delete this when the oldest jax does so.
    """
    names = {entry.name for entry in os.scandir(folder)}
    for name in names:
        stamp = name.removesuffix(_ENTRY) + _STAMP
        if name.endswith(_ENTRY) and stamp not in names:
            (folder / stamp).touch(mode=0o600)
