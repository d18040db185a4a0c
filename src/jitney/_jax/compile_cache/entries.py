"""The entries of the compilation cache: one that is damaged is never run, and goes.

JAX asks nobody before it reads an entry, and neither public function of
`jax.experimental.compilation_cache` (`set_cache_dir`, `reset_cache`) lets one stand in between
(0.10.2, 0.12.0.1). So the digest lies where JAX's own reading checks it. With zlib it does already:
the stream ends with a checksum of what was compressed. With zstd, which JAX takes where it can
(Python 3.14, or the package `zstandard`), the frame has room for one that JAX leaves empty, and XLA
runs what a flipped bit has made of the program.

- Right after JAX has written an entry, it is written again with the checksum (`_Codec.sealed`), all
  of it or nothing.
- What has none when a process turns the cache on was not finished, or not written by jitney: it is
  deleted (`sweep`), as is what is empty or what others could write.
- A failed reading is a warning of JAX, which compiles anew and then leaves the damaged entry where
  it is. That shows: JAX says that it writes, and no file is new. Then all entries are read, and
  those that are damaged are deleted (`Watch`). Where several threads write, one of them may see the
  files of all: what counts is how many are new.
- To see what is new the folder is listed, a microsecond for each name in it. With zlib that has
  time, so a folder of many is listed after several writes; with zstd an entry is sealed when it is
  there.

What another process writes meanwhile is read as it is there: sealed, or written a moment ago, or
cut, which its format tells. JAX tells of reading and writing through `jax.monitoring`, in the
thread that compiles, so this holds for plain `jax.jit` too; a warm call tells of nothing. The two
formats lie in two folders, since JAX's keys do not always tell them apart.
"""

from __future__ import annotations

import importlib
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax

ENTRY: Final = "-cache"  # of JAX, the same in 0.10.0 and 0.12.0.1
UNFINISHED: Final = "-sealing"
_MAGIC: Final = b"\x28\xb5\x2f\xfd"  # a frame of zstd, RFC 8878
_CHECKSUM: Final = 0x04  # of the byte behind it
_POSIX: Final = os.name == "posix"  # elsewhere there is no owner or mode to look at
_ASKED: Final = "/jax/compilation_cache/compile_requests_use_cache"
_HIT: Final = "/jax/compilation_cache/cache_hits"
_WRITES: Final = "/jax/compilation_cache/cache_misses"
_COMPILED: Final = "/jax/core/compile/backend_compile_duration"
_ENTRIES_FOR_ONE_MORE: Final = 1000  # in the folder: it is listed a write later


@dataclass(frozen=True)
class _Codec:
    """How JAX compresses here."""

    unpacked: Callable[[bytes], bytes]
    errors: tuple[type[Exception], ...]
    packed: Callable[[bytes], bytes] | None = None  # with a checksum; None where JAX's own has one

    def sealed(self, entry: bytes) -> bytes:
        """The entry with a checksum; what is damaged raises one of `errors`."""
        raw = self.unpacked(entry)
        return entry if self.packed is None or _has_checksum(entry) else self.packed(raw)

    def made(self, raw: bytes) -> bytes:
        """An entry of this content."""
        return zlib.compress(raw) if self.packed is None else self.packed(raw)


def _codec() -> _Codec:
    """The first of what JAX tries, in its order."""
    with suppress(ImportError):
        zstd: Any = importlib.import_module("compression.zstd")  # Python 3.14
        options = {zstd.CompressionParameter.checksum_flag: 1}
        return _Codec(
            zstd.decompress,
            (zstd.ZstdError, MemoryError),
            lambda raw: zstd.compress(raw, options=options),
        )
    with suppress(ImportError):
        zstandard: Any = importlib.import_module("zstandard")
        packed: Any = zstandard.ZstdCompressor(write_checksum=True).compress
        return _Codec(
            lambda entry: zstandard.ZstdDecompressor().decompress(entry),
            (zstandard.ZstdError, MemoryError),
            packed,
        )
    return _Codec(zlib.decompress, (zlib.error, MemoryError))


CODEC: Final = _codec()
NAME: Final = "xla" if CODEC.packed is None else "xla-zstd"


def sweep(folder: Path) -> set[int]:
    """Delete what cannot be trusted; the users, apart from this one, whose files lie in the folder
    or below.
    """
    owners = set[int]()
    for file, status in _files(folder):
        private = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if _POSIX and status.st_uid != os.geteuid():
            owners.add(status.st_uid)
        elif not _is_sound(file, status):
            Path(file.path).unlink(missing_ok=True)
        elif _POSIX and stat.S_IMODE(status.st_mode) != private:
            Path(file.path).chmod(private)
    return owners


def _files(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """All there is in a folder and below it, the folders too: XLA keeps some of its own for
    GPUs.
    """
    for file in os.scandir(folder):
        try:
            status = file.stat(follow_symlinks=False)
        except FileNotFoundError:  # another process
            continue
        yield file, status
        if stat.S_ISDIR(status.st_mode):
            yield from _files(Path(file.path))


def _is_sound(file: os.DirEntry[str], status: os.stat_result) -> bool:
    """Whether an entry can be left to JAX; whether it is whole is seen when it is read."""
    if stat.S_ISDIR(status.st_mode):
        return True
    if stat.S_ISLNK(status.st_mode) or file.name.endswith(UNFINISHED):
        return False
    if _POSIX and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    if not file.name.endswith(ENTRY):
        return True
    if status.st_size == 0 or CODEC.packed is None:
        return status.st_size > 0
    try:
        with Path(file.path).open("rb", buffering=0) as opened:
            return _has_checksum(opened.read(len(_MAGIC) + 1))
    except FileNotFoundError:
        return False


def _has_checksum(entry: bytes) -> bool:
    return entry[:4] == _MAGIC and len(entry) > len(_MAGIC) and bool(entry[4] & _CHECKSUM)


def damaged(folder: Path) -> list[Path]:
    """The entries that a reading would fail on. Each is read whole; nothing is deleted."""
    found: list[Path] = []
    for name in sorted(_entries(folder)):
        try:
            CODEC.unpacked((folder / name).read_bytes())
        except FileNotFoundError:  # another process
            continue
        except (*CODEC.errors, OSError):
            found.append(folder / name)
    return found


class Watch:
    """Follows what JAX writes into one folder. JAX has one cache per process, so there is one of
    these.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._here = threading.local()  # what JAX said last in this thread
        self._folder: Path | None = None
        # the mark of each entry that this process has read or sealed, 0 of others
        self._known = dict[str, int]()
        # in so many threads JAX has said that it writes, and not yet that it has compiled
        self._writing = 0
        self._written = 0  # so often it has written since the folder was listed last
        self._early = 0  # new files that were seen before the thread that writes them was done
        self._listens = False

    def follow(self, folder: Path | None) -> None:
        """From now on this folder, which has been swept; none of jitney's where None."""
        with self._lock:
            self._folder, self._written, self._early = folder, 0, 0
            self._known = {} if folder is None else dict.fromkeys(_entries(folder), 0)
            if folder is not None and not self._listens:
                self._listens = True
                jax.monitoring.register_event_listener(self._event)
                jax.monitoring.register_event_duration_secs_listener(self._duration)

    def _event(self, event: str, **_: Any) -> None:
        if event in (_ASKED, _HIT, _WRITES) and self._said(event) == event == _ASKED:
            self._wrote()  # it was neither found nor compiled: a failed reading was made an error

    def _duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILED and self._said(None) == _WRITES:
            self._wrote()

    def _said(self, event: str | None) -> str | None:
        """Note what JAX says in this thread; what it had said before."""
        before: str | None = getattr(self._here, "said", None)
        self._here.said = event
        if before != event and _WRITES in (before, event):
            with self._lock:
                self._writing += 1 if event == _WRITES else -1
        return before

    def _wrote(self) -> None:
        with self._lock:
            self._written += 1
            if self._folder is not None and (
                CODEC.packed is not None
                or self._written > len(self._known) // _ENTRIES_FOR_ONE_MORE
            ):
                self._look(self._folder)

    def _look(self, folder: Path) -> None:
        """Seal what is new. Is less new than was written, JAX found an entry there that it could
        not read, and did not write over it.
        """
        new = self._new(folder)
        seen = len(new) + self._early
        if seen < self._written or CODEC.packed is not None:
            for name in list(self._known) if seen < self._written else new:
                self._seal(folder, name)
        else:
            for name in new:  # of any process: whether it is whole is seen when it is read
                _privately(folder / name)
        # others are of other processes
        self._early = min(max(seen - self._written, 0), self._writing)
        self._written = 0

    def _new(self, folder: Path) -> list[str]:
        """The entries that were not there at the last look; those that are gone are forgotten."""
        new: list[str] = []
        left = 0
        names = _listed(folder)
        for name in names:
            if name in self._known:
                left += 1
            elif name.endswith(ENTRY):
                new.append(name)
        if left < len(self._known):
            there = set(names)
            self._known = {name: mark for name, mark in self._known.items() if name in there}
        self._known.update(dict.fromkeys(new, 0))
        return new

    def _seal(self, folder: Path, name: str) -> None:
        known = self._known[name]
        if not known or known != _mark(folder / name):
            _seal(folder / name)
            self._known[name] = _mark(folder / name)


def _listed(folder: Path) -> list[str]:
    """Names. A folder that is gone has none; `cache.py` sees to that before the next program."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - 5000 names need no paths
    except OSError:
        return []


def _entries(folder: Path) -> set[str]:
    return {name for name in _listed(folder) if name.endswith(ENTRY)}


def _mark(entry: Path) -> int:
    """What is another after each writing; 0 of what is gone."""
    try:
        status = entry.stat()
    except OSError:
        return 0
    return hash((status.st_ino, status.st_size, status.st_mtime_ns))


def _privately(entry: Path) -> None:
    with suppress(OSError):
        entry.chmod(0o600)


def _seal(entry: Path) -> None:
    """Give an entry its checksum, or delete it: it is damaged, or another process is writing it and
    will seal it itself.
    """
    try:
        raw = entry.read_bytes()
        sealed = CODEC.sealed(raw)
        if sealed is raw:
            _privately(entry)
            return
        unfinished = entry.with_name(f"{entry.name}-{os.getpid()}{UNFINISHED}")
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as file:
            file.write(sealed)
        unfinished.replace(entry)
    except (*CODEC.errors, OSError):
        with suppress(OSError):
            entry.unlink(missing_ok=True)
