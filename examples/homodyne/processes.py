"""One fit of several processes, each with its part of the points: `python -m
examples.homodyne.processes`, started once in each.

    for i in 0 1; do
      JAX_PLATFORMS=cpu JAX_COORDINATOR_ADDRESS=127.0.0.1:12345 \\
        JAX_NUM_PROCESSES=2 JAX_PROCESS_ID=$i python -m examples.homodyne.processes &
    done; wait

Started alone it is one process, with all points. `--compare` fits them by process 0 alone too; the
exit code is 1 if the parameters differ by more than 1e-10.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import jitney

from ._data import NOISE, TRUTH, Data
from ._measurement import Measurement
from ._mode_fit import WAYS, ModeFit, fit_mode
from ._together import Together

AGREE = 1e-10
# Away from the truth, and the same in all processes.
START = {"D0": 1.3e4, "alpha": -0.3, "gamma0": 4e-4, "beta": -0.2, "phi0": 0.05}


def measurement(data: Data, rows: slice) -> Measurement:
    """Some of the points, read when they are used."""
    t1, t2, measured = (data.mapped(name)[..., rows] for name in ("t1", "t2", "measured"))
    return Measurement(t1, t2, measured, data.phi, sigma=NOISE)


def fitted(data: Measurement, way: str, **options: Any) -> ModeFit:
    """The same fit, of all points or of a part."""
    return fit_mode("laminar_flow", data, way=way, start=START, **options)


def main() -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.processes",
        description="One fit of several processes.",
    )
    parser.add_argument("--points", type=float, default=1e6, help="about how many in all")
    parser.add_argument("--angles", type=int, default=8)
    parser.add_argument("--way", choices=WAYS, default="streamed")
    parser.add_argument("--compare", action="store_true", help="with a fit of one process")
    parser.add_argument("--out", type=Path, default=Path("out/homodyne"))
    chosen = parser.parse_args()
    processes = jitney.processes.distributed()
    together = Together(processes)
    points = int(chosen.points)
    folder = chosen.out / f"{points}-{chosen.angles}"
    if processes.index == 0:
        Data.make(folder, points, chosen.angles)
    together(np.zeros(1), np.zeros(1))  # the others wait for the data
    data = Data.make(folder, points, chosen.angles)
    own = measurement(data, together.rows(data.pairs))
    began = time.perf_counter()
    found = fitted(own, chosen.way, together=together)
    seconds = time.perf_counter() - began
    print(
        f"{processes}: {own.measured.size:,} of {found.points:,} points, {chosen.way},"
        f" {found.evaluations} evaluations, {seconds:.1f} s",
        flush=True,
    )
    if processes.index:
        return 0 if found.success else 1
    for name, value, error, true in zip(found.names, found.x, found.errors, TRUTH, strict=True):
        print(f"{name:16} {value:>14.8g} {error:>10.2g}   {(value - true) / error:+.2f} off")
    if not chosen.compare:
        return 0 if found.success else 1
    alone = fitted(measurement(data, slice(None)), chosen.way)
    apart = float(np.max(np.abs(found.x / alone.x - 1)))
    print(f"one process alone, relative: {apart:.1e} apart (limit {AGREE:g})")
    return 0 if found.success and apart <= AGREE else 1


if __name__ == "__main__":
    sys.exit(main())
