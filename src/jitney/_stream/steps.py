"""The compiled steps of a stream: what a chunk does to what is carried, planned once for one length
of data and one chunk size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._axes import Chunked, KnownValues, Passes
from .._errors import AxisError, ContractError
from .._jax.memory import Fit, counted_bytes, fit, text
from .._jax.primitives import spelled
from .._jax.trees import device_put
from .._stages import Chunk
from .._stages.plan import Plan
from .._stages.stage import named
from .._view.result import Outcome
from .placement import Laid
from .run_key import program_key
from .schedule import Schedule

if TYPE_CHECKING:
    from .._program.entry import Entry

_jax: Any = jax
CHUNK_BYTES = 256 * 2**20
"""How many bytes a step takes at most where nothing is said of memory, and what is held beside
it.
"""


class Runnable:
    """What a stream runs, for one length of data and one chunk size.

    Args:
        entry: The program.
        stage: The axis.
        laid: Where all of it lies.
        schedule: What is done when.
        outcome: Puts the results together.
    """

    begin: Sequence[Any]
    """Of each pass: the values that are known -> those that are computed from them, and the state
    that it starts with.
    """
    step: Sequence[Any]
    """Values, state, chunk, where that starts, and what is replayed -> state, and what comes out of
    the chunk.
    """
    rest: Sequence[Any]
    """The same of a chunk that the devices do not divide."""
    join: Sequence[Any]
    """The state, of all devices, and rounded."""
    end: Callable[..., Any]
    """Values -> results."""

    def __init__(
        self, entry: Entry, stage: Chunk, laid: Laid, schedule: Schedule, outcome: Outcome
    ):
        self.entry = entry
        self.stage = stage
        self.laid = laid
        self.schedule = schedule
        self.size = schedule.size
        self.total = stage.size
        self.outcome = outcome
        self.kept: str | None = None
        """What became of `cache="program"`, if it is asked for."""

    @property
    def program(self) -> str:
        """A digest of all that is computed, by which a checkpoint knows it again."""
        raise NotImplementedError

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Where each chunk starts, and how long it is."""
        starts = range(0, self.total, self.size)
        pieces = [(start, min(self.size, self.total - start)) for start in starts]
        start, count = pieces[-1]
        rest = count % self.laid.parts
        return [
            *pieces[:-1],
            *(
                (at, many)
                for at, many in ((start, count - rest), (start + count - rest, rest))
                if many
            ),
        ]

    def placed(self, n: int, x: Any, count: int | None = None) -> Any:
        """A value where it lies: an argument, or a chunk with so many elements of the axis."""
        if self.laid.place is None:
            return x
        divides = count is not None and count % self.laid.parts == 0
        return device_put(
            x,
            self.laid.sharding(
                self.schedule.takes.index(n), self.schedule.axes[n] if divides else None
            ),
        )


class Steps(Runnable):
    """What is planned and compiled once.

    Args:
        entry: The program.
        stage: The axis.
        laid: Where all of it lies.
        size: Of a chunk.
        like: Steps of another chunk size, whose plan is that of these too.
    """

    def __init__(
        self, entry: Entry, stage: Chunk, laid: Laid, size: int, like: Steps | None = None
    ):
        outcome, self.passes = (
            self._planned(entry, stage) if like is None else (like.outcome, like.passes)
        )
        self.work = Chunked(
            self.passes, np.int32(stage.size), laid.devices, is_spread=laid.place is not None
        )
        super().__init__(
            entry,
            stage,
            laid,
            Schedule.of(self.passes, self.work, laid.rounded(size), stage.size),
            outcome,
        )
        scopes = [
            f"{entry.core.name}/stream {stage.axis}/pass {number}"
            for number, _ in enumerate(self.passes.passes, 1)
        ]
        passes = list(zip(scopes, self.passes.passes, strict=True))
        self.begin = [
            _jax.jit(named(scope, laid.begin(self._begin(pass_)))) for scope, pass_ in passes
        ]
        self.step = [_jax.jit(named(scope, self._laid(pass_))) for scope, pass_ in passes]
        self.rest = [
            _jax.jit(named(scope, self._laid(pass_, whole=True))) for scope, pass_ in passes
        ]
        self.join = [
            _jax.jit(laid.join(partial(self.work.together, pass_))) for pass_ in self.passes.passes
        ]
        self.end = _jax.jit(self._end)

    @property
    def program(self) -> str:
        """A digest of every operation and constant."""
        text = repr([self.entry.core.name, program_key(self.passes), self.work.accumulators])
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def _planned(entry: Entry, stage: Chunk) -> tuple[Outcome, Passes]:
        outcome = Outcome()
        request = replace(
            entry.request,
            options=replace(entry.core.options, pad=(), chunk=(), memory=None),
            single="read in chunks",
        )
        passes = stage.passes(
            entry.body_inside(Plan.make(stage.view, request), Chunk, outcome), in_memory=False
        )
        _check_held(entry, stage, passes)
        _check_keys(entry, stage, passes)
        return outcome, passes

    def _laid(self, pass_: Any, *, whole: bool = False) -> Callable[..., Any]:
        ins = {n: self.passes.axis(n) for n in self.passes.flat.takes if n in self.passes.streamed}
        outs = [
            *(self.passes.axis_of_result(i) for i in pass_.emits),
            *map(self.passes.axis, pass_.collects),
        ]
        return self.laid.step(self._step(pass_), ins, outs, whole=whole)

    def bytes(self) -> int:
        """What a step takes on one device, by the compiler, and the chunk that is read
        meanwhile.
        """
        with self.passes.width:
            return self._bytes()

    def _bytes(self) -> int:
        takes, streamed = self.passes.flat.takes, self.passes.streamed
        avals = dict(zip(takes, (leaf.abstract() for leaf in self.stage.view.leaves), strict=True))
        values: dict[int, Any] = {
            n: self._lying(n, x) for n, x in avals.items() if n not in streamed
        }
        chunk = {n: self._cut(n, x) for n, x in avals.items() if n in streamed}
        number = jax.ShapeDtypeStruct((), np.int32)
        most = 0
        kept: Any = {}
        for p, pass_ in enumerate(self.passes.passes):
            new, state = _jax.eval_shape(self.begin[p], values)
            values.update(new)
            state = self.laid.accumulated(state)
            carried = (kept,) if pass_.replays else ()
            most = max(
                most,
                counted_bytes(self.step[p].lower(values, state, chunk, number, *carried).compile()),
            )
            kept.update(self.work.kept(pass_, state))
            for n in pass_.collects:
                values[n] = jax.ShapeDtypeStruct(
                    self.schedule.shapes[n], self.passes.flat.dtypes[n]
                )
            known = KnownValues(dict(values))
            self.work.finish(pass_, known, _jax.eval_shape(self.join[p], state))
            values.update(known.values)
        boundaries = self.passes.kept_bytes(-(-self.total // self.size))
        return (
            most
            + boundaries
            + sum(x.size * x.dtype.itemsize for x in chunk.values()) // self.laid.parts
        )

    def _cut(self, n: int, aval: Any) -> jax.ShapeDtypeStruct:
        axis = self.passes.axis(n)
        shape = (*aval.shape[:axis], self.size, *aval.shape[axis + 1 :])
        return self._lying(n, jax.ShapeDtypeStruct(shape, self.passes.flat.dtypes[n]), axis)

    def _lying(self, n: int, aval: Any, axis: int | None = None) -> jax.ShapeDtypeStruct:
        if self.laid.place is None:
            return aval
        return aval.update(sharding=self.laid.sharding(self.passes.flat.takes.index(n), axis))

    def _begin(self, pass_: Any) -> Callable[..., Any]:
        """What is computed once when the pass before is over, and the state that a pass starts
        with.
        """

        def begin(values: Any) -> Any:
            known = KnownValues(dict(values))
            self.work.settle(pass_.before, known)
            return _new(known, values), self.work.start(pass_, known)

        return begin

    def _step(self, pass_: Any) -> Callable[..., Any]:
        """One chunk. The last, shorter one is a program of its own: elements that do not count
        would have to be masked in each.
        """

        def step(
            values: Any, state: Any, chunk: Any, start: Any, kept: Any = None, *, here: Any = True
        ) -> Any:
            n = next(iter(chunk))
            count = chunk[n].shape[self.passes.axis(n)]
            return self.work.step(
                pass_,
                KnownValues(dict(values)),
                chunk,
                state,
                start,
                count,
                count,
                kept=kept,
                here=here,
            )

        return step

    def _end(self, values: Any) -> Any:
        """What is computed from what all passes have accumulated: the results that do not have the
        axis.
        """
        emitted: dict[int, Any] = {i: None for pass_ in self.passes.passes for i in pass_.emits}
        # here the devices work as one
        on_all = Chunked(self.passes, np.int32(self.total), is_spread=self.work.is_spread)
        return on_all.results(KnownValues(dict(values)), emitted)


def widest(entry: Entry, stage: Chunk, laid: Laid, budget: int) -> tuple[Steps, Fit]:
    """The steps whose chunks are as long as the budget allows; the width that fits is that on one
    device.

    Raises:
        AxisError: The axis cannot be cut.
        Misfit: Not one element fits.
    """
    first = Steps(entry, stage, laid, 1)
    made: dict[int, Steps] = {}

    def measure(width: int) -> int:
        made[width] = Steps(entry, stage, laid, width * laid.parts, first)
        return made[width].bytes()

    fitting = fit(measure, stage.suiting(first.passes), budget)
    return made[fitting.width], fitting


def _new(known: KnownValues, values: Mapping[int, Any]) -> dict[int, Any]:
    return {n: x for n, x in known.values.items() if n not in values}


def _check_held(entry: Entry, stage: Chunk, passes: Passes) -> None:
    """A stream is of any length: what has to be there as a whole is read into memory if that is
    small, as a chunk is.
    """
    held, budget = passes.held_bytes(stage.size), stage.budget or CHUNK_BYTES
    if held > budget:
        op = passes.at_once[0].op
        raise AxisError(
            entry.core.where,
            f"axis {stage.axis!r} cannot be read in chunks: {op.place or 'it'} needs all of it at"
            f" once (`{spelled(op.name)}`), {text(held)} of {text(budget)}.",
            "A sort and its kin are done on the whole, which a stream holds if it is as small as"
            " what `memory` allows.",
            f"give the function memory={held} or more, or call it with `chunk`, on data that are in"
            " memory.",
            code="J230",
        )


def _check_keys(entry: Entry, stage: Chunk, passes: Passes) -> None:
    """Keys are no numbers of the host's: there are none in files, and NumPy has no arrays of
    them.
    """
    out: list[Any] = [passes.flat.gives[i] for pass_ in passes.passes for i in pass_.emits]
    out += [n for pass_ in passes.passes for n in pass_.collects]
    for n in {n for n in passes.flat.takes if n in passes.streamed} | set(out):
        if _jax.dtypes.issubdtype(passes.flat.dtypes[n], _jax.dtypes.prng_key):
            raise ContractError(
                entry.core.where,
                f"an array of random keys has the axis {stage.axis!r}.",
                "Chunks are read from the host, which has no keys.",
                "pass one key, and `jax.random.fold_in` the number of an element; or call the"
                " function with `chunk`.",
                code="J218",
            )
