"""A fit that was written for SciPy, moved by its import alone: `python -m examples.trf.moved`.

The script is `ultrasonic.py`. It is run as it is, and with the one line changed that imports
`curve_fit`; then both fit in turn, and the thread's clock is read.

`python -m examples.trf.moved script.py ...` runs scripts of yours, each once with SciPy's functions
and once with ours in their place, NumPy's global random numbers seeded and no window, and prints
how far each fit is from SciPy's, in standard errors.
"""

import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

# before NumPy loads it: two threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.optimize

from . import drop_in

NAMES = ("curve_fit", "least_squares")
SCRIPT = Path(__file__).parent / "ultrasonic.py"
BEFORE, AFTER = (
    "from scipy.optimize import curve_fit",
    f"from {__package__}.drop_in import curve_fit",
)


def as_written() -> dict[str, Any]:
    """The script's names, with SciPy's `curve_fit`."""
    return runpy.run_path(str(SCRIPT))


def moved() -> dict[str, Any]:
    """The same with ours: one line differs."""
    source = SCRIPT.read_text()
    if source.count(BEFORE) != 1:
        raise RuntimeError(f"{SCRIPT} does not import `curve_fit` once.")
    source = source.replace(BEFORE, AFTER).replace("Path(__file__)", f"Path({str(SCRIPT)!r})")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / SCRIPT.name
        file.write_text(source)
        return runpy.run_path(str(file))


def fits_of(script: Path, module: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Values and standard errors of each fit that a script makes with the functions of a module."""
    made: list[tuple[np.ndarray, np.ndarray]] = []

    def recorded(fit: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = fit(*args, **options)
            made.append(_numbers(result))
            return result

        return call

    np.random.seed(0)
    functions = {name: recorded(getattr(module, name)) for name in NAMES}
    with mock.patch.multiple(scipy.optimize, **functions):
        runpy.run_path(str(script), run_name="__main__")
    return made


def _numbers(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """By the covariance that `curve_fit` gives, or that of the Jacobian of `least_squares`."""
    if isinstance(result, tuple):
        return result[0], np.sqrt(np.diag(result[1]))
    J = np.asarray(result.jac @ np.eye(result.x.size))
    freedom = max(J.shape[0] - J.shape[1], 1)
    return result.x, np.sqrt(np.diag(np.linalg.pinv(J.T @ J)) * 2 * result.cost / freedom)


def apart(script: Path) -> list[tuple[float, float]]:
    """How far each fit of a script is from SciPy's: the values in standard errors, and the standard
    errors as parts of themselves.
    """
    theirs, ours = (fits_of(script, module) for module in (scipy.optimize, drop_in))
    return [
        (float(np.max(np.abs(own - x) / error)), float(np.max(np.abs(own_error / error - 1))))
        for (x, error), (own, own_error) in zip(theirs, ours, strict=True)
    ]


def seconds(call: Callable[[], Any]) -> float:
    """Of the thread."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def main() -> None:
    """Fit both ways, compare, and time them in turn."""
    if sys.argv[1:]:
        os.environ["MPLBACKEND"] = "Agg"
        for script in map(Path, sys.argv[1:]):
            for i, (values, errors) in enumerate(apart(script), 1):
                print(f"{script.name}, fit {i}: values {values:.1e}, standard errors {errors:.1e}")
        return
    os.environ["JITNEY_CACHE"] = "off"  # the first call compiles
    calls = {"SciPy": as_written()["fit"], "drop-in": moved()["fit"]}
    first = {name: seconds(call) for name, call in calls.items()}
    (x, covariance), (own, own_covariance) = (call() for call in calls.values())
    np.testing.assert_allclose(own, x, rtol=1e-6)
    np.testing.assert_allclose(own_covariance, covariance, rtol=1e-4)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(200):
        for name, call in calls.items():
            times[name].append(seconds(call))
    for name, taken in times.items():
        warm = 1e3 * float(np.median(taken))
        print(f"{name:8} first {1e3 * first[name]:8.2f} ms, then {warm:6.2f} ms of the thread")


if __name__ == "__main__":
    main()
