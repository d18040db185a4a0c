"""What residuals and derivatives at forty periods cost, dense and as a rolled graph: `python -m
examples.equilibrium.parts`.

They are most of every program of a model. First how many derivatives are not zero, and how many
lines the loop takes; then seconds of processors to trace, lower and compile, without a persistent
cache, and milliseconds of a call, the least of rounds in turn. By hand (`sectors_by_hand.py`) the
economy is written for itself alone, as vectors: in scalars nobody would write it. Both ways of it
are asserted to give the same numbers first. Lines of code are those of equations and derivatives.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["JITNEY_CACHE"] = "off"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from rich.console import Console

from .._lines import lines_of
from . import sectors_by_hand as hand
from ._table import table
from .models import scalars, sectors

PERIODS, ROUNDS = 40, 60
LINES = {
    "vector": lines_of(sectors, "Economy", "equations"),
    "scalar": lines_of(scalars, "block", "point", "equations"),
    "written out": lines_of(hand, "Given", "given", "written_out"),
    "a sector": lines_of(hand, "Given", "given", "by_sector"),
}
WAYS = ("dense", "rolled")
BY_HAND = {"written out": hand.written_out, "a sector": hand.by_sector}


def places(model: Any) -> np.ndarray:
    """Inputs of a model, a column for each period, near its first guess."""
    theta, (u, x) = model.parameters.vector(model.params), model.guess
    z = np.zeros(model.sizes["z"])
    column = np.concatenate([theta, u, x, z, u, x, z])
    near = 1.0 + 0.1 * np.random.default_rng(0).uniform(size=(column.size, PERIODS))
    return column[:, None] * near


def compiled(made: Callable[[], Callable[..., Any]], at: np.ndarray) -> tuple[list[float], Any]:
    """Seconds of processors for each stage, and the program. A model reads its equations while it
    is traced.
    """
    laps = [time.process_time()]
    traced = jax.jit(made()).trace(at)
    laps.append(time.process_time())
    lowered = traced.lower()
    laps.append(time.process_time())
    program = lowered.compile()
    laps.append(time.process_time())
    return np.diff(laps).tolist(), program


def entries_of(model: Any) -> Callable[..., Any]:
    """Residuals and derivatives of a model, of which nothing has been read yet."""
    return model.moving.entries


def assert_equal(model: Any, program: Any, by_hand: dict[str, Any], at: np.ndarray) -> None:
    """End unless residuals and derivatives of a model are those by hand, at each period."""
    entries = np.asarray(program(at))
    for found in by_hand.values():
        residuals, slopes = map(np.asarray, found(at))
        np.testing.assert_allclose(entries[:85].T, residuals, rtol=1e-9, atol=1e-12)
        for period in range(PERIODS):
            ours = model.moving.blocks(entries[:, period])
            for name, block in hand.in_blocks(slopes[period]).items():
                theirs = np.where(np.isnan(block), np.round(ours[name]), block)
                np.testing.assert_allclose(ours[name], theirs, rtol=1e-9, atol=1e-12)


def counted(form: str, model: Any) -> str:
    """Derivatives that are not known to be zero, of all, and the lines of the table along a
    path.
    """
    places = [index != model.local.zero for index in model.local.index.values()]
    every, kept = sum(each.size for each in places), sum(int(each.sum()) for each in places)
    return (
        f"{form}: {kept:,} of {every:,} derivatives are not zero;"
        f" {model.moving.entries.table[0].size} lines"
    )


def in_turn(calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """The least milliseconds of each."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            best[name] = min(best[name], 1e3 * (time.perf_counter() - began))
    return best


def main() -> None:
    """Print a line for each form and way."""
    words = ("form", "derivatives")
    out = table((*words, "trace, s", "lower, s", "compile, s", "call, ms", "lines"), words)
    stages, calls, by_hand = {}, {}, {}
    with jax.enable_x64(True):
        at = places(sectors.model())
        for name, function in BY_HAND.items():
            way = ("by hand", name)
            stages[way], by_hand[name] = compiled(partial(jax.vmap, function, 1), at)
            calls[way] = partial(by_hand[name], at)
        for form, make in (("vector", sectors.model), ("scalar", scalars.model)):
            print(counted(form, make()))
            own = places(make())
            for rolled in (False, True):
                model, way = dataclasses.replace(make(), rolled=rolled), (form, WAYS[rolled])
                stages[way], program = compiled(partial(entries_of, model), own)
                calls[way] = partial(program, own)
                if form == "vector":
                    assert_equal(model, program, by_hand, at)
        for way, least in in_turn(calls).items():
            lines = LINES[way[1] if way[0] == "by hand" else way[0]]
            cells = (f"{each:.3f}" for each in stages[way])
            out.add_row(*way, *cells, f"{least:.3f}", f"{lines}")
    Console().print(out)


if __name__ == "__main__":
    main()
