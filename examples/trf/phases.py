"""Where the time and the memory of a fit go: its residuals, its Jacobian, the factorisation, and
what else a turn of the loop does. Each phase is a program that does what those before it do and one
thing more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, ArrayLike

from ._fail import fail
from ._problem import model_at, residuals, residuals_and_columns
from ._program import SCALARS, fitted
from ._result import Result

FEWEST = 5  # calls of each program


@dataclass(frozen=True)
class Phase:
    """A program that ends with this phase.

    Attributes:
        name: What it does beyond the one before.
        seconds: Of one evaluation, median of warm calls.
        own: Of that, what it takes beyond the one before.
        bytes: What XLA sets aside for it beside its arguments: results and temporaries.
        compile: Seconds until its program was there.
    """

    name: str
    seconds: float
    own: float
    bytes: int
    compile: float


@dataclass(frozen=True)
class Phases:
    """The phases of a fit.

    Attributes:
        each: Residuals, Jacobian, factorisation, and the rest of a turn.
        turns: Evaluations of the whole fit.
    """

    each: tuple[Phase, ...]
    turns: int

    def __str__(self) -> str:
        head = f"{'':16}{'own us':>10}{'us':>10}{'share':>7}{'memory':>12}{'compile s':>11}"
        whole = self.each[-1].seconds
        rows = [
            f"{one.name:16}{1e6 * one.own:>10.4g}{1e6 * one.seconds:>10.4g}"
            f"{one.own / whole:>7.0%}{one.bytes / 2**20:>8.4g} MiB{one.compile:>11.2f}"
            for one in self.each
        ]
        return "\n".join([head, *rows, f"{self.turns} evaluations of {1e6 * whole:.4g} us"])


def phases(result: Result, x0: ArrayLike, seconds: float = 0.2) -> Phases:
    """Time the phases of a fit.

    Args:
        result: Of one fit, for its functions, options and data.
        x0: Start of the fit that is timed.
        seconds: How long each phase is repeated.
    """
    if np.ndim(result.cost):
        fail(
            "The result is of a batch.",
            "The phases are those of one fit.",
            "take one: `phases(fits[0], x0)`.",
        )
    setup, data = result.programs.setup, result.data
    start = np.asarray(x0, np.float64)
    with jax.enable_x64(True):
        programs: dict[str, Callable[..., Any]] = {
            "residuals": lambda x: residuals(setup, x, data),
            "Jacobian": lambda x: residuals_and_columns(setup, x, data),
            "factorisation": lambda x: model_at(setup, x, data),
            "rest of a turn": lambda x: fitted(setup, x, data)[0],
        }
        found = {name: _measured(program, start, seconds) for name, program in programs.items()}
        packed = found["rest of a turn"][-1]
    turns = int(packed[SCALARS.index("nfev")])
    each, before = [], 0.0
    for name, (took, size, compiled, _) in found.items():
        took = took / turns if name == "rest of a turn" else took
        each.append(Phase(name, took, max(took - before, 0.0), size, compiled))
        before = took
    return Phases(tuple(each), turns)


def _measured(
    program: Callable[..., Any], x: np.ndarray, seconds: float
) -> tuple[float, int, float, Any]:
    """Seconds of a warm call, bytes, seconds of the compile, and what it gives."""
    begin = time.perf_counter()
    compiled = jax.jit(program).lower(x).compile()
    first = time.perf_counter() - begin
    given: Array = jax.block_until_ready(compiled(x))
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < FEWEST or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        jax.block_until_ready(compiled(x))
        times.append(time.perf_counter() - start)
    memory = compiled.memory_analysis()
    size = memory.temp_size_in_bytes + memory.output_size_in_bytes
    return float(np.median(times)), int(size), first, given
