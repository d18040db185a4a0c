"""`cache ls`, `info`, `clear` and `prune`: list and delete programs of the persistent cache.

The folder is the one that the next program would use. Its files say name, size and last use of each
program. Only entries and their time stamps are deleted, since a folder that is set in JAX may
contain other files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..._errors import OptionError, plural
from ..._extent import read_bytes
from ..._jax.compile_cache import cache
from ..._jax.compile_cache.entries import damaged_entries

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


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def carry_out(given: argparse.Namespace) -> int:
    """Run the subcommand, and return its exit status."""
    # Wrong options are an error even if there is no cache.
    if given.what == "prune":
        _check(given)
    cache.ensure()
    facts = cache.facts()
    if facts.directory is None:
        sys.stderr.write(f"There is no cache: {facts.reason}.\n")
        return 1
    kept = entries(facts.directory) if facts.directory.is_dir() else []
    if given.what in ("ls", "info"):
        sys.stdout.write(
            _format_entries(kept, as_json=given.json)
            if given.what == "ls"
            else _info(facts, kept, as_json=given.json)
        )
        return 0
    gone = kept if given.what == "clear" else _entries_to_delete(given, facts.directory, kept)
    return _delete(gone, len(kept), facts.directory, sure=given.yes)


def _delete(
    gone: Sequence[CacheEntry],
    of: int,
    folder: Path,
    *,
    sure: bool,
) -> int:
    if not gone:
        sys.stdout.write(f"Nothing to delete: {plural(of, 'program')} in {folder}.\n")
        return 0
    told = f"{len(gone)} of {of} programs ({_size(sum(entry.bytes for entry in gone))}) in {folder}"
    if not sure and not _confirm(f"Delete {told}? [y/N] "):
        sys.stdout.write("Nothing was deleted; --yes does not ask.\n")
        return 1
    delete(gone)
    sys.stdout.write(f"Deleted {told}.\n")
    return 0


def _confirm(question: str) -> bool:
    """Ask a question, and return whether the answer is yes; without anyone to answer it is no."""
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _check(given: argparse.Namespace) -> None:
    """Raise an error for options of `prune` that cannot be parsed, or select nothing."""
    _age(given.older_than)
    _bytes(given.larger_than)
    if given.older_than is None and given.larger_than is None and not given.damaged:
        raise OptionError(
            "python -m jitney cache prune",
            "it does not say what goes.",
            "`prune` deletes what its options name.",
            "add --older-than 30d, --larger-than 2GB or --damaged.",
            code="J205",
        )


def _entries_to_delete(
    given: argparse.Namespace,
    folder: Path,
    kept: Sequence[CacheEntry],
) -> list[CacheEntry]:
    """Return the entries to delete.

    `kept` begins with the entry that was used last. The limit of `--larger-than` applies to the
    entries that the other options leave.
    """
    age, size = _age(given.older_than), _bytes(given.larger_than)
    spoilt = set(damaged_entries(folder)) if given.damaged else set[Path]()
    since = None if age is None else time.time() - age
    gone = [
        entry
        for entry in kept
        if entry.path in spoilt or (since is not None and entry.used < since)
    ]

    # From the program used last to the oldest: past the limit all that follow are deleted.
    if size is not None:
        total = 0
        for entry in kept:
            if entry not in gone:
                total += entry.bytes
                if total > size:
                    gone.append(entry)
    return gone


def _age(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if match is None:
        raise OptionError(
            "python -m jitney cache prune",
            f"--older-than {text!r} is not an age.",
            "An age is a number and s, m, h, d or w.",
            "write 30d.",
            code="J205",
        )
    return float(match[1]) * _SECONDS[match[2]]


def _bytes(text: str | None) -> float | None:
    if text is None:
        return None
    size = read_bytes(text)
    if size is None:
        raise OptionError(
            "python -m jitney cache prune",
            f"--larger-than {text!r} is not a size.",
            "A size is a number of bytes, or of a unit.",
            "write 2GB.",
            code="J205",
        )
    return size


def _format_entries(kept: Sequence[CacheEntry], *, as_json: bool) -> str:
    if as_json:
        data = [
            {"program": e.program, "bytes": e.bytes, "used": e.used, "file": e.path.name}
            for e in kept
        ]
        return json.dumps({"programs": data}, indent=1) + "\n"
    from ..._text.console import figures, text_of

    rows = [
        ("program", "last used", "size"),
        *((e.program, _format_time(e.used), _size(e.bytes)) for e in kept),
    ]
    return (
        text_of(
            figures(f"{plural(len(kept), 'program')}, {_size(sum(e.bytes for e in kept))}", rows)
        )
        + "\n"
    )


def _info(
    facts: cache.CacheFacts,
    kept: Sequence[CacheEntry],
    *,
    as_json: bool,
) -> str:
    size = sum(entry.bytes for entry in kept)
    data = {
        "directory": str(facts.directory),
        "enabled": facts.enabled,
        "reason": facts.reason,
        "programs": len(kept),
        "bytes": size,
        "limit": facts.size_limit,
    }
    if as_json:
        return json.dumps(data, indent=1) + "\n"

    limit = "none" if facts.size_limit is None else _size(facts.size_limit)
    lines = {
        "folder": facts.directory,
        "used": f"{facts.enabled} ({facts.reason})",
        "programs": len(kept),
        "size": _size(size),
        "limit": limit,
        **(
            {
                "last used": _format_time(kept[0].used),
                "used longest ago": _format_time(kept[-1].used),
            }
            if kept
            else {}
        ),
    }
    return "".join(f"{name:18}{value}\n" for name, value in lines.items())


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**10:,.1f} KiB"
