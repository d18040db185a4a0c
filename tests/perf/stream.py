"""`jitney.stream` against one call on all the data in memory: time, and peak memory by length.

    python -m tests.perf.stream [--largest 100000000]

A least-squares gradient in float64 over float32 data of five columns, from plain files. Each side
and length runs in a process of its own, and their results are compared. Time is of the second run
and includes reading; peak memory is the largest resident size of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

CHUNK = 2**18
WEIGHTS = np.array([1.0, -0.5, 0.25, 2.0], np.float32)


@jitney.optimize(precision="f64")
def gradient(
    w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
) -> Float[Array, "k"]:
    return jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)


class Rows:
    """A part of a plain file of float32 numbers, read when it is sliced."""

    def __init__(self, path: str, rows: int, columns: int):
        self.path, self.dtype = path, np.dtype(np.float32)
        self.columns = columns
        self.shape = (rows, columns) if columns > 1 else (rows,)

    def __getitem__(self, where: slice) -> np.ndarray[Any, Any]:
        count = (where.stop - where.start) * self.columns
        with open(self.path, "rb") as file:  # noqa: PTH123
            file.seek(where.start * self.columns * 4)
            return np.fromfile(file, np.float32, count).reshape(-1, *self.shape[1:])


def write(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    with open(f"{folder}/x", "wb") as x, open(f"{folder}/y", "wb") as y:  # noqa: PTH123
        for start in range(0, rows, 10**6):
            part = rng.standard_normal((min(10**6, rows - start), 4), np.float32)
            part.tofile(x)
            np.tanh(part @ WEIGHTS / 2).tofile(y)


def measure(side: str, folder: str, rows: int) -> dict[str, Any]:
    """Seconds of a second run, peak memory of both in MiB, and the result."""
    x, y = Rows(f"{folder}/x", rows, 4), Rows(f"{folder}/y", rows, 1)

    def run() -> Any:
        if side == "stream":
            return jitney.stream(
                gradient, w=WEIGHTS, x=x, y=y, chunk={"n": CHUNK}, progress=False
            ).result
        return gradient(WEIGHTS, x[0:rows], y[0:rows])

    small = Rows(f"{folder}/x", 3 * CHUNK, 4), Rows(f"{folder}/y", 3 * CHUNK, 1)
    jitney.stream(gradient, w=WEIGHTS, x=small[0], y=small[1], chunk={"n": CHUNK}, progress=False)
    seconds: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        out = np.asarray(run())
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds[1], "peak": peak, "out": out.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--largest", type=int, default=100_000_000, help="rows of the longest data")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options.folder, options.largest)))
        return
    print(
        f"{'rows':>12} {'stream, s':>10} {'in memory, s':>12} {'stream, MiB':>11}"
        f" {'in memory, MiB':>14}"
    )
    peaks: list[float] = []
    found: dict[str, dict[str, Any]] = {}
    for rows in [n for n in (10**6, 10**7, 10**8) if n <= options.largest]:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            write(folder, rows)
            for side in ("stream", "memory"):
                command = [
                    sys.executable,
                    "-m",
                    "tests.perf.stream",
                    "--side",
                    side,
                    "--folder",
                    folder,
                    "--largest",
                    str(rows),
                ]
                found[side] = json.loads(
                    subprocess.run(
                        command, check=True, capture_output=True, text=True
                    ).stdout.splitlines()[-1]
                )
            a, b = found["stream"], found["memory"]
            np.testing.assert_allclose(a["out"], b["out"], rtol=1e-5)
            peaks.append(a["peak"])
            print(
                f"{rows:12,} {a['seconds']:10.2f} {b['seconds']:12.2f} {a['peak']:11.0f}"
                f" {b['peak']:14.0f}",
                flush=True,
            )
    record(stream=found["stream"], memory=found["memory"])
    print(
        f"peak memory of the stream varies by {np.std(peaks) / np.mean(peaks):.1%} (coefficient of"
        " variation)"
    )


if __name__ == "__main__":
    main()
