"""Schedule of a stream as plain data: its passes over the chunks, with values named by their
numbers.

The loop in `stream_run.py` follows the schedule. The functions that it calls are compiled in
`steps.py`, or come from another process (`chosen_steps.py`), where the program that was planned
does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import jax

from .._axes import Chunked, Passes, evaluate
from .._jax.programs.ssa import numbers_of
from .._jax.typed import Array, DType

if TYPE_CHECKING:
    from .._axes.chunks.passes import Pass

T = TypeVar("T")
Values = Mapping[int, Array]
"""Values that do not have the axis, or are there as a whole, by their numbers."""
Carry = Sequence[Sequence[Array]]
"""Carry of a pass: for each accumulating operation its arrays."""


@dataclass(frozen=True)
class ScheduledPass:
    """Pass over the chunks.

    Args:
        back: Whether the pass runs from the last chunk to the first.
        emits: Pairs of the position of a result that comes out chunk by chunk, and its number.
        collects: Numbers of the values whose chunks are put together.
        replays: Whether it takes the carries that an earlier pass saved for each chunk.
        keeps: Carries to save before each chunk: pairs of a number and an index into the states.
        makes: For each state, the numbers of the values that are known from it after the pass.
        counts: Indices of the states that are numbers of iterations. Such a pass is repeated, from
            the numbers that are known so far, until they stay as they are.
    """

    back: bool
    emits: tuple[tuple[int, int], ...]
    collects: tuple[int, ...]
    replays: bool
    keeps: tuple[tuple[int, int], ...]
    makes: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...] = ()

    @property
    def sweeps(self) -> int:
        """How often the pass goes over the data, at least."""
        return 2 if self.counts else 1

    def stored_carries(self, state: Sequence[T]) -> dict[int, T]:
        """Carries to save before a chunk, by number."""
        return {number: state[at] for number, at in self.keeps}

    def final_values(self, state: Sequence[Sequence[T]]) -> dict[int, T]:
        """Values that the final states give, by number."""
        values: dict[int, T] = {}
        for numbers, arrays in zip(self.makes, state, strict=True):
            values.update(zip(numbers, arrays, strict=False))
        return values


@dataclass(frozen=True)
class PassSchedule:
    """Passes of a stream, in order.

    Args:
        size: Number of elements in a chunk.
        takes: Numbers of the arguments.
        streamed: Numbers of the arguments that have the axis.
        axes: Position of the axis in each argument and result that is cut.
        shapes: Full shape of each of these.
        dtypes: Dtype of each of these.
        turns: The passes.
        is_wide: Whether the program has 64-bit values while the caller's `jax_enable_x64` is off.
    """

    size: int
    takes: tuple[int, ...]
    streamed: tuple[int, ...]
    axes: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]
    dtypes: Mapping[int, DType]
    turns: tuple[ScheduledPass, ...]
    is_wide: bool

    @classmethod
    def of(
        cls,
        passes: Passes,
        work: Chunked,
        size: int,
        total: int,
    ) -> Self:
        """Schedule of planned passes, for one chunk size and one length of the axis."""
        turns = tuple(_turn(passes, work, pass_) for pass_ in passes.passes)
        streamed = tuple(n for n in passes.flat.takes if n in passes.streamed)

        # Values that exist in chunks: the streamed arguments, collected values and emitted results.
        cut = set(streamed)
        for turn in turns:
            cut.update(turn.collects)
            cut.update(number for _, number in turn.emits)

        sizes = {passes.symbol: total}
        flat = passes.flat
        return cls(
            size,
            tuple(flat.takes),
            streamed,
            axes={n: passes.axis(n) for n in cut},
            shapes={n: tuple(evaluate(dim, sizes) for dim in flat.dims[n]) for n in cut},
            dtypes={n: flat.dtypes[n] for n in cut},
            turns=turns,
            is_wide=type(passes.x64) is not nullcontext,
        )

    @property
    def width(self) -> AbstractContextManager[object]:
        """Context in which 64-bit values of the program keep their dtype."""
        return jax.enable_x64(True) if self.is_wide else nullcontext()  # noqa: FBT003

    def chunk(self, n: int, length: int) -> jax.ShapeDtypeStruct:
        """Return the abstract value of a chunk with `length` elements of the axis."""
        shape, axis = self.shapes[n], self.axes[n]
        part = (*shape[:axis], length, *shape[axis + 1 :])
        return jax.ShapeDtypeStruct(part, self.dtypes[n])

    def whole(self, n: int) -> jax.ShapeDtypeStruct:
        """Return the abstract value of all chunks together."""
        return jax.ShapeDtypeStruct(self.shapes[n], self.dtypes[n])

    def to_data(self) -> list[object]:
        """The schedule as JSON data; `read` is the inverse."""
        axes = sorted(self.axes.items())
        cut = [[n, axis, self.shapes[n], self.dtypes[n].name] for n, axis in axes]
        turns = list(map(_written_turn, self.turns))
        return [self.size, self.takes, self.streamed, cut, turns, self.is_wide]

    @classmethod
    def read(cls, data: Any) -> Self:
        """Rebuild a schedule from `to_data`."""
        size, takes, streamed, cut, turns, is_wide = data
        return cls(
            size,
            tuple(takes),
            tuple(streamed),
            axes={n: axis for n, axis, _, _ in cut},
            shapes={n: tuple(shape) for n, _, shape, _ in cut},
            dtypes={n: jax.numpy.dtype(name) for n, _, _, name in cut},
            turns=tuple(map(_read_turn, turns)),
            is_wide=is_wide,
        )


def _turn(passes: Passes, work: Chunked, pass_: Pass) -> ScheduledPass:
    states = pass_.states(passes.streamed)
    firsts = [node.makes[0] for node in states]
    emitted = numbers_of(passes.flat.gives[i] for i in pass_.emits)
    return ScheduledPass(
        pass_.back,
        emits=tuple(zip(pass_.emits, emitted, strict=True)),
        collects=tuple(pass_.collects),
        replays=bool(pass_.replays),
        keeps=tuple((n, firsts.index(n)) for n in pass_.keeps),
        makes=tuple(tuple(work.accumulator_numbers(node)) for node in states),
        counts=tuple(work.places_of_counts(pass_)),
    )


def _written_turn(turn: ScheduledPass) -> list[object]:
    return [
        turn.back,
        turn.emits,
        turn.collects,
        turn.replays,
        turn.keeps,
        turn.makes,
        *turn.counts,
    ]


def _read_turn(data: Any) -> ScheduledPass:
    # What an earlier jitney has written counts nothing.
    back, emits, collects, replays, keeps, makes, *counts = data
    return ScheduledPass(
        back,
        emits=tuple((position, number) for position, number in emits),
        collects=tuple(collects),
        replays=replays,
        keeps=tuple((number, index) for number, index in keeps),
        makes=tuple(tuple(numbers) for numbers in makes),
        counts=tuple(counts),
    )
