"""Normalisation of slices of stacked layers, and of their gradients, so that layers which use them
are identical.

The position of a slice, or the row of zeros that its gradient is added to, is a parameter of the
equation, in which identical layers differ. So slices move directly behind the array that they are
of, and gradients that are padded and added up become rows of one concatenation.

    pad g0 row 0 + pad g1 row 1 + ... + pad g9 row 9   ->   concatenate g0 g1 ... g9
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from .._jax.programs.jaxprs import open_jaxpr
from .._jax.programs.ssa import FlatProgram, Step


def slices_first(flat: FlatProgram) -> FlatProgram:
    """Move each slice with static indices directly behind the array that it is of."""
    # Step -> slices of its result; -1 for slices of arguments and constants.
    behind: defaultdict[int, list[int]] = defaultdict(list)
    moved: set[int] = set()
    for i, step in enumerate(flat.steps):
        of = -1
        if len(step.numbers) == 1:
            of = flat.makers.get(step.numbers[0], -1)
        if step.name == "slice" or (step.name == "squeeze" and of in moved):
            behind[of].append(i)
            moved.add(i)

    order: list[int] = []

    def place_slices_of(i: int) -> None:
        for j in behind.get(i, ()):
            order.append(j)
            place_slices_of(j)

    place_slices_of(-1)
    for i in range(len(flat.steps)):
        if i not in moved:
            order.append(i)
            place_slices_of(i)
    return replace(flat, steps=tuple(flat.steps[i] for i in order))


def gradients_as_rows(flat: FlatProgram) -> FlatProgram:
    """Replace sums of padded slice gradients, as JAX writes the gradient of stacked layers, by one
    concatenation.

    Each element keeps its value: that of one row, with zeros added. With n layers the sums added n
    times as many numbers as the result has.
    """
    steps: list[Step | None] = list(flat.steps)
    for i in reversed(range(len(flat.steps))):
        step = steps[i]
        if step is None or step.name != "add_any":
            continue
        # A chain of `add_any` whose leaves are one padded row per layer.
        addends, sums = _addends(flat, i)
        rows: dict[int, int] = {}
        for n in addends:
            at = _row(flat, n)
            if at is not None:
                rows[at] = n
        count = flat.avals[step.makes[0]].shape[0] if rows else 0
        if not count or len(addends) != count or sorted(rows) != list(range(count)):
            # There are no rows, some row has no gradient or several, or something else is added.
            continue

        padded = [flat.makers[rows[at]] for at in range(count)]
        for k in (*sums, *padded):
            steps[k] = None
        gradients = [flat.steps[k].numbers[0] for k in padded]
        steps[i] = _concatenate_rows(flat, gradients, step)
    return replace(flat, steps=tuple(step for step in steps if step is not None))


def _addends(
    flat: FlatProgram,
    root: int,
) -> tuple[list[int], list[int]]:
    """Numbers of the values that are added up to one value, and the sums on the way, which
    nothing else reads.
    """
    addends: list[int] = []
    sums: list[int] = []
    open_ = [root]
    while open_:
        i = open_.pop()
        sums.append(i)
        for ref in flat.steps[i].reads:
            if not isinstance(ref, int):
                # A constant is not a row.
                return [], []
            at = flat.makers.get(ref, -1)
            # A sum that something else reads has to stay, so it counts as an addend.
            is_sum = (
                at >= 0
                and flat.steps[at].name == "add_any"
                and len(flat.readers[ref]) == 1
                and flat.steps[i].numbers.count(ref) == 1
            )
            if is_sum:
                open_.append(at)
            else:
                addends.append(ref)
    return addends, sums


def _row(flat: FlatProgram, n: int) -> int | None:
    """Index of the row of zeros that this value fills; None if it is anything else, or is read
    elsewhere.
    """
    if n not in flat.makers:
        return None
    step = flat.steps[flat.makers[n]]
    if step.name != "pad" or len(step.numbers) != 1 or len(flat.readers[n]) != 1:
        return None
    zero = step.reads[1]
    if isinstance(zero, int) or np.ndim(zero.value) or np.asarray(zero.value) != 0:
        return None
    (low, high, inner), *others = step.eqn.params["padding_config"]
    length = flat.avals[step.numbers[0]].shape[0]
    is_padded_elsewhere = any(map(any, others))
    is_row = length == 1 and min(low, high) >= 0 and not inner and not is_padded_elsewhere
    return int(low) if is_row else None


def _concatenate_rows(
    flat: FlatProgram,
    rows: Sequence[int],
    step: Step,
) -> Step:
    """Step that concatenates rows to the result of another step."""
    avals = [flat.avals[n] for n in rows]
    arguments = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

    def together(*rows: jax.Array) -> jax.Array:
        return jax.lax.concatenate(rows, 0)

    traced = jax.make_jaxpr(together)(*arguments)
    (eqn,) = open_jaxpr(traced)[0].eqns
    return Step(eqn, tuple(rows), step.makes)
