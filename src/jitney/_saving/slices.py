"""Slices of stacked layers, and their gradients, put so that layers which read and make them are
equal to each other.

Where a slice stands, or into which row of zeros its gradient goes, is a parameter of the operation,
in which equal layers differ. So slices go directly behind what they are of, and gradients that are
padded and added up become rows that are put one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from .._jax.jaxprs import opened
from .flat import FlatProgram, Step

_jax: Any = jax


def slices_first(flat: FlatProgram) -> FlatProgram:
    """The same with each slice at a fixed place directly behind what it is of: the places of a
    layer's own tell it from all others.
    """
    # by step: those that stand behind it; -1 for what the program takes
    behind: dict[int, list[int]] = {}
    maker = {n: i for i, step in enumerate(flat.steps) for n in step.makes}
    moved: set[int] = set()
    for i, step in enumerate(flat.steps):
        of = maker.get(step.numbers[0], -1) if len(step.numbers) == 1 else -1
        if step.name == "slice" or (step.name == "squeeze" and of in moved):
            behind.setdefault(of, []).append(i)
            moved.add(i)

    def placed(i: int) -> list[int]:
        return [k for j in behind.get(i, []) for k in (j, *placed(j))]

    order = [
        *placed(-1),
        *(k for i in range(len(flat.steps)) if i not in moved for k in (i, *placed(i))),
    ]
    return replace(flat, steps=tuple(flat.steps[i] for i in order))


def gradients_as_rows(flat: FlatProgram) -> FlatProgram:
    """The same with one operation for the gradient of stacked layers, where JAX pads that of each
    slice with zeros and adds them up.

    Each element is then what it was: one row's, with zeros added. With n layers the sums were n
    times as many numbers as the result.
    """
    maker = {n: i for i, step in enumerate(flat.steps) for n in step.makes}
    steps: list[Step | None] = list(flat.steps)
    for i in reversed(range(len(flat.steps))):
        if flat.steps[i].name != "add_any" or steps[i] is None:
            continue
        addends, sums = _addends(flat, maker, i)
        rows = {at: n for n in addends if (at := _row(flat, maker, n)) is not None}
        padded = [maker[n] for n in addends if n in rows.values()]
        count = flat.avals[flat.steps[i].makes[0]].shape[0] if rows else 0
        if len(addends) != count or sorted(rows) != list(range(count)):
            continue  # a row has no gradient or several, or there is another part than the slices'
        for k in (*sums, *padded):
            steps[k] = None
        steps[i] = _one_behind_the_other(
            flat, [flat.steps[maker[rows[at]]].numbers[0] for at in range(count)], flat.steps[i]
        )
    return replace(flat, steps=tuple(step for step in steps if step is not None))


def _addends(flat: FlatProgram, maker: dict[int, int], root: int) -> tuple[list[int], list[int]]:
    """What is added up to one value, by number, and the sums on the way, which nothing else
    reads.
    """
    addends: list[int] = []
    sums: list[int] = []
    open_ = [root]
    while open_:
        i = open_.pop()
        sums.append(i)
        for ref in flat.steps[i].reads:
            if not isinstance(ref, int):
                return [], []  # a constant, which is no row
            at = maker.get(ref, -1)
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


def _row(flat: FlatProgram, maker: dict[int, int], n: int) -> int | None:
    """Which row of zeros this value fills, if that is all that it is, and if nothing else reads
    it.
    """
    step = flat.steps[maker[n]] if n in maker else None
    if step is None or step.name != "pad" or len(step.numbers) != 1 or len(flat.readers[n]) != 1:
        return None
    zero = step.reads[1]
    if isinstance(zero, int) or np.ndim(zero.value) or np.asarray(zero.value) != 0:
        return None
    (low, high, inner), *others = step.eqn.params["padding_config"]
    is_row = (
        flat.avals[step.numbers[0]].shape[0] == 1
        and min(low, high) >= 0
        and not inner
        and not any(map(any, others))
    )
    return int(low) if is_row else None


def _one_behind_the_other(flat: FlatProgram, rows: Sequence[int], step: Step) -> Step:
    """The step that puts these rows together to what another one makes."""
    given = [jax.ShapeDtypeStruct(flat.avals[n].shape, flat.avals[n].dtype) for n in rows]

    def together(*rows: Any) -> Any:
        return _jax.lax.concatenate(rows, 0)

    (eqn,) = opened(_jax.make_jaxpr(together)(*given))[0].eqns
    return Step(eqn, tuple(rows), step.makes)
