"""What lies in the folder of compiled programs, by name, size and last use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ENTRY, _STAMP = "-cache", "-atime"  # of JAX, the same in 0.10.0 and 0.12.0.1


@dataclass(frozen=True)
class Entry:
    """One compiled program.

    Args:
        path: Its file.
        program: The name that JAX gave it, `jit_step`.
        bytes: How large it is.
        used: When it was written or read last, in seconds since 1970; a file system that notes no
            reads knows only of writing.
    """

    path: Path
    program: str
    bytes: int
    used: float


def entries(folder: Path) -> list[Entry]:
    """Those used last come first. One that another process deletes meanwhile is left out."""
    found: list[Entry] = []
    for file in os.scandir(folder):
        if file.name.endswith(_ENTRY):
            try:
                status = file.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            program = re.sub(r"-[0-9a-f]{16,}$", "", file.name.removesuffix(_ENTRY))
            found.append(
                Entry(
                    Path(file.path), program, status.st_size, max(status.st_atime, status.st_mtime)
                )
            )
    return sorted(found, key=lambda entry: -entry.used)


def delete(gone: Iterable[Entry]) -> int:
    """Delete entries and their time stamps, and nothing else; the bytes."""
    freed = 0
    for entry in gone:
        for path in (
            entry.path,
            entry.path.with_name(entry.path.name.removesuffix(_ENTRY) + _STAMP),
        ):
            path.unlink(missing_ok=True)
        freed += entry.bytes
    return freed
