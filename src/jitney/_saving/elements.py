"""What is one element of an array along its first axis: weights that were stacked, and what the
turns of a loop have made.

Layers that read elements of one array, one behind the other, need no copies of them to become a
loop, and what is put together of the turns of a loop is what the loop has made. So a value that is
an element is cut out where something asks for it alone, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from .._jax.trees import is_a
from .chain import Chain
from .flat import FlatProgram, Step

_jax: Any = jax


@dataclass(frozen=True, eq=False)
class Turns:
    """What each turn of a loop has made, as one array; while it is decided, which."""

    array: Any


Parts = dict[int, tuple[Any, int]]
"""What is one element along the first axis of an array, by number: of which (a value, by number, or
turns of a loop) and at which place.
"""


def parts_of(flat: FlatProgram) -> dict[int, tuple[int, int]]:
    """What is one element along the first axis of an array: which array, and at which place."""
    parts: dict[int, tuple[int, int]] = {}
    rows: dict[int, tuple[int, int]] = {}
    for step in flat.steps:
        if step.name == "slice" and step.numbers:
            start, stop, strides = (
                step.eqn.params[name] for name in ("start_indices", "limit_indices", "strides")
            )
            shape = flat.avals[step.numbers[0]].shape
            whole = (
                not any(start[1:])
                and tuple(stop[1:]) == tuple(shape[1:])
                and all(each == 1 for each in strides or ())
            )
            if whole and stop[0] == start[0] + 1:
                rows[step.makes[0]] = (step.numbers[0], start[0])
        elif (
            step.name == "squeeze"
            and step.numbers
            and step.numbers[0] in rows
            and tuple(step.eqn.params["dimensions"]) == (0,)
        ):
            parts[step.makes[0]] = rows[step.numbers[0]]
    return parts


def is_at_hand(flat: FlatProgram, row: Sequence[int], parts: Parts, *, is_last: bool) -> bool:
    """Whether nothing is copied to have what is each layer's own in one array."""
    of_one = _array(row, parts)
    if of_one is None:
        return False
    array, places = of_one
    return (
        is_last or is_a(array, Turns) or (flat.avals[array].shape[0] == len(row) and places[0] == 0)
    )


def made_by(chain: Chain, turns: Mapping[int, Turns]) -> Iterator[tuple[int, tuple[Turns, int]]]:
    """What the layers of a loop make that is read elsewhere: of what it is a part then, and at
    which place.
    """
    for made in chain.wanted:
        for k in range(chain.layers):
            yield chain.makes[k][made], (turns[made], k)


def _array(row: Sequence[int], parts: Parts) -> tuple[Any, list[int]] | None:
    """The one array that values are the elements of, and their places, one behind the other or
    before it; None if there is none.
    """
    elements = [parts[n] for n in row if n in parts]
    if len(elements) < len(row) or any(
        array is not elements[0][0] and array != elements[0][0] for array, _ in elements
    ):
        return None
    places = [place for _, place in elements]
    return (elements[0][0], places) if {b - a for a, b in pairwise(places)} in ({1}, {-1}) else None


class Values:
    """The values of a program while it runs, by number.

    Args:
        flat: The program.
        env: Those that are there; what is cut out joins them.
        is_last: Whether layers may pick what is theirs out of arrays of more.
    """

    def __init__(self, flat: FlatProgram, env: dict[int, Any], *, is_last: bool):
        self.env = env
        self.parts: Parts = dict(parts_of(flat))
        self._is_last = is_last

    def value(self, n: int) -> Any:
        """One of them, cut out if it is an element."""
        if n not in self.env:
            array, at = self.parts[n]
            whole = array.array if is_a(array, Turns) else self.value(array)
            self.env[n] = _jax.lax.index_in_dim(whole, at, keepdims=False)
        return self.env[n]

    def read(self, ref: Any) -> Any:
        """What an operation reads: a value, by its number, or one that is written into the
        program.
        """
        return self.value(ref) if isinstance(ref, int) else ref.value

    def together(self, step: Step) -> Any:
        """What is put one behind the other. What a loop has made in turns that follow one another
        is one array already.
        """
        runs: list[tuple[Any, list[Any]]] = []  # of turns, their places; of None, one value
        for ref in step.reads:
            turns, at = (
                self.parts.get(ref, (None, 0))
                if isinstance(ref, int) and ref not in self.env
                else (None, 0)
            )
            if not is_a(turns, Turns):
                runs.append((None, [self.read(ref)]))
            elif runs and runs[-1][0] is turns and _follows(runs[-1][1], at):
                runs[-1][1].append(at)
            else:
                runs.append((turns, [at]))
        pieces = [
            which[0] if turns is None else _flat_run(turns.array, which) for turns, which in runs
        ]
        return pieces[0] if len(pieces) == 1 else _jax.lax.concatenate(pieces, 0)

    def stacked(self, row: Sequence[int]) -> tuple[Any, Any]:
        """What is each layer's own, as one array; or an array and which of its elements each layer
        reads.
        """
        of_one = _array(row, self.parts)
        if of_one is None:
            return None, _jax.numpy.stack([self.value(n) for n in row])
        array, places = of_one
        whole = array.array if is_a(array, Turns) else self.value(array)
        if places == list(range(whole.shape[0])):
            return None, whole
        if self._is_last or is_a(array, Turns):
            return whole, np.asarray(places, np.int32)
        return None, _run_of(whole, places)


def _follows(places: Sequence[int], at: int) -> bool:
    """Whether a place is the next one, in either direction."""
    step = at - places[-1]
    return abs(step) == 1 and (len(places) == 1 or step == places[1] - places[0])


def _run_of(whole: Any, places: Sequence[int]) -> Any:
    """Elements of an array that follow one another, in either direction."""
    part = _jax.lax.slice_in_dim(whole, min(places), max(places) + 1)
    return part if places[0] == min(places) else _jax.lax.rev(part, (0,))


def _flat_run(whole: Any, places: Sequence[int]) -> Any:
    """The same, put one behind the other."""
    part = _run_of(whole, places)
    return _jax.lax.reshape(part, (part.shape[0] * part.shape[1], *part.shape[2:]))
