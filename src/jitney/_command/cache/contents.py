"""Programs in the persistent cache's folder, from its files: name, size and last use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Suffixes of the files that JAX writes, the same in 0.10.0 and 0.12.0.1.
_ENTRY, _STAMP = "-cache", "-atime"


@dataclass(frozen=True)
class CacheEntry:
    """Compiled program in the persistent cache.

    Args:
        path: Its file.
        program: JAX's name for it, `jit_step`.
        bytes: Size of the file.
        used: Time of the last write or read, in seconds since 1970; of the last write only, on a
            file system that does not record reads.
    """

    path: Path
    program: str
    bytes: int
    used: float


def entries(folder: Path) -> list[CacheEntry]:
    """Return the programs in a folder, last used first.

    A program that another process deletes during the listing is left out.
    """
    found: list[CacheEntry] = []
    for file in os.scandir(folder):
        if file.name.endswith(_ENTRY):
            try:
                status = file.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            # JAX appends a hexadecimal hash to the name of the program.
            program = re.sub(r"-[0-9a-f]{16,}$", "", file.name.removesuffix(_ENTRY))
            found.append(
                CacheEntry(
                    Path(file.path), program, status.st_size, max(status.st_atime, status.st_mtime)
                )
            )
    return sorted(found, key=lambda entry: -entry.used)


def delete(gone: Iterable[CacheEntry]) -> int:
    """Delete the files and time stamps of entries, nothing else; return the bytes freed."""
    freed = 0
    for entry in gone:
        for path in (
            entry.path,
            entry.path.with_name(entry.path.name.removesuffix(_ENTRY) + _STAMP),
        ):
            path.unlink(missing_ok=True)
        freed += entry.bytes
    return freed
