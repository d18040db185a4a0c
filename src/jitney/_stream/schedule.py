"""Schedule of a stream as plain data: its passes over the chunks, with values named by their
numbers.

The loop in `stream.py` follows the schedule. The functions that it calls are compiled in
`steps.py`, or come from another process (`kept_steps.py`), where the program that was planned does
not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from .._axes import Chunked, Passes, evaluate


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
    """

    back: bool
    emits: tuple[tuple[int, int], ...]
    collects: tuple[int, ...]
    replays: bool
    keeps: tuple[tuple[int, int], ...]
    makes: tuple[tuple[int, ...], ...]

    def kept(self, state: Sequence[object]) -> dict[int, Any]:
        """Carries to save before a chunk, by number."""
        return {number: state[at] for number, at in self.keeps}

    def known(self, state: Sequence[Any]) -> dict[int, Any]:
        """Values that the final states give, by number."""
        return {
            n: x
            for numbers, held in zip(self.makes, state, strict=True)
            for n, x in zip(numbers, held, strict=False)
        }


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
    dtypes: Mapping[int, np.dtype[Any]]
    turns: tuple[ScheduledPass, ...]
    is_wide: bool

    @classmethod
    def of(cls, passes: Passes, work: Chunked, size: int, total: int) -> Self:
        """Schedule of planned passes, for one chunk size and one length of the axis."""
        turns = tuple(_turn(passes, work, pass_) for pass_ in passes.passes)
        streamed = tuple(n for n in passes.flat.takes if n in passes.streamed)

        # Values that exist in chunks: the streamed arguments, collected values and emitted results.
        cut = {
            *streamed,
            *(n for turn in turns for n in (*turn.collects, *(number for _, number in turn.emits))),
        }
        shapes = {
            n: tuple(evaluate(dim, {passes.symbol: total}) for dim in passes.flat.dims[n])
            for n in cut
        }
        is_wide = type(passes.width) is not nullcontext
        return cls(
            size,
            tuple(passes.flat.takes),
            streamed,
            {n: passes.axis(n) for n in cut},
            shapes,
            {n: passes.flat.dtypes[n] for n in cut},
            turns,
            is_wide,
        )

    @property
    def width(self) -> AbstractContextManager[Any]:
        """Context in which 64-bit values of the program keep their dtype."""
        return jax.enable_x64(True) if self.is_wide else nullcontext()  # noqa: FBT003

    def written(self) -> Any:
        """The schedule as JSON data; `read` is the inverse."""
        cut = [[n, self.axes[n], self.shapes[n], self.dtypes[n].name] for n in sorted(self.axes)]
        turns = [
            [turn.back, turn.emits, turn.collects, turn.replays, turn.keeps, turn.makes]
            for turn in self.turns
        ]
        return [self.size, self.takes, self.streamed, cut, turns, self.is_wide]

    @classmethod
    def read(cls, said: Any) -> Self:
        """Rebuild a schedule from `written`."""
        size, takes, streamed, cut, turns, is_wide = said
        return cls(
            size,
            tuple(takes),
            tuple(streamed),
            {n: axis for n, axis, _, _ in cut},
            {n: tuple(shape) for n, _, shape, _ in cut},
            {n: jax.numpy.dtype(name) for n, _, _, name in cut},
            tuple(map(_read_turn, turns)),
            is_wide,
        )


def _turn(passes: Passes, work: Chunked, pass_: Any) -> ScheduledPass:
    states = pass_.states(passes.streamed)
    firsts = [node.makes[0] for node in states]
    emits = [(position, passes.flat.gives[position]) for position in pass_.emits]
    keeps = tuple((n, firsts.index(n)) for n in pass_.keeps)
    makes = tuple(tuple(work.accumulated(node)) for node in states)
    return ScheduledPass(
        pass_.back, tuple(emits), tuple(pass_.collects), bool(pass_.replays), keeps, makes
    )


def _read_turn(said: Any) -> ScheduledPass:
    back, emits, collects, replays, keeps, makes = said
    pairs = [tuple((first, second) for first, second in part) for part in (emits, keeps)]
    return ScheduledPass(
        back,
        pairs[0],
        tuple(collects),
        replays,
        pairs[1],
        tuple(tuple(numbers) for numbers in makes),
    )
