"""What a body of the table is: a loss with its arguments, tried along one axis by the ways of the
scoreboard of models, and called with other numbers where a number of it varies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

import jitney
from tests.perf.coverage._model import Model
from tests.perf.coverage._tried import Cell, cells, difference

Data = Callable[[Mapping[str, int]], Mapping[str, Any]]
Varied = Callable[[float], Mapping[str, Any]]
"""A number -> the arguments that hold it."""

SIZE = 11
WIDE = 1e-9
"""Tolerance with numbers of 64 bits, of the largest number of an array."""
NUMBERS = (0.3, 0.5, 0.7, 0.9)
VARIED: dict[str, Varied] = {}
"""By name of a body, its numbers that vary."""


def body(
    group: str,
    name: str,
    loss: Callable[..., Any],
    data: Data,
    *,
    wrt: str = "params",
    axis: str = "n",
    never: Mapping[tuple[str, ...], str] | None = None,
    varied: Varied | None = None,
) -> Model:
    """One body. Its loss is a number, so that it has a gradient."""
    if varied is not None:
        VARIED[name] = varied
    return Model(name, loss, data, {axis: SIZE}, wrt, never or {}, group=group)


def tried(model: Model, *, is_wide: bool) -> Iterator[Cell]:
    """The ways along its axis, without `accumulate`, and the numbers that vary."""
    if is_wide:
        model = replace(model, tolerance=WIDE)
    for cell in cells(model, is_wide=is_wide):
        if cell.way != "accumulate":
            yield cell
    if model.name in VARIED:
        outcome, why = _numbers(model, is_wide=is_wide)
        bits = 64 if is_wide else 32
        axis, way = next(iter(model.sizes)), "numbers"
        yield Cell(model.name, model.group, axis, way, "value", outcome, why, None, bits)


def _numbers(model: Model, *, is_wide: bool) -> tuple[str, str]:
    """Calls with other numbers, beside the plain function; they are to share two programs at
    most.
    """
    arguments = dict(model.data(model.sizes))
    if is_wide:
        arguments = jax.tree.map(widened, arguments)
    program: Any = jitney.optimize(model.loss)
    for number in NUMBERS:
        given = {**arguments, **VARIED[model.name](number)}
        try:
            got = program(**given)
        except jitney.JitneyError as error:
            return "refused", str(error).splitlines()[0]
        off = difference(got, model.loss(**given), model.tolerance)
        if off:
            return "WRONG", off
    traces = program.stats.traces
    return ("exact", "") if traces <= 2 else ("refused", f"{traces} programs of {len(NUMBERS)}")


def widened(leaf: Any) -> Any:
    """An array of float32 or int32 as one of 64 bits."""
    wider = {"float32": np.float64, "int32": np.int64}
    name = str(getattr(leaf, "dtype", ""))
    return leaf.astype(wider[name]) if name in wider else leaf
