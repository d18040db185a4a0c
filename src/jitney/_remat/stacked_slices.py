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

from .._jax.programs.ssa import FlatProgram, Ref, Step
from .._jax.typed import Array
from .chain import Chain


@dataclass(frozen=True, eq=False)
class ScanOutputs:
    """Stacked outputs of a scan. During planning, `array` is a placeholder."""

    array: Any


Parts = dict[int, tuple[int | ScanOutputs, int]]
"""Element -> (array, index along its first axis). The array is the number of a value, or the
outputs of a scan.
"""


def parts_of(flat: FlatProgram) -> dict[int, tuple[int, int]]:
    """Values of a program that are one element along the first axis of an array."""
    parts: dict[int, tuple[int, int]] = {}
    rows: dict[int, tuple[int, int]] = {}
    for step in flat.steps:
        if not step.numbers:
            continue
        array = step.numbers[0]
        if step.name == "slice":
            index = _row_index(step, flat.avals[array].shape)
            if index is not None:
                rows[step.makes[0]] = (array, index)
        elif step.name == "squeeze" and array in rows:
            dimensions = tuple(step.eqn.params["dimensions"])
            if dimensions == (0,):
                parts[step.makes[0]] = rows[array]
    return parts


def _row_index(step: Step, shape: tuple[int, ...]) -> int | None:
    """Index of the one full row that a slice reads along the first axis; None for others."""
    params = step.eqn.params
    first, *starts = params["start_indices"]
    end, *stops = params["limit_indices"]
    strides = params["strides"] or ()
    if any(stride != 1 for stride in strides):
        return None
    if any(starts) or tuple(stops) != tuple(shape[1:]):
        return None
    return first if end == first + 1 else None


def is_at_hand(
    flat: FlatProgram,
    row: Sequence[int],
    parts: Parts,
    *,
    is_last: bool,
) -> bool:
    """Return whether an operand that differs between layers is one array already, so that no
    copy is needed.
    """
    of_one = _array(row, parts)
    if of_one is None:
        return False
    array, places = of_one
    if is_last or isinstance(array, ScanOutputs):
        return True
    return flat.avals[array].shape[0] == len(row) and places[0] == 0


def layer_results(
    chain: Chain, outputs: Mapping[int, ScanOutputs]
) -> Iterator[tuple[int, tuple[ScanOutputs, int]]]:
    """Values of the layers that are read elsewhere, each as an element of the outputs of the
    scan.
    """
    for index in chain.outputs:
        stacked = outputs[index]
        for k in range(chain.layers):
            yield chain.makes[k][index], (stacked, k)


def _array(row: Sequence[int], parts: Parts) -> tuple[int | ScanOutputs, list[int]] | None:
    """Array that has these values as consecutive elements, in either direction, with their
    indices; None if there is none.
    """
    elements = [parts[n] for n in row if n in parts]
    if not elements or len(elements) < len(row):
        return None
    array, _ = elements[0]
    # Outputs of a scan are compared by identity.
    if any(other != array for other, _ in elements):
        return None
    places = [place for _, place in elements]
    steps = {after - before for before, after in pairwise(places)}
    return (array, places) if steps in ({1}, {-1}) else None


class Values:
    """Environment of a running program, by number of the value. Elements are sliced on demand.

    Args:
        flat: The program.
        env: Values that exist; slices are added.
        is_last: Whether layers may index arrays of more elements than they read.
    """

    def __init__(
        self,
        flat: FlatProgram,
        env: dict[int, Array],
        *,
        is_last: bool,
    ):
        self.env = env
        self.parts: Parts = dict(parts_of(flat))
        self._is_last = is_last

    def value(self, n: int) -> Array:
        """Value with this number, sliced if it is an element."""
        if n not in self.env:
            array, at = self.parts[n]
            whole = self._whole(array)
            self.env[n] = jax.lax.index_in_dim(whole, at, keepdims=False)
        return self.env[n]

    def _whole(self, array: int | ScanOutputs) -> Array:
        return array.array if isinstance(array, ScanOutputs) else self.value(array)

    def read(self, ref: Ref) -> Array:
        """Operand of an equation: a value by its number, or a constant of the program."""
        return self.value(ref) if isinstance(ref, int) else ref.value

    def concatenate(self, step: Step) -> Array:
        """Concatenate the operands of a step.

        Consecutive outputs of a scan are one array already.
        """
        # Runs of consecutive outputs of one scan, with their indices; or a single value.
        runs: list[tuple[ScanOutputs, list[int]] | Array] = []
        for ref in step.reads:
            element = self._output(ref)
            if element is None:
                runs.append(self.read(ref))
                continue
            outputs, at = element
            run = runs[-1] if runs else None
            if isinstance(run, tuple) and run[0] is outputs and _follows(run[1], at):
                run[1].append(at)
            else:
                runs.append((outputs, [at]))

        pieces: list[Array] = []
        for run in runs:
            piece = _flat_run(run[0].array, run[1]) if isinstance(run, tuple) else run
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else jax.lax.concatenate(pieces, 0)

    def _output(self, ref: Ref) -> tuple[ScanOutputs, int] | None:
        """Scan output that an operand is, with its index; None if it is not one, or is sliced."""
        if not isinstance(ref, int) or ref in self.env or ref not in self.parts:
            return None
        outputs, at = self.parts[ref]
        return (outputs, at) if isinstance(outputs, ScanOutputs) else None

    def stacked_operand(self, row: Sequence[int]) -> tuple[Array | None, Array]:
        """Operand that differs between layers, as rows of a scan: (None, stacked array), or
        (array, index of the element for each layer).
        """
        of_one = _array(row, self.parts)
        if of_one is None:
            values = [self.value(n) for n in row]
            return None, jax.numpy.stack(values)
        array, places = of_one
        whole = self._whole(array)
        # No copy: the whole array. Else an index into it per iteration, or a slice of it.
        if places == list(range(whole.shape[0])):
            return None, whole
        if self._is_last or isinstance(array, ScanOutputs):
            return whole, np.asarray(places, np.int32)
        return None, _run_of(whole, places)


def _follows(places: Sequence[int], at: int) -> bool:
    """Return whether an index continues a run of indices, in either direction."""
    step = at - places[-1]
    if abs(step) != 1:
        return False
    return len(places) == 1 or step == places[1] - places[0]


def _run_of(whole: Array, places: Sequence[int]) -> Array:
    """Consecutive elements of an array, in either direction."""
    first, last = min(places), max(places)
    part = jax.lax.slice_in_dim(whole, first, last + 1)
    return part if places[0] == first else jax.lax.rev(part, (0,))


def _flat_run(whole: Array, places: Sequence[int]) -> Array:
    """Consecutive elements of an array, concatenated along the next axis."""
    part = _run_of(whole, places)
    count, length, *rest = part.shape
    return jax.lax.reshape(part, (count * length, *rest))
