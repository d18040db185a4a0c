"""What each step of the port bought: `python -m examples.trf.options`.

One fit of `decay` to 1,000 points, by the same method all the way: a Python loop with NumPy in it
(`before.py`), the compiled loop under `jax.jit`, `equinox.filter_jit`, and `@optimize` with one
option at a time. Then 1,000 fits of 100 points, called one by one and mapped, by hand too; what a
turn of the loop does with the data, in two ways each; and the first call in a fresh process,
without the persistent cache, with an empty one, and with a filled one. Warm times are medians of
rounds that alternate.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from .._figures import record
from . import before, curve_fit
from ._curve import Residual
from ._jit import optimize
from ._problem import Data, Setup, residuals_and_columns
from ._qr import triangularise
from ._solve import solve
from .benchmark import CASES, decay, measured

SETUP = Setup(Residual(decay, "no"), None, "linear", bounded=False, scale_by_jac=True, records=None)
TURNS = 10
START = np.asarray(CASES["decay"].start)
FRESH = f"""
import time, jax, numpy as np
from {__package__} import curve_fit
from {__package__}.benchmark import CASES, measured
case = CASES["decay"]
t, y = measured(case, 1000)
begin = time.perf_counter()
curve_fit(case.model, t, y, case.start)
print(time.perf_counter() - begin)
"""


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
        "by hand, jax.jit": jax.jit(fit),
        "eqx.filter_jit": eqx.filter_jit(fit),
        "@optimize": optimize(fit),
        "@optimize(contracts=False)": optimize(contracts=False)(fit),
        '@optimize(compiler="fast")': optimize(compiler="fast")(fit),
    }

    def loop() -> np.ndarray:
        return before.least_squares(
            lambda p: np.asarray(value(p)), START, lambda p: np.asarray(slope(p))
        ).x

    calls = {"Python loop, NumPy inside": loop}
    for name, program in compiled.items():
        calls[name] = lambda program=program: np.asarray(program(START, t, y))
    return calls


def many_fits() -> dict[str, Callable[[], np.ndarray]]:
    """A thousand fits, one by one and mapped."""
    t, y = measured(CASES["decay"], 100, 1000)
    alone, mapped = optimize(fit), optimize(vmap="fit")(fit)
    plain, by_hand = jax.jit(fit), jax.jit(jax.vmap(fit, (None, None, 0)))
    return {
        "jax.jit, 1,000 calls": lambda: np.stack([np.asarray(plain(START, t, row)) for row in y]),
        "@optimize, 1,000 calls": lambda: np.stack([np.asarray(alone(START, t, row)) for row in y]),
        "by hand, jax.jit(jax.vmap(fit))": lambda: np.asarray(by_hand(START, t, y)),
        '@optimize(vmap="fit"), one call': lambda: np.asarray(mapped(START, t, y)),
        "curve_fit, one call": lambda: curve_fit(decay, t, y, START).x,
    }


def timed(
    calls: Mapping[str, Callable[[], np.ndarray]], seconds: float
) -> dict[str, tuple[float, float]]:
    """Median of warm calls, and the first call, in seconds. All must agree to six digits."""
    first, found = {}, []
    for name, call in calls.items():
        begin = time.perf_counter()
        found.append(call())
        first[name] = time.perf_counter() - begin
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6, atol=1e-9)
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: (float(np.median(taken)), first[name]) for name, taken in times.items()}


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


def first_calls() -> dict[str, float]:
    """Seconds of the first call of `curve_fit` in a fresh process, by state of the persistent
    cache.
    """

    def fresh(cache: str) -> float:
        environment = (
            {**os.environ, "JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": cache}
            if cache
            else dict(os.environ)
        )
        done = subprocess.run(
            [sys.executable, "-c", FRESH],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout)

    with tempfile.TemporaryDirectory() as folder:
        return {
            "no persistent cache": fresh(""),
            "cache, empty": fresh(folder),
            "cache, filled by the run before": fresh(folder),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.trf.options",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    os.environ["JITNEY_CACHE"] = "off"  # first calls below compile
    console = Console()
    found: dict[str, dict[str, float]] = {}
    with jax.enable_x64(True):
        for title, calls in (
            ("One fit of 1,000 points", one_fit()),
            ("1,000 fits of 100 points", many_fits()),
        ):
            out = Table("", "warm / ms", "first call / s", title=title)
            for name, (warm, first) in timed(calls, 5.0).items():
                out.add_row(name, f"{1e3 * warm:.3g}", f"{first:.2f}")
                found[name] = {"ms": 1e3 * warm, "first": first}
            console.print(out)
    with jax.enable_x64(True):
        for points in (10_000, 1_000_000):
            out = Table("", "ms a turn", title=f"Inside: {points:,} points, 5 parameters")
            for name, (warm, _) in timed(one_turn(points), 3.0).items():
                out.add_row(name, f"{1e3 * warm / TURNS:.3g}")
            console.print(out)
    out = Table("", "first call / s", title="A fresh process")
    for name, seconds in first_calls().items():
        out.add_row(name, f"{seconds:.2f}")
    console.print(out)
    record(fit=found)


if __name__ == "__main__":
    main()
