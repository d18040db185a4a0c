"""Run a function over data that does not fit into memory: the same passes as of `chunk=`, with the chunks read one by one.

It stands around a program: the loop is on the host, each chunk goes through one compiled step, and what is carried from chunk to chunk
stays on the device. While one chunk is worked on, the next is read.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ._axes import Chunked, Known, Passes
from ._errors import ContractError, JitneyError, sentence
from ._outcome import Outcome, unmixed
from ._plan import Plan
from ._stages import Chunk
from ._trees import canonicalize_dtype, is_a

if TYPE_CHECKING:
    from ._entry import Entry
    from ._program import Program

_jax: Any = jax


def stream(
    program: Program[..., Any],
    data: Mapping[str, Any],
    /,
    *,
    chunk: Mapping[str, int],
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Any:
    """Run a decorated function over data of any length, a chunk at a time.

    The results are those of one call on all of it, up to the order in which sums are added. As many passes are made over the data as the
    function needs: one for a mean, two for a variance. Memory holds two chunks, and results that have the axis.

    Args:
        program: A function under `@optimize`, without `pad`.
        data: Argument name -> value. Of an array with the axis, anything that has `shape` and `dtype` and can be sliced: a NumPy array or
            memory map, a Zarr or HDF5 array; the path of an `.npy` file; or a sequence of arrays, one behind the other. Everything else is
            passed whole.
        chunk: Axis name -> how many of its elements are read at a time.
        checkpoint: A file that keeps what has been accumulated, written once a second at most. Where it exists, the run goes on from there;
            when the run is over, it is removed.
        progress: Whether a bar shows how far the run is.

    Returns:
        What the function returns; arrays that have the axis are NumPy arrays.

    Raises:
        AxisError: An operation looks along the axis in a way that is not carried from chunk to chunk.
        ContractError: The data do not fit the contract, or no array has the axis.
        JitneyError: The checkpoint is of another run, or a result has the axis and cannot be kept in one.
    """
    axis, size = _one(program, chunk)
    sources = {name: _source(value) for name, value in data.items()}
    entry, arrays = program.abstract((), {name: _abstract(value) for name, value in sources.items()}, None)
    with entry.numbers():
        view = entry.planned(arrays).view
        stage = Chunk.of(view, replace(entry.request, nested=False), axis, size)
        if stage is None:
            raise ContractError(
                sentence(entry.core.where, f"no array has an axis {axis!r}.", "Data are cut along an axis that annotations name.",
                         "pass an array with it, or correct the name.")
            )  # fmt: skip
        values = [sources.get(leaf.path, array) for leaf, array in zip(view.leaves, arrays, strict=True)]
        if stage.size > size:
            return _Run(entry, stage, values, size)(checkpoint, progress=progress)
    return program(**{name: value[0 : value.shape[0]] if _is_sliceable(value) else value for name, value in sources.items()})


def _one(program: Any, chunk: Any) -> tuple[str, int]:
    if is_a(chunk, Mapping) and len(chunk) == 1:
        ((axis, size),) = chunk.items()
        if is_a(axis, str) and is_a(size, int) and not is_a(size, bool) and size > 0:
            return axis, size
    raise ContractError(
        sentence(str(program), f"chunk={chunk!r} does not say which axis is read how many elements at a time.", "One axis is cut.",
                 'write chunk={"points": 65536}.')
    )  # fmt: skip


class _Joined:
    """A sequence of arrays, read as one."""

    def __init__(self, parts: Sequence[Any]):
        self.parts = [_source(part) for part in parts]
        self.starts = np.cumsum([0, *(part.shape[0] for part in self.parts)])
        self.shape = (int(self.starts[-1]), *self.parts[0].shape[1:])
        self.dtype = self.parts[0].dtype

    def __getitem__(self, where: slice) -> np.ndarray[Any, Any]:
        found = [
            np.asarray(part[max(0, where.start - start) : where.stop - start])
            for part, start in zip(self.parts, self.starts, strict=False)
            if start < where.stop and start + part.shape[0] > where.start
        ]
        return np.concatenate(found) if found else np.empty((0, *self.shape[1:]), self.dtype)


def _source(value: Any) -> Any:
    """What can be sliced, of what was given."""
    if is_a(value, (str, Path)) and str(value).endswith(".npy"):
        return np.load(value, mmap_mode="r")
    if is_a(value, (list, tuple)) and len(value) > 0 and all(_is_sliceable(part) or is_a(part, (str, Path)) for part in value):
        return _Joined(value)
    return value


def _is_sliceable(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__") and len(value.shape) > 0


def _abstract(value: Any) -> Any:
    if _is_sliceable(value) and not is_a(value, (jax.Array, np.ndarray)):
        return jax.ShapeDtypeStruct(tuple(value.shape), canonicalize_dtype(value.dtype))
    return value


class _Run:
    """One run: the plan, the sources of what is streamed, and the compiled steps."""

    def __init__(self, entry: Entry, stage: Chunk, values: Sequence[Any], size: int):
        self.entry = entry
        self.stage = stage
        self.size = size
        self.total = stage.size
        self.outcome = Outcome()
        request = replace(entry.request, options=replace(entry.core.options, pad=(), chunk=(), memory=None))
        plan = Plan.make(stage.view, request)
        self.passes: Passes = stage.passes(entry.body_inside(plan, "chunk", self.outcome))
        stage.check(self.outcome)
        takes = self.passes.flat.takes
        self.streamed = {n: value for n, value in zip(takes, values, strict=True) if n in self.passes.streamed}
        self.fixed = [None if n in self.passes.streamed else x for n, x in zip(takes, values, strict=True)]

    def __call__(self, checkpoint: str | Path | None, *, progress: bool) -> Any:
        work = Chunked(self.passes, np.int32(self.total))
        emitted = {i: self._empty(i) for each in self.passes.passes for i in each.emits}
        kept = _Checkpoint(self, checkpoint, emitted) if checkpoint is not None else None
        known = work.known(self.fixed)
        first, at, state = 0, 0, None
        if kept is not None and kept.path.exists():
            first, at, computed, state = kept.read()
            known.values.update(computed)
        chunks = -(-self.total // self.size)
        total = len(self.passes.passes) * chunks
        with _bar(self.entry.core.name, total, first * chunks + at // self.size, show=progress) as advance:
            for p, each in enumerate(self.passes.passes[first:], first):
                if state is None:
                    work.settle(each.before, known)
                    state = work.start(each, known)
                step = self._step(work, each)
                for start, chunk in self._chunks(at):
                    count = min(self.size, self.total - start)
                    before = state
                    state, outs = step(known.values, state, chunk, np.int32(start), np.int32(count))
                    _jax.block_until_ready(before)  # so that no more than two chunks are under way
                    for i, out in zip(each.emits, outs, strict=True):
                        emitted[i][self._place(i, start, count)] = np.asarray(out)[self._place(i, 0, count)]
                    advance()
                    if kept is not None:
                        kept.write(p, start + count, known.values, state)
                work.finish(each, known, state)
                at, state = 0, None
        flat = work.results(known, emitted)
        if kept is not None:
            kept.path.unlink(missing_ok=True)
        return unmixed(self.outcome.output(flat))

    def _step(self, work: Chunked, each: Any) -> Any:
        def step(values: Any, state: Any, chunk: Any, start: Any, count: Any) -> Any:
            return work.step(each, Known(dict(values)), chunk, state, start, count, self.size)

        return _jax.jit(step)

    def _chunks(self, first: int) -> Iterator[tuple[int, dict[int, Any]]]:
        """The chunks from an element on, each read while the one before is worked on."""
        starts = range(first, self.total, self.size)
        if not starts:
            return
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, starts[0])
            for start in starts:
                chunk = coming.result()
                if start != starts[-1]:
                    coming = reader.submit(self._read, start + self.size)
                yield start, chunk

    def _read(self, start: int) -> dict[int, Any]:
        return {n: self._cut(n, source, start) for n, source in self.streamed.items()}

    def _cut(self, n: int, source: Any, start: int) -> Any:
        """One chunk of one array, as long as all of them: what is missing of the last repeats its last element."""
        axis = self.passes.axis(n)
        place = (*[slice(None)] * axis, slice(start, min(start + self.size, self.total)))
        part = np.array(source[place if axis else place[0]], dtype=self.passes.flat.dtypes[n])
        missing = self.size - part.shape[axis]
        return part if not missing else np.pad(part, [(0, missing if i == axis else 0) for i in range(part.ndim)], mode="edge")

    def _empty(self, i: int) -> np.ndarray[Any, Any]:
        n: Any = self.passes.flat.gives[i]
        shape = [self.total if j == self.passes.axis(n) else size for j, size in enumerate(self.passes.flat.dims[n])]
        return np.empty(shape, self.passes.flat.dtypes[n])

    def _place(self, i: int, start: int, count: int) -> tuple[slice, ...]:
        return (*[slice(None)] * self.passes.axis_of_result(i), slice(start, start + count))


@contextmanager
def _bar(name: str, total: int, done: int, *, show: bool) -> Generator[Callable[[], None]]:
    """A progress bar, or nothing at all; what it gives is called after each chunk."""
    if not show:
        yield lambda: None
        return
    with Progress(*_COLUMNS, transient=True) as bar:
        task = bar.add_task(name, total=total, completed=done)
        yield lambda: bar.advance(task)


class _Checkpoint:
    """What has been accumulated so far, in a file that is replaced as a whole."""

    def __init__(self, run: _Run, path: str | Path, emitted: Mapping[int, Any]):
        where = run.entry.core.where
        if emitted:
            raise JitneyError(
                sentence(where, f"a result has the axis {run.stage.axis!r}, and a checkpoint keeps what is accumulated only.",
                         "A run that goes on later has to find its results again.", "drop checkpoint=..., or return sums and their kin.")
            )  # fmt: skip
        self.path = Path(path)
        self.where = where
        self.given = set(run.passes.flat.takes)
        arguments = [(x.dtype.str, x.shape, x.tobytes()) for x in map(np.asarray, (x for x in run.fixed if x is not None))]
        text = repr([[(node.op.name, node.reads, node.makes) for node in run.passes.flat.nodes], run.size, run.total, arguments])
        self.key = hashlib.sha256(text.encode()).hexdigest()
        self.last = time.monotonic()

    def read(self) -> tuple[int, int, dict[int, Any], list[list[Any]]]:
        """Pass, element, what earlier passes have computed, and the state.

        Raises:
            JitneyError: The file is of another function, other arguments, another length of data or another chunk size.
        """
        with np.load(self.path, allow_pickle=False) as file:
            if str(file["key"]) != self.key:
                raise JitneyError(
                    sentence(self.where, f"the checkpoint {self.path} is of another run.",
                             "A run goes on with the function, arguments, length of data and chunk size that it began with.",
                             "give another file name, or remove the file to begin anew.")
                )  # fmt: skip
            p, at, nodes = (int(file[name]) for name in ("pass", "at", "nodes"))
            computed = {int(name[1:]): file[name] for name in file.files if name.startswith("v")}
            state = [[file[name] for name in sorted(file.files) if name.startswith(f"s{i:04}.")] for i in range(nodes)]
        return p, at, computed, state

    def write(self, p: int, at: int, values: Mapping[int, Any], state: Sequence[Sequence[Any]]) -> None:
        """Once a second at most, since it waits for the device."""
        if time.monotonic() - self.last < _SECONDS:
            return
        save: Any = np.savez
        parts = {f"v{n}": np.asarray(x) for n, x in values.items() if n not in self.given}
        parts.update({f"s{i:04}.{j:04}": np.asarray(x) for i, held in enumerate(state) for j, x in enumerate(held)})
        with tempfile.NamedTemporaryFile(dir=self.path.absolute().parent, prefix=self.path.name, delete=False) as file:
            save(file, **{"pass": p}, key=self.key, at=at, nodes=len(state), **parts)
        Path(file.name).replace(self.path)
        self.last = time.monotonic()


_SECONDS = 1.0
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("chunks"), TimeRemainingColumn())
