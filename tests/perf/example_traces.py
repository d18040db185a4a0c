"""Print what the traces of a first padded call cost beside the first call of `jax.jit`, for rows of
the scoreboard: `python -m tests.perf.example_traces` (parts of names for some of the rows).

Both sides take turns, each with JAX's caches emptied and a function of its own, and the median
counts; results are compared first. Seconds are of processors, of all threads, so other work on the
machine changes them less than those of the clock. Those of the traces are inside of the function;
a compile is what passes between the end of a lowering and the end of XLA's compile, as JAX reports
them. The proof is what jitney adds: the comparison, the padded program and its lowering.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float

from examples._figures import record
from jitney import configure, optimize

from .coverage.libraries import MODELS, Loss, Params, Vector

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "3"))
ROWS = (
    "optimistix, Levenberg-Marquardt",
    "optimistix, BFGS",
    "diffrax, saved at times",
    "diffrax, linear interpolation",
    "Equinox, rotary embedding",
    "Equinox, convolution",
    "JAX stats, density",
    "NumPy, window",
)
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass
class Spent:
    """Seconds of processors of a first call, and of its parts."""

    whole: float = 0.0
    traces: int = 0
    traced: float = 0.0
    compiled: float = 0.0

    @property
    def rest(self) -> float:
        return self.whole - self.traced - self.compiled


class Compiles:
    """Listener of JAX: the seconds of processors of its compiles so far, those of numbers that the
    function computes while it is traced aside.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_tracing = False
        self._lowered = 0.0

    def __call__(self, event: str, _: float, **__: object) -> None:
        if event == LOWERED:
            self._lowered = time.process_time()
        elif event == COMPILED and not self.is_tracing:
            self.seconds += time.process_time() - self._lowered


def _spent(
    loss: Loss, transform: Callable[[Loss], Loss], given: Mapping[str, Array], compiles: Compiles
) -> tuple[Spent, float]:
    """What a first call takes, and its result."""
    spent = Spent()

    def timed(p: Params, t: Vector, y: Vector) -> Float[Array, ""]:
        began, compiles.is_tracing = time.process_time(), True
        try:
            return loss(p, t, y)
        finally:
            compiles.is_tracing = False
            spent.traces += 1
            spent.traced += time.process_time() - began

    jax.clear_caches()
    program, before = transform(timed), compiles.seconds
    began = time.process_time()
    out = float(program(given["p"], given["t"], given["y"]))
    spent.whole = time.process_time() - began
    spent.compiled = compiles.seconds - before
    return spent, out


def _padded(fn: Loss) -> Loss:
    return optimize(pad={"points": "pow2"})(fn)


def _median(each: list[Spent]) -> Spent:
    names = ("whole", "traced", "compiled")
    return Spent(
        traces=each[-1].traces,
        **{name: statistics.median(getattr(spent, name) for spent in each) for name in names},
    )


def main() -> None:
    configure(cache=False)
    wanted = sys.argv[1:] or [""]
    compiles = Compiles()
    jax.monitoring.register_event_duration_secs_listener(compiles)
    # What is imported and started once is no part of a first call.
    _padded(MODELS[-1].loss)(**MODELS[-1].data(MODELS[-1].sizes))
    head = ("traces", "in them, s", "proof and lowering, s", "compile, s", "first call, s")
    print("| row |", " | ".join((*head, "`jax.jit`: trace, s", "compile, s", "first call, s")), "|")
    print("|---" * (len(head) + 4) + "|")
    figures: dict[str, dict[str, float]] = {}
    for model in MODELS:
        if model.name not in ROWS or not any(part in model.name for part in wanted):
            continue
        given = model.data(model.sizes)
        ours, plain = [], []
        for _ in range(ROUNDS):
            theirs, want = _spent(model.loss, jax.jit, given, compiles)
            mine, got = _spent(model.loss, _padded, given, compiles)
            np.testing.assert_allclose(got, want, rtol=model.tolerance)
            ours.append(mine)
            plain.append(theirs)
        a, b = _median(ours), _median(plain)
        cells = (
            f"{a.traces} | {a.traced:.2f} | {a.rest:.2f} | {a.compiled:.2f} | {a.whole:.2f} |"
            f" {b.traced:.2f} | {b.compiled:.2f} | {b.whole:.2f}"
        )
        print(f"| {model.name} | {cells} |", flush=True)
        figures[model.name] = {"first": a.whole, "traces": a.traces, "plain": b.whole}
    record(seconds=figures)


if __name__ == "__main__":
    main()
