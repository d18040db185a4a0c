"""Where a stream begins, and the file that it goes on from: what has been accumulated so far, with
a checksum, replaced as a whole.

`resumed` decides it: at the first chunk, or at the first one that a checkpoint does not have, once
the rows before it have been found to be what they were. `_Run.__call__` in `stream.py` loops over
the chunks that are left from there (`left`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import JitneyError, JitneyWarning, OptionError, few, sentence
from .._jax.trees import is_a
from .._owners import users_level

if TYPE_CHECKING:
    from .placement import Laid
    from .reading import Reader

_MAGIC = b"jitney checkpoint 2\n"
_UNFINISHED = ".unfinished-"
_LEAST = 1.0  # seconds between two saves that nobody asked for
_SHARE = 0.01  # of the run, that saves may take then


@dataclass(frozen=True)
class Progress:
    """How far a run is: pass, how many elements of it are done, what earlier passes have computed,
    and what this one has accumulated.

    `known` tells the rows that were read from others; see `Reader`.
    """

    index: int
    at: int
    values: Mapping[int, Any]
    state: list[list[Any]]
    known: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Position:
    """Where a run begins, or goes on.

    Args:
        index: Of the pass.
        at: How many elements of it are done.
        values: What earlier passes have computed.
        state: What this pass has accumulated; None if it has not begun.
        progress: Of the file, if there is one.
    """

    index: int = 0
    at: int = 0
    values: Mapping[int, Any] = field(default_factory=dict[int, Any])
    state: Any = None
    progress: Progress | None = None


def resumed(kept: Checkpoint | None, reader: Reader, laid: Laid) -> Position:
    """Where a run begins: behind what its checkpoint has, if there is one, and what was read then
    is what it was.

    Raises:
        JitneyError: The checkpoint is damaged, or of another run.
        DataError: Rows that it has are not what they were.
    """
    record = kept.read() if kept is not None else None
    if record is None:
        return Position()
    reader.resume(record.known)
    return Position(record.index, record.at, record.values, laid.accumulated(record.state), record)


def left(pieces: Sequence[tuple[int, int]], done: int, *, back: bool) -> list[tuple[int, int]]:
    """The chunks of a pass that are not done, `back` from the last to the first."""
    if not back:
        return [piece for piece in pieces if piece[0] >= done]
    total = sum(pieces[-1]) if pieces else 0
    return [piece for piece in pieces[::-1] if sum(piece) <= total - done]


class Checkpoint:
    """One file.

    Args:
        path: Where.
        key: Digests of what the run is made of, by what messages call it; a file of another key is
            refused.
        every: After how many chunks (an int) or seconds (a text such as `"30s"`) it is written;
            None leaves it to jitney.
        where: The function, for messages.
    """

    def __init__(
        self, path: str | Path, key: Mapping[str, str], every: int | str | None, where: str
    ):
        if not is_a(path, (str, os.PathLike)) or Path(path).is_dir():
            raise OptionError(
                where,
                f"checkpoint={path!r} is not the path of a file.",
                "A run is kept in one file.",
                'write checkpoint="run.ckpt", or leave it out.',
                code="J220",
            )
        self.path = Path(path).absolute()
        self.key = dict(key)
        self.where = where
        self.chunks, self.seconds = _interval(every, where)
        self._last = time.monotonic()
        self._cost = 0.0
        self._missed = 0
        self.saves = 0
        self._warned = False
        if not self.path.parent.is_dir():
            raise JitneyError(
                where,
                f"there is no folder {self.path.parent} for the checkpoint.",
                "It is written beside its last version.",
                "make the folder, or give another path.",
                code="J283",
            )

    def read(self) -> Progress | None:
        """How far the run was; None if there is no file.

        Raises:
            JitneyError: The file is damaged, or of another function, other arguments, other data or
                another chunk size.
        """
        self._tidy()
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        head = len(_MAGIC)
        digest, body = content[head : head + 32], content[head + 32 :]
        if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise JitneyError(
                self.where,
                f"{self.path} is no checkpoint, or it is damaged.",
                "A checkpoint is used whole or not at all.",
                "give another file name, or remove the file to begin anew.",
                code="J281",
            )
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            key: dict[str, str] = json.loads(str(file["key"]))
            if key != self.key:
                other = [name for name in self.key if key.get(name) != self.key[name]]
                raise JitneyError(
                    self.where,
                    f"the checkpoint {self.path} is of another run: {few(other)} differ.",
                    "A run goes on with what it began with.",
                    "give another file name, or remove the file to begin anew.",
                    code="J282",
                )
            index, at, nodes = (int(file[name]) for name in ("pass", "at", "nodes"))
            values = {
                int(name[1:].partition("@")[0]): _restored(name, file[name])
                for name in file.files
                if name.startswith("v")
            }
            held = sorted(name for name in file.files if name.startswith("s"))
            state = [
                [_restored(name, file[name]) for name in held if name.startswith(f"s{i:04}.")]
                for i in range(nodes)
            ]
            known = {name[1:]: file[name] for name in file.files if name.startswith("r")}
        return Progress(index, at, values, state, known)

    def reached(self, progress: Progress) -> None:
        """A chunk is over: write the file if it is due."""
        self._missed += 1
        passed = time.monotonic() - self._last
        if self.chunks is not None:
            due = self._missed >= self.chunks
        else:
            due = passed >= (
                self.seconds if self.seconds is not None else max(_LEAST, self._cost / _SHARE)
            )
        if due:
            failure = self.write(progress)
            if failure is not None and not self._warned:
                self._warned = True
                warnings.warn(failure, JitneyWarning, stacklevel=users_level())

    def write(self, progress: Progress) -> str | None:
        """Write the file; waits for the device. What is in the way, as a full disk, is returned:
        the file stays as it was then.
        """
        start = time.monotonic()
        try:
            self._replace(self._content(progress))
        except OSError as error:
            self._last, self._missed = time.monotonic(), 0
            old = "the one from before stays" if self.path.exists() else "there is none yet"
            return sentence(
                self.where,
                f"the checkpoint {self.path} could not be written ({error.strerror or error});"
                f" {old}.",
                "The run goes on, and tries again when the next one is due.",
                "free some space, or mend what the system says.",
            )
        self._last, self._missed = time.monotonic(), 0
        self._cost = self._last - start
        self.saves += 1
        return None

    def _content(self, progress: Progress) -> bytes:
        parts = dict(_plain(f"v{n}", np.asarray(x)) for n, x in progress.values.items())
        parts.update(
            _plain(f"s{i:04}.{j:04}", np.asarray(x))
            for i, held in enumerate(progress.state)
            for j, x in enumerate(held)
        )
        parts.update({f"r{name}": x for name, x in progress.known.items()})
        buffer, save = io.BytesIO(), _savez
        save(
            buffer,
            **{"pass": progress.index},
            key=json.dumps(self.key),
            at=progress.at,
            nodes=len(progress.state),
            **parts,
        )
        body = buffer.getvalue()
        return _MAGIC + hashlib.sha256(body).digest() + body

    def _replace(self, content: bytes) -> None:
        """All of it or nothing."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name + _UNFINISHED)
        try:
            try:
                with memoryview(content) as rest:
                    written = 0
                    while written < len(content):
                        written += os.write(handle, rest[written:])
                os.fsync(handle)
            finally:
                os.close(handle)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def remove(self) -> None:
        """The run is over."""
        self.path.unlink(missing_ok=True)
        self._tidy()

    def _tidy(self) -> None:
        """Remove what runs have left here that were killed while they wrote."""
        with suppress(OSError):
            for name in os.listdir(self.path.parent):  # noqa: PTH208 - the name may hold what a pattern means otherwise
                if name.startswith(self.path.name + _UNFINISHED):
                    (self.path.parent / name).unlink(missing_ok=True)


def _interval(every: Any, where: str) -> tuple[int | None, float | None]:
    """Chunks or seconds."""
    if every is None:
        return None, None
    if is_a(every, int) and not is_a(every, bool) and every > 0:
        return int(every), None
    if is_a(every, str) and every.endswith("s"):
        with suppress(ValueError):
            seconds = float(every[:-1])
            if seconds >= 0:
                return None, seconds
    raise OptionError(
        where,
        f"checkpoint_every={every!r} is neither a number of chunks nor of seconds.",
        "It says how often a checkpoint is written.",
        'write checkpoint_every=100 for chunks, checkpoint_every="30s" for seconds, or leave it'
        " out.",
        code="J220",
    )


def _plain(name: str, x: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """An array as NumPy's files hold it: the narrow floats of JAX are none of NumPy's types."""
    return (
        (name, x)
        if x.dtype.kind != "V"
        else (f"{name}@{x.dtype.name}", x.view(f"u{x.dtype.itemsize}"))
    )


def _restored(name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    dtype = name.partition("@")[2]
    return x.view(np.dtype(dtype)) if dtype else x


_savez: Any = np.savez
