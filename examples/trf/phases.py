"""Where the time and the memory of a fit go: its residuals, its Jacobian, the factorisation, and
what else a turn of the loop does. Each phase is a program that does what those before it do and one
thing more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ._fail import fail
from ._problem import model_at, residuals, residuals_and_columns
from ._program import SCALARS, fitted
from ._result import Result

FEWEST = 5  # calls of each program
TURNS = 16  # of a phase in a call
REST = "rest of a turn"


@dataclass(frozen=True)
class Phase:
    """A program that ends with this phase.

    Attributes:
        name: What it does beyond the one before.
        seconds: Of one evaluation among several in a program, median of warm calls.
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
            REST: lambda x: fitted(setup, x, data)[0],
        }
        found = {
            name: _measured(program, start, seconds, 1 if name == REST else TURNS)
            for name, program in programs.items()
        }
        packed = found[REST][-1]
    turns = int(packed[SCALARS.index("nfev")])
    each, before = [], 0.0
    for name, (took, size, compiled, _) in found.items():
        took = took / turns if name == REST else took
        each.append(Phase(name, took, max(took - before, 0.0), size, compiled))
        before = took
    return Phases(tuple(each), turns)


def _measured(
    program: Callable[..., Any], x: np.ndarray, seconds: float, turns: int
) -> tuple[float, int, float, Any]:
    """Seconds of a turn, bytes, seconds of the compile, and what it gives.

    Turns follow one another in a program, as those of a fit do: a call by itself would take some
    microseconds for being called.
    """
    shapes = jax.eval_shape(program, x)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def turn(_: Any, state: tuple[Array, Any]) -> tuple[Array, Any]:
        at, before = state
        after = jax.tree.leaves(before)[0].ravel()[0]
        return at, program(at + 0 * after)  # XLA keeps the order, and repeats all of it

    begin = time.perf_counter()
    compiled = jax.jit(program).lower(x).compile()
    first = time.perf_counter() - begin
    repeated = jax.jit(lambda x: jax.lax.fori_loop(0, turns, turn, (x, blank))[1])
    given = jax.block_until_ready(repeated(x))
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < FEWEST or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        jax.block_until_ready(repeated(x))
        times.append(time.perf_counter() - start)
    memory = compiled.memory_analysis()
    size = memory.temp_size_in_bytes + memory.output_size_in_bytes
    return float(np.median(times)) / turns, int(size), first, given
