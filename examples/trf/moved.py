"""A fit that was written for SciPy, moved by its import alone: `python -m examples.trf.moved`.

The script is `ultrasonic.py`. It is run as it is, and with the one line changed that imports
`curve_fit`; then both fit in turn, and the thread's clock is read.
"""

import os
import runpy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before NumPy loads it: two threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

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


def seconds(call: Callable[[], Any]) -> float:
    """Of the thread."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def main() -> None:
    """Fit both ways, compare, and time them in turn."""
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
