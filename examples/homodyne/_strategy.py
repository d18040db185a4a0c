"""Which strategy sums the products: the first of all at once, in chunks and from disk that fits
into the memory, by the compiler.
"""

from typing import Any

import jax
import numpy as np

import jitney

from ..trf._fail import fail
from ._layout import Layout
from ._measurement import Measurement
from ._mode_fit import at_once

FEW = 10**6  # points that take less than a GiB, so that asking is not worth its time
NAMES = {"in memory": "whole", "chunked": "chunked", "streamed": "streamed"}


def chosen(
    data: Measurement, plan: Layout, points: int, memory: str
) -> tuple[str, str, int | None]:
    """The name of a strategy, why, and how many points it takes at a time.

    Args:
        data: What is fitted.
        plan: Which parameters are free.
        points: How many, of all angles.
        memory: Such as "8GiB", or "auto" for the free memory.
    Raises:
        ValueError: None fits.
    """
    if memory == "auto" and points <= FEW:
        return "whole", f"{points:,} points are few", None
    found = by_the_compiler(data, plan, memory)
    way = found.chosen
    if way is None:
        fail(
            f"No strategy fits into {memory}: "
            + "; ".join(f"{w.name}: {w.why}" for w in found.ways),
            "The data are summed at once, in chunks, or from disk.",
            "[fit] a larger `memory`, or name a `strategy`.",
        )
    return NAMES[way.name], way.why, way.chunk


def by_the_compiler(data: Measurement, plan: Layout, memory: str) -> jitney.types.Strategy:
    """What each strategy takes; nothing is computed."""
    arrays = data.opened()
    shapes: list[Any] = [
        jax.ShapeDtypeStruct(each.shape, each.dtype)
        for each in (arrays.t1, arrays.t2, arrays.measured)
    ]
    x = plan.full(plan.start)
    with jax.enable_x64(True):
        return jitney.analysis.strategy(
            at_once,
            plan.mode,
            x[: len(plan.mode.names)],
            plan.optics(x, data.angles),
            np.ones(data.angles),
            data.setup,
            np.asarray(data.phi, float),
            *shapes,
            sizes={"points": arrays.t1.shape[0], "phi": data.angles},
            memory=memory,
        )
