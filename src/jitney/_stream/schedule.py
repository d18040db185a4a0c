"""What a stream does when, as plain data: its passes over the chunks, by the numbers of the values
that they take and give.

The loop in `stream.py` follows it; what it calls is compiled (`steps.py`), or comes from another
process (`kept_steps.py`), where nobody has the program that it was planned from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from .._axes import Chunked, Passes, evaluate

_jax: Any = jax


@dataclass(frozen=True)
class Turn:
    """One pass over the chunks.

    Args:
        back: Whether it begins with the last.
        emits: The positions of the results that come out chunk by chunk, each with its number.
        collects: Of the values whose chunks are put together, the numbers.
        replays: Whether it takes what an earlier pass kept of each chunk.
        keeps: What it keeps: a number, and of which of its states.
        makes: Of each of its states, the numbers of what is known by it when it is over.
    """

    back: bool
    emits: tuple[tuple[int, int], ...]
    collects: tuple[int, ...]
    replays: bool
    keeps: tuple[tuple[int, int], ...]
    makes: tuple[tuple[int, ...], ...]

    def kept(self, state: Sequence[Any]) -> dict[int, Any]:
        """What is kept of the states before a chunk."""
        return {number: state[at] for number, at in self.keeps}

    def known(self, state: Sequence[Any]) -> dict[int, Any]:
        """What the states are when it is over."""
        return {
            n: x
            for numbers, held in zip(self.makes, state, strict=True)
            for n, x in zip(numbers, held, strict=False)
        }


@dataclass(frozen=True)
class Schedule:
    """All passes.

    Args:
        size: Of a chunk.
        takes: The numbers of the arguments.
        streamed: Of those that have the axis.
        axes: Where the arguments and results have it that are cut.
        shapes: Theirs as a whole.
        dtypes: Theirs.
        turns: The passes.
        is_wide: Whether the numbers live in a scope of 64 bits that is not the caller's.
    """

    size: int
    takes: tuple[int, ...]
    streamed: tuple[int, ...]
    axes: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]
    dtypes: Mapping[int, np.dtype[Any]]
    turns: tuple[Turn, ...]
    is_wide: bool

    @classmethod
    def of(cls, passes: Passes, work: Chunked, size: int, total: int) -> Self:
        """What was planned, for chunks of a size."""
        turns = tuple(_turn(passes, work, pass_) for pass_ in passes.passes)
        streamed = tuple(n for n in passes.flat.takes if n in passes.streamed)
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
        """The scope in which the numbers live."""
        return _jax.enable_x64(True) if self.is_wide else nullcontext()  # noqa: FBT003

    def written(self) -> Any:
        """It as plain data."""
        cut = [[n, self.axes[n], self.shapes[n], self.dtypes[n].name] for n in sorted(self.axes)]
        turns = [
            [turn.back, turn.emits, turn.collects, turn.replays, turn.keeps, turn.makes]
            for turn in self.turns
        ]
        return [self.size, self.takes, self.streamed, cut, turns, self.is_wide]

    @classmethod
    def read(cls, said: Any) -> Self:
        """What was written."""
        size, takes, streamed, cut, turns, is_wide = said
        return cls(
            size,
            tuple(takes),
            tuple(streamed),
            {n: axis for n, axis, _, _ in cut},
            {n: tuple(shape) for n, _, shape, _ in cut},
            {n: _jax.numpy.dtype(name) for n, _, _, name in cut},
            tuple(map(_read_turn, turns)),
            is_wide,
        )


def _turn(passes: Passes, work: Chunked, pass_: Any) -> Turn:
    states = pass_.states(passes.streamed)
    firsts = [node.makes[0] for node in states]
    emits: list[Any] = [(position, passes.flat.gives[position]) for position in pass_.emits]
    keeps = tuple((n, firsts.index(n)) for n in pass_.keeps)
    makes = tuple(tuple(work.accumulated(node)) for node in states)
    return Turn(pass_.back, tuple(emits), tuple(pass_.collects), bool(pass_.replays), keeps, makes)


def _read_turn(said: Any) -> Turn:
    back, emits, collects, replays, keeps, makes = said
    pairs = [tuple((first, second) for first, second in part) for part in (emits, keeps)]
    return Turn(
        back,
        pairs[0],
        tuple(collects),
        replays,
        pairs[1],
        tuple(tuple(numbers) for numbers in makes),
    )
