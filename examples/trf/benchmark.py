"""Time fits against SciPy and optimistix, in turn, in one process: `python -m
examples.trf.benchmark [--quick]`.

What is compared. Every solver gets the same data, start, tolerances (1e-8) and exact derivatives,
and what it reaches is compared before anything is timed: fits that end more than 1e-6 above the
best cost are counted as missed. `trf` is the whole call of `curve_fit` with its defaults, checks
and result included, from JAX arrays to the parameters in NumPy. `by hand` is `levenberg.py`, one
`jax.jit`, likewise from JAX arrays to NumPy, and so is `optx`, optimistix. `by hand, blocks` is
`in_blocks.py`, for many points: sums over blocks that fit into the caches, on all cores. SciPy has
its model and Jacobian in NumPy, as one writes them for SciPy, and once more jitted ("jit"), which
is quicker at many points; the scale of its parameters is the Jacobian's, as that of `curve_fit` is.
Its method "lm" has no bounds. NLSQ and jaxopt are timed where they are installed (`peers.py`).
`loop` is `before.py`, without a scale. Rounds alternate between solvers, so that a busy machine is
busy for all. Times are medians; compile times are apart.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# before NumPy loads it: two threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import scipy.optimize
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from .._figures import record
from . import before, curve_fit, in_blocks, levenberg, peers

Points = Float[Array, "points"]
Scalar = Float[Array, ""]
Solver = Callable[[], np.ndarray]


def decay(t: Points, a: Scalar, b: Scalar, c: Scalar) -> Points:
    """Exponential decay to a constant."""
    return a * jnp.exp(-b * t) + c


def peak(
    t: Points, height: Scalar, centre: Scalar, width: Scalar, slope: Scalar, offset: Scalar
) -> Points:
    """Gaussian on a line."""
    return height * jnp.exp(-0.5 * ((t - centre) / width) ** 2) + slope * t + offset


def decay_in_numpy(t: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    """The decay for SciPy."""
    return a * np.exp(-b * t) + c


def slopes_of_decay(t: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
    """Its Jacobian."""
    falling = np.exp(-b * t)
    return np.column_stack([falling, -a * t * falling, np.ones_like(t)])


def peak_in_numpy(
    t: np.ndarray, height: float, centre: float, width: float, slope: float, offset: float
) -> np.ndarray:
    """The peak for SciPy."""
    return height * np.exp(-0.5 * ((t - centre) / width) ** 2) + slope * t + offset


def slopes_of_peak(
    t: np.ndarray, height: float, centre: float, width: float, slope: float, offset: float
) -> np.ndarray:
    """Its Jacobian."""
    z = (t - centre) / width
    bell = np.exp(-0.5 * z**2)
    rise = height * bell * z / width
    return np.column_stack([bell, rise, rise * z, t, np.ones_like(t)])


@dataclass(frozen=True, eq=False)
class Case:
    """A curve with its truth, start, and two boxes: one that holds the solution inside, one that
    keeps the first parameter below it.
    """

    model: Callable[..., Array]
    in_numpy: Callable[..., np.ndarray]
    slopes: Callable[..., np.ndarray]
    truth: tuple[float, ...]
    start: tuple[float, ...]
    box: tuple[tuple[float, ...], tuple[float, ...]]
    held: tuple[tuple[float, ...], tuple[float, ...]]


CASES = {
    "decay": Case(
        decay,
        decay_in_numpy,
        slopes_of_decay,
        (2.5, 1.3, 0.5),
        (1.0, 1.0, 0.1),
        ((0, 0, 0), (10, 10, 10)),
        ((0, 0, 0), (2.2, 10, 10)),
    ),
    "peak": Case(
        peak,
        peak_in_numpy,
        slopes_of_peak,
        (2.0, 1.8, 0.4, 0.3, 1.0),
        (1.0, 1.5, 0.6, 0.1, 0.5),
        ((0, 0, 0.05, -5, -5), (10, 4, 4, 5, 5)),
        ((0, 0, 0.05, -5, -5), (1.8, 4, 4, 5, 5)),
    ),
}
SIZES = (100, 1_000, 10_000, 50_000, 1_000_000)
MANY = 50_000  # points, from which on blocks are worth while


def measured(case: Case, n: int, fits: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Times and noisy measurements; one row per fit for a batch."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 4, n)
    with jax.enable_x64(True):
        y = np.asarray(case.model(t, *map(np.float64, case.truth)))
    shape = (n,) if fits is None else (fits, n)
    return t, y + 0.05 * rng.normal(size=shape)


def solvers(case: Case, n: int, box: Any) -> dict[str, Solver]:
    """Every solver that can fit the case, as a call without arguments that gives the parameters."""
    times, values = measured(case, n)
    t, y = map(jnp.asarray, (times, values))
    start = np.asarray(case.start)
    value = jax.jit(lambda p, t, y: case.model(t, *p) - y)
    slope = jax.jit(jax.jacfwd(lambda p, t: case.model(t, *p)))

    def fun(p: np.ndarray) -> np.ndarray:
        return np.asarray(value(p, t, y))

    def jac(p: np.ndarray) -> np.ndarray:
        return np.asarray(slope(p, t))

    def by_scipy(method: str, *, jitted: bool) -> Solver:
        bounds = (-np.inf, np.inf) if box is None else box
        residual, slopes = (
            (fun, jac)
            if jitted
            else (lambda p: case.in_numpy(times, *p) - values, lambda p: case.slopes(times, *p))
        )
        options = {"jac": slopes, "method": method, "bounds": bounds, "x_scale": "jac"}
        return lambda: scipy.optimize.least_squares(residual, start, **options).x

    def by_hand() -> np.ndarray:
        sides = (None, None) if box is None else tuple(np.asarray(side, float) for side in box)
        return np.asarray(levenberg.fit(case.model, t, y, start, *sides))

    def by_optimistix(solver: Any) -> Solver:
        def one(p: Array, t: Array, y: Array) -> Array:
            return optimistix.least_squares(
                lambda p, data: case.model(data[0], *p) - data[1],
                solver,
                p,
                args=(t, y),
                throw=False,
            ).value

        run = jax.jit(one)
        # waiting first is faster for optimistix
        return lambda: np.asarray(run(start, t, y).block_until_ready())

    if box is not None:
        return {
            "trf": lambda: curve_fit(case.model, t, y, start, bounds=box).x,
            "by hand": by_hand,
            "scipy trf": by_scipy("trf", jitted=False),
            "scipy trf, jit": by_scipy("trf", jitted=True),
            **peers.solvers(case.model, t, y, start, box),
        }
    many = {"by hand, blocks": lambda: in_blocks.fit(case.model, t, y, start)}
    return {
        "trf": lambda: curve_fit(case.model, t, y, start).x,
        "by hand": by_hand,
        **(many if n >= MANY else {}),
        "optx LM": by_optimistix(optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)),
        "optx Dogleg": by_optimistix(optimistix.Dogleg(rtol=1e-8, atol=1e-8)),
        "scipy lm": by_scipy("lm", jitted=False),
        "scipy lm, jit": by_scipy("lm", jitted=True),
        "scipy trf": by_scipy("trf", jitted=False),
        "scipy trf, jit": by_scipy("trf", jitted=True),
        **peers.solvers(case.model, t, y, start),
        "loop": lambda: before.least_squares(fun, start, jac).x,
    }


def batch_solvers(case: Case, fits: int, n: int) -> dict[str, Solver]:
    """The same for a batch of fits that share t."""
    t, y = map(jnp.asarray, measured(case, n, fits))
    start = np.asarray(case.start)

    def by_optimistix(solver: Any) -> Solver:
        def one(y: Array) -> Array:
            return optimistix.least_squares(
                lambda p, data: case.model(data[0], *p) - data[1],
                solver,
                start,
                args=(t, y),
                throw=False,
            ).value

        run = jax.jit(jax.vmap(one))
        return lambda: np.asarray(run(y).block_until_ready())

    by_hand = jax.jit(jax.vmap(lambda row: levenberg.fit(case.model, t, row, start)))

    return {
        "trf": lambda: curve_fit(case.model, t, y, start).x,
        "by hand": lambda: np.asarray(by_hand(y)),
        "optx LM": by_optimistix(optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)),
        "optx Dogleg": by_optimistix(optimistix.Dogleg(rtol=1e-8, atol=1e-8)),
    }


@dataclass(frozen=True)
class Timing:
    """One solver on one problem: median and first call in seconds, and how many of its fits did not
    reach the best cost.
    """

    median: float
    first: float
    missed: int


def compare(
    named: Mapping[str, Solver], cost: Callable[[np.ndarray], np.ndarray], seconds: float
) -> dict[str, Timing]:
    """Compile every solver and see what it reaches, then time them in turn.

    Raises:
        RuntimeError: `trf` misses the best cost.
    """
    first, ends = {}, {}
    for name, solve in named.items():
        begin = time.perf_counter()
        found = solve()
        first[name] = time.perf_counter() - begin
        ends[name] = cost(found)
    best = np.nanmin(np.stack(list(ends.values())), axis=0)
    missed = {name: int(np.sum(~(end <= best * (1 + 1e-6)))) for name, end in ends.items()}
    if missed["trf"]:
        raise RuntimeError(
            f"trf misses the best cost in {missed['trf']} of {best.size} fits; only equal results"
            " are worth timing."
        )
    times: dict[str, list[float]] = {name: [] for name in named}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times["trf"]) < 5:
        for name, solve in named.items():
            solve()  # the one before may have taken caches and threads
            start = time.perf_counter()
            solve()
            times[name].append(time.perf_counter() - start)
    return {
        name: Timing(float(np.median(taken)), first[name], missed[name])
        for name, taken in times.items()
    }


def costs(case: Case, t: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Cost of parameters, or of rows of parameters, in NumPy."""

    def cost(p: np.ndarray) -> np.ndarray:
        curve = np.asarray(jax.vmap(lambda row: case.model(t, *row))(np.atleast_2d(p)))
        return 0.5 * np.sum((curve - y) ** 2, axis=-1)

    return cost


def show(
    console: Console, title: str, rows: Mapping[str, Mapping[str, Timing]], unit: float
) -> None:
    """Print a row per problem and a column per solver."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    out = Table(title=title)
    out.add_column("", no_wrap=True)
    for name in (*names, "best peer / trf"):
        out.add_column(name, justify="right")
    for label, row in rows.items():
        fastest = min(timing.median for timing in row.values())
        peers = [
            timing.median
            for name, timing in row.items()
            if name not in ("trf", "loop") and not timing.missed
        ]
        cells = [
            _cell(row[name], unit, bold=row[name].median == fastest) if name in row else ""
            for name in names
        ]
        out.add_row(label, *cells, f"{min(peers) / row['trf'].median:.1f}")
    firsts = []
    for name in names:
        compiled = [row[name].first - row[name].median for row in rows.values() if name in row]
        firsts.append(f"{name} {np.median(compiled):.2f}")
    out.caption = f"First call less a warm one, median in s: {', '.join(firsts)}"
    console.print(out)


def _cell(timing: Timing, unit: float, bold: bool) -> str:
    text = f"{timing.median / unit:.3g}"
    if timing.missed:
        text += f" ({timing.missed} missed)"
    return f"[bold]{text}[/]" if bold else text


def by_package(row: Mapping[str, Timing], unit: float) -> dict[str, float]:
    """The best median of `trf`, optimistix and SciPy each, of those that missed no fit."""
    found: dict[str, float] = {}
    for name, each in row.items():
        if not each.missed:
            package = "by hand" if name.startswith("by hand") else name.partition(" ")[0]
            found[package] = min(each.median / unit, found.get(package, np.inf))
    return found


def processors(turns: int = 40) -> dict[str, dict[str, float]]:
    """Time of all processors for a fit of a batch, in us: the least of calls in turn, which other
    work on the machine changes less than the clock.
    """
    found = {}
    for name, case in CASES.items():
        all_of_them = batch_solvers(case, 1000, 100)
        pair = {which: all_of_them[which] for which in ("trf", "by hand")}
        compare(pair, costs(case, *measured(case, 100, 1000)), 0.0)
        found[name] = least = {which: 1e3 * took[1] for which, took in _least(pair, turns).items()}
        print(
            f"{name}: {least['trf']:.2f} us a fit of all processors, by hand"
            f" {least['by hand']:.2f}, trf / by hand {least['trf'] / least['by hand']:.2f}"
        )
    return found


def _least(pair: Mapping[str, Solver], turns: int) -> dict[str, tuple[float, float]]:
    """Seconds by the clock and of all processors, the least of calls in turn."""
    least = dict.fromkeys(pair, (np.inf, np.inf))
    for _ in range(turns):
        for which, solve in pair.items():
            begin, used = time.perf_counter(), time.process_time()
            solve()
            took = time.perf_counter() - begin, time.process_time() - used
            least[which] = (min(least[which][0], took[0]), min(least[which][1], took[1]))
    return least


def blocks(points: int = 1_000_000, turns: int = 9) -> None:
    """Print a fit of many points beside the loop by hand in blocks, which gives the same."""
    for name, case in CASES.items():
        all_of_them = solvers(case, points, None)
        pair = {which: all_of_them[which] for which in ("trf", "by hand, blocks")}
        np.testing.assert_allclose(*(solve() for solve in pair.values()), rtol=1e-5)
        least = _least(pair, turns)
        for which, (clock, used) in least.items():
            print(
                f"{name}, {points:,} points, {which}: {1e3 * clock:.0f} ms,"
                f" {1e3 * used:.0f} of all processors"
            )
        ratios = (ours / hand for ours, hand in zip(*least.values(), strict=True))
        print("trf / by hand, blocks: {:.2f}, {:.2f}".format(*ratios))


def main() -> None:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.trf.benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--quick", action="store_true", help="up to 10,000 points, a tenth of a second a problem"
    )
    length.add_argument("--full", action="store_true", help="ten seconds a problem instead of two")
    length.add_argument(
        "--batches",
        action="store_true",
        help="batches alone, beside by hand, by the time of all processors",
    )
    length.add_argument(
        "--blocks", action="store_true", help="a million points beside the loop by hand in blocks"
    )
    options = parser.parse_args()
    os.environ["JITNEY_CACHE"] = "off"  # first calls compile, for every solver
    seconds = 0.1 if options.quick else 10.0 if options.full else 2.0
    console = Console(width=150)  # also where there is no terminal
    console.print(
        f"jax {jax.__version__}, optimistix {optimistix.__version__}, scipy {scipy.__version__}"
        f"{peers.versions()}, {os.cpu_count()} cores"
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    if options.batches:
        with jax.enable_x64(True):
            record(processors=processors())
        return
    if options.blocks:
        with jax.enable_x64(True):
            blocks()
        return
    with jax.enable_x64(True):
        for kind in ("free", "box", "held"):
            rows = {}
            for name, case in CASES.items():
                for n in SIZES[:3] if options.quick else SIZES:
                    box = None if kind == "free" else getattr(case, kind)
                    rows[f"{name} {n:,}"] = compare(
                        solvers(case, n, box), costs(case, *measured(case, n)), seconds
                    )
            titles = {
                "free": "Without bounds",
                "box": "Bounds that do not hold at the solution",
                "held": "Bounds, one of which holds at the solution",
            }
            show(console, f"{titles[kind]}: ms per fit", rows, 1e-3)
            found[kind] = {name: by_package(row, 1e-3) for name, row in rows.items()}
        rows = {}
        for name, case in CASES.items():
            fits = 1000
            rows[f"{name}, {fits} x 100"] = compare(
                batch_solvers(case, fits, 100), costs(case, *measured(case, 100, fits)), seconds
            )
        show(console, "Batches: us per fit", rows, 1e-6 * fits)
        found["batch"] = {name: by_package(row, 1e-6 * fits) for name, row in rows.items()}
    record(**found)


if __name__ == "__main__":
    main()
