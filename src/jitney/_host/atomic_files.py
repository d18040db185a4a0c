"""Files that are replaced as a whole.

A reader sees the old file or the new one. A process that is killed leaves the old one, and beside
it an unfinished one that nobody reads.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path

UNFINISHED = ".unfinished-"
# Read and write, for this user alone and for all that the process lets.
_PRIVATE, _SHARED = 0o600, 0o666


def replace_file(
    path: Path,
    content: bytes,
    *,
    private: bool = False,
    durable: bool = False,
    marks: tuple[str, str] = (UNFINISHED, ""),
) -> None:
    """Write a file under a name of its own in the same folder, and rename it.

    Args:
        path: The file.
        content: All that it will hold.
        private: Whether only this user may read it.
        durable: Whether the content is on the disk before the name is, so that the file survives a
            machine that loses its power.
        marks: What stands between the name of the file and a random one, and behind that.

    Raises:
        OSError: It cannot be written. The old file, if there is one, is as it was.
    """
    before, behind = marks
    unfinished = path.with_name(f"{path.name}{before}{secrets.token_hex(8)}{behind}")
    opener = partial(os.open, mode=_PRIVATE if private else _SHARED)
    try:
        with open(unfinished, "xb", opener=opener) as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
