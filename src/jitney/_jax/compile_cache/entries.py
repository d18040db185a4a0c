"""Integrity of the entries of the compilation cache: a damaged entry is never run, and is deleted.

JAX reads an entry without a hook: neither public function of `jax.experimental.compilation_cache`
(`set_cache_dir`, `reset_cache`) lets other code check it first (0.10.2, 0.12.0.1). So the checksum
has to be where JAX's own decompression verifies it. A zlib stream ends with a checksum of its
content anyway. A zstd frame, which JAX uses where it can (Python 3.14, or the package `zstandard`),
has an optional checksum that JAX does not write, so that XLA would run a program with a flipped
bit.

- Right after JAX has written an entry, it is rewritten with a checksum (`_Codec.sealed`),
  atomically.
- When a process turns the cache on, entries without a checksum are deleted (`sweep`): they were not
  finished, or not written by jitney. So are empty entries and those that others can write.
- If a read fails, JAX warns, compiles again, and leaves the damaged entry in place. The symptom is
  that JAX announces a write but no new file appears. Then all entries are read, and damaged ones
  are deleted (`FolderObserver`). With several writing threads, one thread may see the files of all,
  so the number of new files counts.
- New files are found by listing the folder, at a microsecond per name. With zlib this is not
  urgent, so a large folder is listed once per several writes; with zstd an entry is sealed as soon
  as it exists.

An entry that another process is writing is read as it is: sealed, just written, or truncated, which
its format shows. JAX reports reads and writes through `jax.monitoring`, in the thread that
compiles, so this covers plain `jax.jit` too; a warm call reports nothing. The two formats have
separate folders, since JAX's keys do not always differ between them.
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
from typing import Final

import jax

from ..._host.atomic_files import replace_file

# suffix of JAX's entries, the same in 0.10.0 and 0.12.0.1
ENTRY: Final = "-cache"
UNFINISHED: Final = "-sealing"
# magic number of a zstd frame, and the checksum flag in the byte after it (RFC 8878)
_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM: Final = 0x04
# other systems have no owner or mode bits
_POSIX: Final = os.name == "posix"
_ASKED: Final = "/jax/compilation_cache/compile_requests_use_cache"
_HIT: Final = "/jax/compilation_cache/cache_hits"
_WRITES: Final = "/jax/compilation_cache/cache_misses"
_COMPILED: Final = "/jax/core/compile/backend_compile_duration"
# for each thousand entries in the folder, one more write passes before it is listed
_ENTRIES_FOR_ONE_MORE: Final = 1000


@dataclass(frozen=True)
class _Codec:
    """Compression of cache entries as JAX does it here, with a checksum."""

    unpacked: Callable[[bytes], bytes]
    errors: tuple[type[Exception], ...]
    # with a checksum; None if JAX's own compression has one
    packed: Callable[[bytes], bytes] | None = None

    def add_checksum(self, entry: bytes) -> bytes:
        """Return the entry with a checksum; a damaged entry raises one of `errors`."""
        raw = self.unpacked(entry)
        return entry if self.packed is None or _has_checksum(entry) else self.packed(raw)

    def compress(self, raw: bytes) -> bytes:
        """Compress content to an entry."""
        return zlib.compress(raw) if self.packed is None else self.packed(raw)


def _codec() -> _Codec:
    """Return the first codec that is available, in JAX's order of preference."""
    with suppress(ImportError):
        # Python 3.14
        zstd = importlib.import_module("compression.zstd")
        options = {zstd.CompressionParameter.checksum_flag: 1}
        return _Codec(
            zstd.decompress,
            (zstd.ZstdError, MemoryError),
            lambda raw: zstd.compress(raw, options=options),
        )
    with suppress(ImportError):
        zstandard = importlib.import_module("zstandard")
        packed = zstandard.ZstdCompressor(write_checksum=True).compress
        return _Codec(
            lambda entry: zstandard.ZstdDecompressor().decompress(entry),
            (zstandard.ZstdError, MemoryError),
            packed,
        )
    return _Codec(zlib.decompress, (zlib.error, MemoryError))


CODEC: Final = _codec()
NAME: Final = "xla" if CODEC.packed is None else "xla-zstd"


def sweep(folder: Path) -> set[int]:
    """Delete entries that cannot be trusted. Return the ids of other users who own files in the
    folder or below.
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
    """Yield the files and folders in a folder, recursively: for GPUs XLA has folders of its own
    there.
    """
    for file in os.scandir(folder):
        try:
            status = file.stat(follow_symlinks=False)
        # Another process deleted it.
        except FileNotFoundError:
            continue
        yield file, status
        if stat.S_ISDIR(status.st_mode):
            yield from _files(Path(file.path))


def _is_sound(file: os.DirEntry[str], status: os.stat_result) -> bool:
    """Return whether an entry can be left to JAX, by mode, name and checksum flag; its content is
    checked when it is read.
    """
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


def damaged_entries(folder: Path) -> list[Path]:
    """Return the entries that cannot be decompressed. Reads each entry whole; deletes nothing."""
    found: list[Path] = []
    for name in sorted(_entries(folder)):
        try:
            CODEC.unpacked((folder / name).read_bytes())
        # Another process deleted it.
        except FileNotFoundError:
            continue
        except (*CODEC.errors, OSError):
            found.append(folder / name)
    return found


class FolderObserver:
    """Observer of what JAX writes into one folder. JAX has one cache per process, so there is one
    instance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # the last event of JAX in each thread
        self._here = threading.local()
        self._folder: Path | None = None
        # file mark of each entry that this process has read or sealed; 0 for other entries
        self._known = dict[str, int]()
        # number of threads in which JAX has announced a write and not yet reported the compile
        self._writing = 0
        # number of writes since the folder was listed last
        self._written = 0
        # number of new files that were seen before their thread reported the write
        self._early = 0
        self._listens = False

    def follow(self, folder: Path | None) -> None:
        """Observe this folder, which has been swept, from now on; nothing if None."""
        with self._lock:
            self._folder, self._written, self._early = folder, 0, 0
            self._known = {} if folder is None else dict.fromkeys(_entries(folder), 0)
            if folder is not None and not self._listens:
                self._listens = True
                jax.monitoring.register_event_listener(self._event)
                jax.monitoring.register_event_duration_secs_listener(self._duration)

    def _event(self, event: str, **_: object) -> None:
        if event in (_ASKED, _HIT, _WRITES) and self._swap_event(event) == event == _ASKED:
            # Two requests in a row, with neither a hit nor a compile between them: JAX raised the
            # failed read as an error.
            self._wrote()

    def _duration(
        self,
        event: str,
        duration_secs: float,
        **_: object,
    ) -> None:
        if event == _COMPILED and self._swap_event(None) == _WRITES:
            self._wrote()

    def _swap_event(self, event: str | None) -> str | None:
        """Store the last event of this thread, and return the one before it."""
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
        """Seal the new entries. If there are fewer new entries than writes, JAX found an entry that
        it could not read and did not overwrite: then check all.
        """
        new = self._new(folder)
        seen = len(new) + self._early
        if seen < self._written or CODEC.packed is not None:
            for name in list(self._known) if seen < self._written else new:
                self._seal(folder, name)
        else:
            # Entries of any process; their checksum is verified when they are read.
            for name in new:
                _privately(folder / name)
        # A surplus of new files is of threads that are still writing; more than these can account
        # for is of other processes.
        self._early = min(max(seen - self._written, 0), self._writing)
        self._written = 0

    def _new(self, folder: Path) -> list[str]:
        """Return the entries that were not there at the last look, and forget those that
        are gone.
        """
        new: list[str] = []
        left = 0
        names = _list_names(folder)
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


def _list_names(folder: Path) -> list[str]:
    """Return the names in a folder, none if it is gone; `cache.py` creates it again before the next
    program.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - 5000 names need no paths
    except OSError:
        return []


def _entries(folder: Path) -> set[str]:
    return {name for name in _list_names(folder) if name.endswith(ENTRY)}


def _mark(entry: Path) -> int:
    """Return a number that changes with each write of a file; 0 if it is gone."""
    try:
        status = entry.stat()
    except OSError:
        return 0
    return hash((status.st_ino, status.st_size, status.st_mtime_ns))


def _privately(entry: Path) -> None:
    with suppress(OSError):
        entry.chmod(0o600)


def _seal(entry: Path) -> None:
    """Give an entry its checksum, or delete it if it is damaged. An entry that another process is
    still writing looks damaged; that process seals its own copy.
    """
    try:
        raw = entry.read_bytes()
        sealed = CODEC.add_checksum(raw)
        if sealed is raw:
            _privately(entry)
            return

        # Atomic: a reader sees the old entry or the sealed one.
        replace_file(entry, sealed, private=True, marks=("-", UNFINISHED))
    except (*CODEC.errors, OSError):
        with suppress(OSError):
            entry.unlink(missing_ok=True)
