"""Fit the NIST sets, compare with SciPy, and draw what was fitted: `python -m examples.trf`."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import jax
import numpy as np
import scipy.optimize
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .._steps import steps
from .._summary import Watch
from . import Result, curve_fit
from ._curve import Residual
from ._picture import draw
from ._problem import Data, Setup
from ._program import SCALARS, fitted, programs
from .nist import MODELS, Reference, load

TIGHT = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15, "max_nfev": 5000}
ENOUGH = 6.0  # digits


@dataclass(frozen=True)
class Row:
    """One fit from one start, times in seconds."""

    reference: Reference
    start: int
    result: Result
    first: float
    warm: float
    scipy_nfev: int
    scipy_time: float

    @property
    def digits(self) -> float:
        """Correct digits of the worst parameter."""
        return self.reference.digits(self.result.x)


def fit(reference: Reference, start: int) -> Row:
    """Fit one set from one start, and do the same with SciPy and a jitted Jacobian."""
    b0 = reference.starts[start]

    def ours() -> Result:
        return curve_fit(reference.model, reference.x, reference.y, b0, **TIGHT)

    first, _ = timed(ours)
    warm, result = timed(ours, repeats=3)
    fun, jac = for_scipy(reference)
    scipy_time, theirs = timed(
        lambda: scipy.optimize.least_squares(fun, b0, jac=jac, x_scale="jac", **TIGHT), repeats=3
    )
    return Row(reference, start, result, first, warm, theirs.nfev, scipy_time)


def for_scipy(
    reference: Reference,
) -> tuple[Callable[[Any], np.ndarray], Callable[[Any], np.ndarray]]:
    """Residuals and exact Jacobian of a set, compiled, for NumPy arrays."""
    with jax.enable_x64(True):
        value = jax.jit(lambda b: reference.model(reference.x, *b) - reference.y)
        slope = jax.jit(jax.jacfwd(lambda b: reference.model(reference.x, *b)))
        value(reference.certified), slope(reference.certified)

    def fun(b: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(value(b))

    def jac(b: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(slope(b))

    return fun, jac


def timed(call: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Shortest time of a call, and what it gave. Overflow on the way is the solvers' business, not
    the reader's.
    """
    best, value = np.inf, None
    with np.errstate(all="ignore"):
        for _ in range(repeats):
            begin = time.perf_counter()
            value = call()
            best = min(best, time.perf_counter() - begin)
    return best, value


def compared(watch: Watch, reference: Reference) -> None:
    """Time a fit of one set as jitney's program and as plain `jax.jit` of the same function."""
    setup = Setup(
        Residual(reference.model, "no"),
        None,
        "linear",
        bounded=False,
        scale_by_jac=True,  # as `curve_fit` has it
        records=None,
    )
    controls = np.array([1e-8, 1e-8, 1e-8, 1.0, 300.0])
    given = (
        np.asarray(reference.starts[1], np.float64),
        Data(None, None, None, controls, None, (reference.x, reference.y, None), {}),
    )
    plain = jax.jit(lambda x0, data: fitted(setup, x0, data))

    def under_x64(call: Any) -> Any:
        with jax.enable_x64(True):
            return call(*given)

    found = slice(len(SCALARS), len(SCALARS) + reference.certified.size)
    ours = programs(setup).fit
    watch.compare(
        f"a fit of {reference.name}",
        lambda: under_x64(ours),
        lambda: under_x64(plain),
        part=lambda out: out[0][found],
    )


def table(rows: list[Row]) -> Table:
    """All fits, one a line."""
    out = Table(
        title="NIST StRD, every tolerance at 1e-15: n points, k parameters",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in (
        "set",
        "start",
        "n",
        "k",
        "digits",
        "nfev",
        "ms",
        "SciPy nfev",
        "SciPy ms",
        "compile s",
    ):
        out.add_column(name, justify="left" if name == "set" else "right", no_wrap=name == "set")
    for row in rows:
        colour = "green" if row.digits >= ENOUGH else "red"
        out.add_row(
            row.reference.name,
            str(row.start + 1),
            str(row.reference.y.size),
            str(row.reference.certified.size),
            f"[{colour}]{row.digits:.1f}[/]",
            str(row.result.nfev),
            f"{1e3 * row.warm:.2f}",
            str(row.scipy_nfev),
            f"{1e3 * row.scipy_time:.2f}",
            "" if row.start else f"{row.first - row.warm:.2f}",
            end_section=row.start == 1,
        )
    return out


def options() -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="python -m examples.trf", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/trf"),
        help="folder for the pictures (default: %(default)s)",
    )
    parser.add_argument(
        "sets", nargs="*", metavar="set", help=f"which sets (default: all of {', '.join(MODELS)})"
    )
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.sets) - set(MODELS))
    if unknown:
        parser.error(f"no such set: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot make the folder for the pictures: {error}")
    return chosen


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Tell whether Ctrl-C was pressed. A second press ends the program at once.

    An exception at any time would now and then be lost in one of JAX's callbacks, or leave its
    compiler to crash at exit.
    """
    pressed = Event()

    def press(number: int, frame: Any) -> None:
        if pressed.is_set():
            signal.default_int_handler(number, frame)
        pressed.set()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def fits(
    names: list[str], out: Path, console: Console, interrupted: Callable[[], bool]
) -> Iterator[Row]:
    """Fit each set from both starts and draw it."""
    with steps(console, len(names)) as begins:
        for name in names:
            begins(f"fits of {name:9}")
            reference = load(name)
            for start in range(2):
                row = fit(reference, start)
                yield row
                if interrupted():
                    return
            draw(reference, row.result, out / f"{name}.png")


def main() -> int:
    """Fit, draw and report; the exit code says whether every fit has its digits, 130 that it was
    interrupted.
    """
    chosen, console, watch = options(), Console(), Watch()
    with until_interrupted() as interrupted:
        rows = list(fits(chosen.sets or list(MODELS), chosen.out, console, interrupted))
        stopped = interrupted()
    console.print(table(rows))
    good = sum(row.digits >= ENOUGH for row in rows)
    console.print(
        f"{good} of {len(rows)} fits have the certified values to {ENOUGH:.0f} digits or more."
    )
    console.print(
        "Times are the shortest of 3 warm calls, from NumPy arrays to a result. SciPy: method 'trf'"
        " with a jitted exact Jacobian."
    )
    if rows and not stopped:
        console.print("Timing warm calls beside plain jax.jit ...")
        compared(watch, rows[-1].reference)
    watch.keep(chosen.out)
    console.print(f"Pictures of the fits: {chosen.out.resolve()}", soft_wrap=True)
    if stopped:
        console.print("Interrupted: these are the fits until then.")
        return 130
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
