"""What each step of the port bought: `python -m examples.trf.options`.

One fit of `decay` to 1,000 points, by the same method all the way: a Python loop with NumPy in it
(`before.py`), the compiled loop under `jax.jit`, `equinox.filter_jit`, and `@optimize` with one
option at a time. Then 1,000 fits of 100 points, called one by one and mapped; what a turn of the
loop does with the data, in two ways each; and the first call in a fresh process, without the
persistent cache, with an empty one, and with a filled one.

Each table has what somebody writes who has not written the port, "by hand": Levenberg and
Marquardt's method in one `jax.jit` (`levenberg.py`), a turn of it with derivatives written out
(`_by_hand.py`), and JAX's own persistent cache. Results are asserted to be equal before anything
is timed. Warm times are of rounds that alternate; lines are of code, of the port its whole method.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from .._figures import record
from .._lines import code_lines, lines_of
from . import _by_hand, before, curve_fit, levenberg
from ._curve import Residual
from ._jit import optimize
from ._problem import Data, Setup, residuals_and_columns
from ._qr import triangularise
from ._solve import solve
from .benchmark import CASES, decay, measured

SETUP = Setup(Residual(decay, "no"), None, "linear", bounded=False, scale_by_jac=True, records=None)
TURNS = 10
START = np.asarray(CASES["decay"].start)
BY_HAND = "by hand, levenberg.py"
TURN_BY_HAND = "by hand: derivatives written out, normal equations, Cholesky"
# of the solver: what stands behind `solve`
SOLVER = (
    "_solve",
    "_state",
    "_problem",
    "_curve",
    "_qr",
    "_coleman_li",
    "_subproblem",
    "_few",
    "_losses",
    "_shapes",
    "_blocks",
    "_pointwise",
    "_implicit",
)
FRESH = f"""
import time, jax, numpy as np
from {__package__} import curve_fit, levenberg
from {__package__}.benchmark import CASES, measured
case = CASES["decay"]
t, y = measured(case, 1000)
start = np.asarray(case.start)
begin = time.process_time()
"""
FIRST = {
    "curve_fit": "curve_fit(case.model, t, y, start)",
    BY_HAND: "with jax.enable_x64(True): np.asarray(levenberg.fit(case.model, t, y, start))",
}
AFTER = "\nprint(time.process_time() - begin)"


def fit(
    x0: Float[Array, "k"], t: Float[Array, "points"], y: Float[Array, "points"]
) -> Float[Array, "k"]:
    """Fit a decay to one set of measurements."""
    controls = jnp.asarray([1e-8, 1e-8, 1e-8, 1.0, 300.0])
    return solve(SETUP, x0, Data(None, None, None, controls, None, (t, y, None), {})).x


def one_fit() -> dict[str, Callable[[], np.ndarray]]:
    """The fit before and after, with one option at a time."""
    t, y = map(jnp.asarray, measured(CASES["decay"], 1000))
    value = jax.jit(lambda p: decay(t, *p) - y)
    slope = jax.jit(jax.jacfwd(value))
    compiled = {
        "one program, jax.jit": jax.jit(fit),
        "eqx.filter_jit": eqx.filter_jit(fit),
        "@optimize": optimize(fit),
        "@optimize(contracts=False)": optimize(contracts=False)(fit),
        '@optimize(compiler="fast")': optimize(compiler="fast")(fit),
    }

    def loop() -> np.ndarray:
        return before.least_squares(
            lambda p: np.asarray(value(p)), START, lambda p: np.asarray(slope(p))
        ).x

    def by_hand() -> np.ndarray:
        return np.asarray(levenberg.fit(decay, t, y, START))

    calls = {"Python loop, NumPy inside": loop, BY_HAND: by_hand}
    for name, program in compiled.items():
        calls[name] = lambda program=program: np.asarray(program(START, t, y))
    return calls


def many_fits() -> dict[str, Callable[[], np.ndarray]]:
    """A thousand fits, one by one and mapped."""
    t, y = measured(CASES["decay"], 100, 1000)
    alone, mapped = optimize(fit), optimize(vmap="fit")(fit)
    plain, together = jax.jit(fit), jax.jit(jax.vmap(fit, (None, None, 0)))
    times = jnp.asarray(t)
    by_hand = jax.jit(jax.vmap(lambda row: levenberg.fit(decay, times, row, START)))
    return {
        BY_HAND: lambda: np.asarray(by_hand(y)),
        "jax.jit, 1,000 calls": lambda: np.stack([np.asarray(plain(START, t, row)) for row in y]),
        "@optimize, 1,000 calls": lambda: np.stack([np.asarray(alone(START, t, row)) for row in y]),
        "jax.jit(jax.vmap(fit)), one call": lambda: np.asarray(together(START, t, y)),
        '@optimize(vmap="fit"), one call': lambda: np.asarray(mapped(START, t, y)),
        "curve_fit, one call": lambda: curve_fit(decay, t, y, START).x,
    }


def lines() -> dict[str, int]:
    """Lines of code of three ways to have the method: the port's counts with all that it can."""
    here = Path(__file__).parent
    solver = sum(code_lines((here / f"{name}.py").read_text()) for name in SOLVER)
    plain = code_lines((here / "before.py").read_text())
    return {"before": plain, "by hand": lines_of(levenberg, "fit"), "port": solver}


def lines_behind(name: str) -> str:
    """Lines of code behind a way."""
    found = lines()
    if name == BY_HAND:
        return f"{found['by hand']}"
    return f"{found['before' if name.startswith('Python loop') else 'port']:,}"


@dataclass(frozen=True)
class Took:
    """Seconds: of warm calls the median and the least by the clock, and the mean by processors'
    time; of the first call by processors' time.

    The least of processors' time is no measure: what other threads of XLA take counts only once
    they sleep or a tick of the kernel passes, so often in a later call.
    """

    median: float
    least: float
    busy: float
    first: float


def timed(calls: Mapping[str, Callable[[], np.ndarray]], seconds: float) -> dict[str, Took]:
    """Calls in turn, those that take long three times. All must agree to six digits."""
    first, found = {}, []
    for name, call in calls.items():
        busy = time.process_time()
        found.append(call())
        first[name] = time.process_time() - busy
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6, atol=1e-9)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for name, call in calls.items():
            if len(times[name]) > 2 and times[name][-1][0] > seconds / 50:
                continue
            call()
            start, busy = time.perf_counter(), time.process_time()
            call()
            taken = time.perf_counter() - start, time.process_time() - busy
            times[name].append(taken)
    made = {}
    for name, taken in times.items():
        clock, busy = np.array(taken).T
        middle, mean = float(np.median(clock)), float(np.mean(busy))
        made[name] = Took(middle, min(clock), mean, first[name])
    return made


def one_turn(points: int) -> dict[str, Callable[[], np.ndarray]]:
    """Evaluate `peak`, its five derivatives and the triangle of [J r], in two ways each."""
    case = CASES["peak"]
    t, y = map(jnp.asarray, measured(case, points))
    setup = replace(SETUP, fun=Residual(case.model, "no"))
    data = Data(None, None, None, jnp.zeros(5), None, (t, y, None), {})

    def unit_vectors(p: Float[Array, "k"]) -> tuple[Array, Array]:
        f, push = jax.linearize(lambda p: case.model(t, *p) - y, p)
        return f, jax.vmap(push)(jnp.eye(p.size))

    def by_parameter(p: Float[Array, "k"]) -> tuple[Array, Array]:
        return residuals_and_columns(setup, p, data)

    def householder(
        columns: Float[Array, "k points"], f: Float[Array, "points"]
    ) -> Float[Array, "k k+1"]:
        R = jnp.linalg.qr(jnp.concatenate([columns, f[None]]).T, mode="r")[:-1]
        return R * jnp.sign(jnp.diag(R))[:, None]

    p = jnp.asarray(case.truth)
    return {
        "J by unit vectors, Householder (LAPACK)": _turns(unit_vectors, householder, p),
        "J by unit vectors, modified Gram-Schmidt": _turns(unit_vectors, triangularise, p),
        "J by parameter, Householder (LAPACK)": _turns(by_parameter, householder, p),
        "J by parameter, modified Gram-Schmidt": _turns(by_parameter, triangularise, p),
        TURN_BY_HAND: _turns(lambda p: (p, p), lambda p, _: _by_hand.triangle(p, t, y), p),
    }


def _turns(
    evaluate: Callable[[Array], tuple[Array, Array]],
    reduce: Callable[[Array, Array], Array],
    p: Array,
) -> Callable[[], np.ndarray]:
    """TURNS turns of a loop that do nothing else: as in the solver, what a turn writes the next
    overwrites.
    """

    @jax.jit
    def run(p: Array) -> Array:
        def turn(_: Array, triangle: Array) -> Array:
            f, columns = evaluate(p * (1 + 1e-16 * triangle[0, 0]))
            return reduce(columns, f)

        return jax.lax.fori_loop(0, TURNS, turn, jnp.zeros((p.size, p.size + 1)))

    return lambda: np.asarray(run(p).block_until_ready())


def first_calls() -> dict[str, dict[str, float]]:
    """Seconds of the first call in a fresh process, by state of the persistent cache: jitney's of
    `curve_fit`, JAX's own of the fit by hand.
    """

    def fresh(code: str, settings: dict[str, str]) -> float:
        command = [sys.executable, "-c", FRESH + code + AFTER]
        environment = {**os.environ, **settings}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def kept_in(folder: str) -> dict[str, dict[str, str]]:
        ours = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": f"{folder}/ours"}
        theirs = {
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/theirs",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        return {"curve_fit": ours, BY_HAND: theirs}

    with tempfile.TemporaryDirectory() as folder:
        found = {"no persistent cache": {name: fresh(code, {}) for name, code in FIRST.items()}}
        for state in ("cache, empty", "cache, filled by the run before"):
            each = kept_in(folder)
            found[state] = {name: fresh(code, each[name]) for name, code in FIRST.items()}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.trf.options",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    os.environ["JITNEY_CACHE"] = "off"  # first calls below compile
    console = Console(width=120)
    found: dict[str, dict[str, float]] = {}
    ways = ("median, ms", "least", "mean, CPU ms", "first call, CPU s", "lines")
    with jax.enable_x64(True):
        for title, calls in (
            ("One fit of 1,000 points", one_fit()),
            ("1,000 fits of 100 points", many_fits()),
        ):
            out = Table("", *ways, title=title)
            for name, took in timed(calls, 5.0).items():
                warm = (took.median, took.least, took.busy)
                cells = (f"{1e3 * each:.3g}" for each in warm)
                out.add_row(name, *cells, f"{took.first:.2f}", lines_behind(name))
                found[name] = {"ms": 1e3 * took.median, "first": took.first}
            console.print(out)
    turn_by_hand = f"{lines_of(_by_hand, 'BLOCK', 'PAIRS', 'triangle')}"
    with jax.enable_x64(True):
        for points in (10_000, 1_000_000):
            title = f"Inside: {points:,} points, 5 parameters"
            out = Table("", "median, ms a turn", "least", "mean, CPU ms", "lines", title=title)
            for name, took in timed(one_turn(points), 5.0).items():
                warm = (took.median, took.least, took.busy)
                cells = (f"{1e3 * each / TURNS:.3g}" for each in warm)
                out.add_row(name, *cells, turn_by_hand if name == TURN_BY_HAND else "")
            console.print(out)
    out = Table("", *FIRST, title="A fresh process: the first call, CPU s")
    for name, each in first_calls().items():
        out.add_row(name, *(f"{seconds:.2f}" for seconds in each.values()))
    out.add_row("lines", f"{lines()['port']:,}", f"{lines()['by hand']}")
    console.print(out)
    record(fit=found)


if __name__ == "__main__":
    main()
