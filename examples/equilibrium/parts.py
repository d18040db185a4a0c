"""What residuals and derivatives at forty periods cost, dense and as a rolled graph: `python -m
examples.equilibrium.parts`.

They are most of every program of a model. First how many derivatives are not zero, and how many
lines the loop takes; then seconds to trace, lower and compile, without a persistent cache, and
milliseconds of a call.
"""

import dataclasses
import os
import time
from typing import Any

os.environ["JITNEY_CACHE"] = "off"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from rich.console import Console

from ._table import table
from .models import scalars, sectors

PERIODS = 40


def measured(model: Any) -> list[float]:
    """Seconds of each stage, and of a call."""
    places, laps = np.ones((sum(model.sizes.values()), PERIODS)), [time.perf_counter()]
    traced = jax.jit(model.moving.entries).trace(places)
    laps.append(time.perf_counter())
    lowered = traced.lower()
    laps.append(time.perf_counter())
    compiled = lowered.compile()
    laps.append(time.perf_counter())
    calls = []
    for _ in range(30):
        began = time.perf_counter()
        jax.block_until_ready(compiled(places))
        calls.append(time.perf_counter() - began)
    return [*np.diff(laps).tolist(), min(calls)]


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


def main() -> None:
    """Print a line for each form and way."""
    words = ("form", "derivatives")
    out = table((*words, "trace, s", "lower, s", "compile, s", "call, ms"), words)
    with jax.enable_x64(True):
        for form, make in (("vector", sectors.model), ("scalar", scalars.model)):
            for rolled in (False, True):
                if rolled:
                    print(counted(form, make()))
                *stages, call = measured(dataclasses.replace(make(), rolled=rolled))
                out.add_row(
                    form,
                    "rolled" if rolled else "dense",
                    *(f"{each:.3f}" for each in stages),
                    f"{call * 1e3:.2f}",
                )
    Console().print(out)


if __name__ == "__main__":
    main()
