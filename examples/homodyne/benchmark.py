"""Seconds and peak memory of one fit each way, a fresh process for each: `python -m
examples.homodyne.benchmark`.

It ends with exit code 1 if the parameters of two ways differ by more than 1e-10. "Before" is
`before.py`, a loop over angles around a jitted residual and `jax.jacfwd`, with all points in
memory. Each way "by hand" is that of `by_hand.py`, without jitney. Lines are those of the way, what
it shares with another one included; the physics and the solver are the same for all. Times include
reading and compiling; the persistent cache is off.

`--evaluation` compares one sum of each way with that by hand, in one process and in turn: equal to
1e-12 before any time is taken, then the least of nine, in time of all processors.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .._figures import record
from .._lines import lines_of
from . import _fit, before, by_hand
from ._data import Data
from ._fit import CHUNK, START, chunked, fit, in_memory, streamed

WAYS = {
    "before": before.products,
    "in memory": in_memory,
    "in memory by hand": by_hand.in_memory,
    "chunked": chunked,
    "chunked by hand": lambda data: by_hand.in_memory(data, by_hand.in_chunks),
    "streamed": lambda data: streamed(data, data.folder / "products.checkpoint"),
    "streamed by hand": lambda data: by_hand.streamed(data, 4 * CHUNK),
}
LINES = {
    "before": lines_of(before, "products"),
    "in memory": lines_of(_fit, "at_once", "in_memory", "_summed"),
    "in memory by hand": lines_of(by_hand, "over_angles", "at_once", "in_memory"),
    "chunked": lines_of(_fit, "in_chunks", "chunked", "in_memory", "_summed"),
    "chunked by hand": lines_of(by_hand, "over_angles", "in_chunks", "in_memory"),
    "streamed": lines_of(_fit, "at_once", "streamed", "_summed"),
    "streamed by hand": lines_of(by_hand, "UPPER", "CUTS", "over_angles", "programs", "streamed"),
}
HEAD = (
    "| points | | seconds | of all processors | peak memory, GiB | evaluations | lines |\n"
    "|---|---|---|---|---|---|---|"
)
PAIRED = ("in memory", "chunked", "streamed")
AGREE = 1e-10
EQUAL = 1e-12
ROUNDS = 9


def measured(way: str, data: Data) -> dict:
    """One fit in this process."""
    began, of_all = time.perf_counter(), time.process_time()
    result = fit(WAYS[way](data), data)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "processors": time.process_time() - of_all,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "nfev": result.nfev,
        "x": result.x.tolist(),
    }


def evaluations(data: Data) -> None:
    """Print what one sum takes by each way and by hand, milliseconds of all processors."""
    pairs = {name: (WAYS[name], WAYS[f"{name} by hand"]) for name in PAIRED}
    sums = {name: [way(data) for way in pair] for name, pair in pairs.items()}
    flat = [summed for pair in sums.values() for summed in pair]
    found = [summed(START) for summed in flat]
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=EQUAL, atol=EQUAL * np.abs(found[0]).max())
    least = np.full(len(flat), np.inf)
    for _ in range(ROUNDS):
        for i, summed in enumerate(flat):
            begin = time.process_time()
            summed(START)
            least[i] = min(least[i], 1e3 * (time.process_time() - begin))
    for name, ours, hand in zip(PAIRED, least[::2], least[1::2], strict=True):
        print(f"{name:12} {ours:8.1f} ms, by hand {hand:8.1f}, ours / by hand {ours / hand:.2f}")


def main() -> None:
    """Run each way at each size, and print a line for each size."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.benchmark", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--sizes", type=float, nargs="+", default=[1e6, 1e7], help="points (default: %(default)s)"
    )
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument(
        "--folder", type=Path, help="where the data are written (default: a temporary folder)"
    )
    parser.add_argument(
        "--evaluation", action="store_true", help="one sum of each way beside by hand, at one size"
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        way, folder, frames, angles = chosen.one
        print(json.dumps(measured(way, Data(Path(folder), int(frames), int(angles)))))
        return
    if chosen.evaluation:
        with tempfile.TemporaryDirectory() as temporary:
            data = Data.make(chosen.folder or Path(temporary), int(chosen.sizes[0]))
            evaluations(data)
        return
    by_points: dict[str, dict[str, dict]] = {}
    print(HEAD)
    with tempfile.TemporaryDirectory() as temporary:
        for size in chosen.sizes:
            data = Data.make((chosen.folder or Path(temporary)) / f"{size:g}", int(size))
            found = {}
            for way in chosen.ways:
                command = [
                    sys.executable,
                    "-m",
                    f"{__package__}.benchmark",
                    "--one",
                    way,
                    str(data.folder),
                    str(data.frames),
                    str(data.angles),
                ]
                run = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, "JITNEY_CACHE": "off"},
                )
                if run.returncode:
                    print(
                        f"{data.points:>12,}  {way:17} failed with exit code {run.returncode}:"
                        f" {run.stderr.strip().splitlines()[-1:]}",
                        flush=True,
                    )
                    continue
                found[way] = json.loads(run.stdout.splitlines()[-1])
                each = found[way]
                taken = f"{each['seconds']:.2f} | {each['processors']:.2f} | {each['peak']:.2f}"
                print(
                    f"| {data.points:,} | {way} | {taken} | {each['nfev']} | {LINES[way]} |",
                    flush=True,
                )
            x = np.array([each["x"] for each in found.values()])
            apart = float(np.max(np.ptp(x, axis=0) / np.abs(x).max(axis=0)))
            print(f"{data.points:>12,}  ways apart by {apart:.1e}, limit {AGREE:g}", flush=True)
            if apart > AGREE:
                sys.exit(1)
            by_points[f"{data.points:,}"] = found
    record(points=by_points)


if __name__ == "__main__":
    main()
