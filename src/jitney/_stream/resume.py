"""Checkpoint file of a stream, and the position that a run starts from.

The file holds the carry of the pass under way with a SHA-256 checksum, and is replaced atomically.
`start_position` returns the first chunk of the data, or the first chunk that the checkpoint does
not have once the rows before it are found unchanged. `_PassLoop` in `stream_run.py` loops
over the remaining chunks (`remaining_pieces`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import DataWarning, JitneyError, OptionError, format_error, shortlist
from .._host.atomic_files import UNFINISHED, replace_file
from .._jax.typed import NumPyArray
from .._owners import users_level
from .schedule import Carry, Values

if TYPE_CHECKING:
    from .data.reading import ChunkReader
    from .stream_layout import StreamLayout

_MAGIC = b"jitney checkpoint 3\n"
# How the files of all versions begin; a version with other checksums reads none of these.
_FAMILY = b"jitney checkpoint "
# Seconds between two saves, if the user sets no interval.
_LEAST = 1.0
# Largest fraction of the run that saves may take, if the user sets no interval.
_SHARE = 0.01


@dataclass(frozen=True)
class CheckpointState:
    """State of a run after a chunk, as the checkpoint holds it.

    Args:
        index: Number of the pass, from 0.
        at: Number of elements of the axis that the pass has done.
        values: Results of earlier passes, by the number of their value.
        state: Carry of the pass: for each accumulating operation its arrays.
        known: Gives checksums and stamps of the rows that were read; see `ChunkReader`.
    """

    index: int
    at: int
    values: Values
    state: Carry
    known: Callable[[], Mapping[str, NumPyArray]]


@dataclass(frozen=True)
class Position:
    """Position where a run starts or resumes.

    Args:
        index: Number of the pass, from 0.
        at: Number of elements of the axis that the pass has done.
        values: Results of earlier passes.
        state: Carry of the pass; None if the pass has not begun.
        progress: Content of the checkpoint file, if there is one.
    """

    index: int = 0
    at: int = 0
    values: Values = field(default_factory=dict[int, NumPyArray])
    state: Carry | None = None
    progress: CheckpointState | None = None


def start_position(
    kept: Checkpoint | None,
    reader: ChunkReader,
    laid: StreamLayout,
) -> Position:
    """Return where a run starts: after the chunks of its checkpoint, or at the first chunk without
    one.

    Raises:
        JitneyError: The checkpoint is damaged, or belongs to another run.
        DataError: Rows that it includes have changed.
    """
    record = kept.read() if kept is not None else None
    if record is None:
        return Position()
    reader.resume(record.known())
    state = laid.shard_carry(record.state)
    return Position(
        record.index,
        record.at,
        record.values,
        state,
        record,
    )


def remaining_pieces(
    pieces: Sequence[tuple[int, int]],
    done: int,
    *,
    back: bool,
) -> list[tuple[int, int]]:
    """The chunks of a pass that are still to do; with `back`, from the last to the first."""
    if not back:
        return [piece for piece in pieces if piece[0] >= done]

    # A pass from the end has done the last `done` elements.
    total = sum(pieces[-1]) if pieces else 0
    return [piece for piece in pieces[::-1] if sum(piece) <= total - done]


class Checkpoint:
    """Checkpoint file of one run.

    Args:
        path: Path of the file.
        key: Digests of all that determines the run, by the words that messages use for each; a file
            with another key is refused.
        every: Interval between saves, in chunks (an int) or seconds (a text such as `"30s"`); None
            leaves it to jitney.
        where: The function, for messages.
    """

    def __init__(
        self,
        path: str | Path,
        key: Mapping[str, str],
        every: int | str | None,
        where: str,
    ):
        if not isinstance(path, (str, os.PathLike)) or Path(path).is_dir():
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

    def read(self) -> CheckpointState | None:
        """Read the file; None if it does not exist.

        Raises:
            JitneyError: The file is damaged, or of another function, other arguments, other data or
                another chunk size.
        """
        self._tidy()
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        start = len(_MAGIC)
        end = start + 32
        digest, body = content[start:end], content[end:]
        if content.startswith(_FAMILY) and not content.startswith(_MAGIC):
            raise JitneyError(
                self.where,
                f"the checkpoint {self.path} is of another version of jitney.",
                "A run goes on with the checksums that it began with.",
                "give another file name, or remove the file to start again.",
                code="J282",
            )
        # Check the digest before NumPy parses anything.
        if not content.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise JitneyError(
                self.where,
                f"{self.path} is not a checkpoint, or it is damaged.",
                "A checkpoint is used whole or not at all.",
                "give another file name, or remove the file to start again.",
                code="J281",
            )
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            key: dict[str, str] = json.loads(str(file["key"]))
            if key != self.key:
                other = [name for name in self.key if key.get(name) != self.key[name]]
                raise JitneyError(
                    self.where,
                    f"the checkpoint {self.path} is of another run: {shortlist(other)} differ.",
                    "A run goes on with what it began with.",
                    "give another file name, or remove the file to start again.",
                    code="J282",
                )
            index, at, nodes = (int(file[name]) for name in ("pass", "at", "nodes"))
            values = {
                int(name[1:].partition("@")[0]): _restore_dtype(name, file[name])
                for name in file.files
                if name.startswith("v")
            }
            # Names are zero-padded, so the sorted order is the order in which the arrays were
            # written.
            names = sorted(name for name in file.files if name.startswith("s"))
            state: list[list[NumPyArray]] = []
            for i in range(nodes):
                own = [name for name in names if name.startswith(f"s{i:04}.")]
                state.append([_restore_dtype(name, file[name]) for name in own])

            known = {name[1:]: file[name] for name in file.files if name.startswith("r")}
        return CheckpointState(index, at, values, state, lambda: known)

    def save_if_due(self, progress: CheckpointState) -> None:
        """Write the file if it is due; called after each chunk."""
        self._missed += 1
        passed = time.monotonic() - self._last
        if self.chunks is not None:
            due = self._missed >= self.chunks
        elif self.seconds is not None:
            due = passed >= self.seconds
        else:
            # The pause after a save is a hundred times as long as the save took: a hundredth of the
            # run.
            due = passed >= max(_LEAST, self._cost / _SHARE)
        if due:
            failure = self.write(progress)
            if failure is not None and not self._warned:
                self._warned = True
                warnings.warn(failure, DataWarning, stacklevel=users_level())

    def write(self, progress: CheckpointState) -> str | None:
        """Write the file; waits for the device.

        Returns:
            The message of a failure such as a full disk, after which the previous file is still in
            place; None if the file was written.
        """
        start = time.monotonic()
        try:
            replace_file(self.path, self._content(progress), private=True, durable=True)
        except OSError as error:
            # A failed save restarts the interval too, so that a full disk does not cost a try per
            # chunk.
            self._last, self._missed = time.monotonic(), 0
            old = "the one from before stays" if self.path.exists() else "there is none yet"
            return format_error(
                self.where,
                f"the checkpoint {self.path} could not be written ({error.strerror or error});"
                f" {old}.",
                "The run goes on, and tries again when the next one is due.",
                "free some space, or fix what the system reports.",
            )
        self._last, self._missed = time.monotonic(), 0
        self._cost = self._last - start
        self.saves += 1
        return None

    def _content(self, progress: CheckpointState) -> bytes:
        parts = dict(_plain(f"v{n}", np.asarray(x)) for n, x in progress.values.items())
        for i, arrays in enumerate(progress.state):
            parts.update(_plain(f"s{i:04}.{j:04}", np.asarray(x)) for j, x in enumerate(arrays))
        parts.update({f"r{name}": x for name, x in progress.known().items()})

        buffer = io.BytesIO()
        _savez(
            buffer,
            **{"pass": progress.index},
            key=json.dumps(self.key),
            at=progress.at,
            nodes=len(progress.state),
            **parts,
        )
        body = buffer.getvalue()
        return _MAGIC + hashlib.sha256(body).digest() + body

    def remove(self) -> None:
        """Remove the file, once the run is complete."""
        self.path.unlink(missing_ok=True)
        self._tidy()

    def _tidy(self) -> None:
        """Remove temporary files of runs that were killed while they wrote."""
        with suppress(OSError):
            for name in os.listdir(self.path.parent):  # noqa: PTH208 - the name may hold what a pattern means otherwise
                if name.startswith(self.path.name + UNFINISHED):
                    (self.path.parent / name).unlink(missing_ok=True)


def _interval(every: object, where: str) -> tuple[int | None, float | None]:
    """Parse `checkpoint_every` into chunks or seconds."""
    if every is None:
        return None, None
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return int(every), None
    if isinstance(every, str) and every.endswith("s"):
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


def _plain(name: str, x: NumPyArray) -> tuple[str, NumPyArray]:
    """Name and view of an array as `np.savez` can store it: `bfloat16` and other narrow floats of
    JAX are not NumPy types, so they are viewed as unsigned integers and the name records the dtype.
    """
    if x.dtype.kind != "V":
        return name, x
    return f"{name}@{x.dtype.name}", x.view(f"u{x.dtype.itemsize}")


def _restore_dtype(name: str, x: NumPyArray) -> NumPyArray:
    dtype = name.partition("@")[2]
    return x.view(np.dtype(dtype)) if dtype else x


# Pyright takes the names of the arrays for those of options.
_savez: Any = np.savez
