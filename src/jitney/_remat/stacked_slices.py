"""Elements of arrays along their first axis, kept lazy: slices of stacked weights, and stacked
outputs of a scan.

Layers that read consecutive elements of one array need no copies of them to become a loop: the
array is the input of the scan. A concatenation of the outputs of all iterations is the output of
the scan. So an element is sliced only where something reads it alone.

    w0 = squeeze w[0:1]; w1 = squeeze w[1:2]; ...   ->   parts = {w0: (w, 0), w1: (w, 1), ...}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from .chain import Chain
from .flat import FlatProgram, Step


@dataclass(frozen=True, eq=False)
class ScanOutputs:
    """Stacked outputs of a scan. During planning, `array` is a placeholder."""

    array: Any


Parts = dict[int, tuple[Any, int]]
"""Element -> (array, index along its first axis). The array is the number of a value, or the
outputs of a scan.
"""


def parts_of(flat: FlatProgram) -> dict[int, tuple[int, int]]:
    """Values of a program that are one element along the first axis of an array."""
    parts: dict[int, tuple[int, int]] = {}
    rows: dict[int, tuple[int, int]] = {}
    for step in flat.steps:
        if step.name == "slice" and step.numbers:
            start, stop, strides = (
                step.eqn.params[name] for name in ("start_indices", "limit_indices", "strides")
            )
            shape = flat.avals[step.numbers[0]].shape
            # One full row: `slice` of length 1 along the first axis only, then `squeeze` of that
            # axis.
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
    """Return whether an operand that differs between layers is one array already, so that no
    copy is needed.
    """
    of_one = _array(row, parts)
    if of_one is None:
        return False
    array, places = of_one
    return (
        is_last
        or isinstance(array, ScanOutputs)
        or (flat.avals[array].shape[0] == len(row) and places[0] == 0)
    )


def made_by(
    chain: Chain, turns: Mapping[int, ScanOutputs]
) -> Iterator[tuple[int, tuple[ScanOutputs, int]]]:
    """Values of the layers that are read elsewhere, each as an element of the outputs of the
    scan.
    """
    for made in chain.outputs:
        for k in range(chain.layers):
            yield chain.makes[k][made], (turns[made], k)


def _array(row: Sequence[int], parts: Parts) -> tuple[Any, list[int]] | None:
    """Array that has these values as consecutive elements, in either direction, with their
    indices; None if there is none.
    """
    elements = [parts[n] for n in row if n in parts]
    if len(elements) < len(row) or any(
        array is not elements[0][0] and array != elements[0][0] for array, _ in elements
    ):
        return None
    places = [place for _, place in elements]
    return (elements[0][0], places) if {b - a for a, b in pairwise(places)} in ({1}, {-1}) else None


class Values:
    """Environment of a running program, by number of the value. Elements are sliced on demand.

    Args:
        flat: The program.
        env: Values that exist; slices are added.
        is_last: Whether layers may index arrays of more elements than they read.
    """

    def __init__(self, flat: FlatProgram, env: dict[int, Any], *, is_last: bool):
        self.env = env
        self.parts: Parts = dict(parts_of(flat))
        self._is_last = is_last

    def value(self, n: int) -> Any:
        """Value with this number, sliced if it is an element."""
        if n not in self.env:
            array, at = self.parts[n]
            whole = array.array if isinstance(array, ScanOutputs) else self.value(array)
            self.env[n] = jax.lax.index_in_dim(whole, at, keepdims=False)
        return self.env[n]

    def read(self, ref: Any) -> Any:
        """Operand of an equation: a value by its number, or a constant of the program."""
        return self.value(ref) if isinstance(ref, int) else ref.value

    def together(self, step: Step) -> Any:
        """Concatenate the operands of a step.

        Consecutive outputs of a scan are one array already.
        """
        # Runs of consecutive outputs of one scan, with their indices; a run of None is a single
        # value.
        runs: list[tuple[Any, list[Any]]] = []
        for ref in step.reads:
            turns, at = (
                self.parts.get(ref, (None, 0))
                if isinstance(ref, int) and ref not in self.env
                else (None, 0)
            )
            if not isinstance(turns, ScanOutputs):
                runs.append((None, [self.read(ref)]))
            elif runs and runs[-1][0] is turns and _follows(runs[-1][1], at):
                runs[-1][1].append(at)
            else:
                runs.append((turns, [at]))
        pieces = [
            which[0] if turns is None else _flat_run(turns.array, which) for turns, which in runs
        ]
        return pieces[0] if len(pieces) == 1 else jax.lax.concatenate(pieces, 0)

    def stacked(self, row: Sequence[int]) -> tuple[Any, Any]:
        """Operand that differs between layers, as rows of a scan: (None, stacked array), or
        (array, index of the element for each layer).
        """
        of_one = _array(row, self.parts)
        if of_one is None:
            return None, jax.numpy.stack([self.value(n) for n in row])
        array, places = of_one
        whole = array.array if isinstance(array, ScanOutputs) else self.value(array)
        # No copy: the whole array. Else an index into it per iteration, or a slice of it.
        if places == list(range(whole.shape[0])):
            return None, whole
        if self._is_last or isinstance(array, ScanOutputs):
            return whole, np.asarray(places, np.int32)
        return None, _run_of(whole, places)


def _follows(places: Sequence[int], at: int) -> bool:
    """Return whether an index continues a run of indices, in either direction."""
    step = at - places[-1]
    return abs(step) == 1 and (len(places) == 1 or step == places[1] - places[0])


def _run_of(whole: Any, places: Sequence[int]) -> Any:
    """Consecutive elements of an array, in either direction."""
    part = jax.lax.slice_in_dim(whole, min(places), max(places) + 1)
    return part if places[0] == min(places) else jax.lax.rev(part, (0,))


def _flat_run(whole: object, places: Sequence[int]) -> Any:
    """Consecutive elements of an array, concatenated along the next axis."""
    part = _run_of(whole, places)
    return jax.lax.reshape(part, (part.shape[0] * part.shape[1], *part.shape[2:]))
