"""`jitney.stream` against one call on all the data in memory, and against a loop over chunks by
hand: time, and peak memory by length.

    python -m tests.perf.stream [--largest 100000000]

A least-squares gradient in float64 over float32 data of five columns, from plain files. By hand it
is one jitted step for each chunk, which is read as the stream reads it, or is a part of the mapped
file. Each side and length runs in a process of its own, and their results are compared. Time is of
the second run and includes reading; peak memory is the largest resident size of the process, of a
mapped file with all its pages, which the system may drop.
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
from examples._lines import lines_of

CHUNK = 2**18
SIDES = ("stream", "hand", "mapped", "memory")
WEIGHTS = np.array([1.0, -0.5, 0.25, 2.0], np.float32)


@jitney.optimize(precision="f64")
def gradient(
    w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]
) -> Float[Array, "k"]:
    return jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)


@jax.jit
def step(total: Any, w: Any, x: Any, y: Any) -> Any:
    """The sum over a chunk, added to those before it."""
    x, y = x.astype(w.dtype), y.astype(w.dtype)
    return total + jax.grad(lambda w: jnp.sum((jnp.tanh(x @ w) - y) ** 2))(w)


def by_hand(w: Any, x: Any, y: Any) -> Any:
    """What one writes without jitney: the sums of chunks in float64, divided by their number."""
    with jax.enable_x64(True):
        w, total, rows = w.astype(np.float64), np.zeros(w.shape), len(y)
        for start in range(0, rows, CHUNK):
            part = slice(start, min(start + CHUNK, rows))
            total = step(total, w, x[part], y[part])
        return np.asarray(total / rows, np.float32)


class Rows:
    """A part of a plain file of float32 numbers, read when it is sliced."""

    def __init__(self, path: str, rows: int, columns: int):
        self.path, self.dtype = path, np.dtype(np.float32)
        self.columns = columns
        self.shape = (rows, columns) if columns > 1 else (rows,)

    def __len__(self) -> int:
        return self.shape[0]

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

    def run(x: Any = x, y: Any = y) -> Any:
        if side == "memory":
            return gradient(WEIGHTS, x[0:rows], y[0:rows])
        if side == "hand":
            return by_hand(WEIGHTS, x, y)
        if side == "mapped":
            return by_hand(
                WEIGHTS, *(np.memmap(a.path, a.dtype, "r", shape=a.shape) for a in (x, y))
            )
        return jitney.stream(
            gradient, w=WEIGHTS, x=x, y=y, chunk={"n": CHUNK}, progress=False
        ).result

    if side != "memory":
        run(Rows(f"{folder}/x", 3 * CHUNK, 4), Rows(f"{folder}/y", 3 * CHUNK, 1))
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
    head = ["rows", *(f"{side}, s" for side in SIDES), *(f"{side}, MiB" for side in SIDES)]
    print("|", " | ".join(head), "|")
    print("|---" * len(head) + "|")
    peaks: list[float] = []
    found: dict[str, dict[str, Any]] = {}
    for rows in [n for n in (10**6, 10**7, 10**8) if n <= options.largest]:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            write(folder, rows)
            for side in SIDES:
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
            sides = [found[side] for side in SIDES]
            for each in sides[1:]:
                np.testing.assert_allclose(each["out"], sides[0]["out"], rtol=1e-5)
            peaks.append(found["stream"]["peak"])
            seconds = (f"{each['seconds']:.2f}" for each in sides)
            print(
                "|",
                " | ".join([f"{rows:,}", *seconds, *(f"{each['peak']:,.0f}" for each in sides)]),
                "|",
                flush=True,
            )
    record(**found)
    by_hands = lines_of(sys.modules[__name__], "step", "by_hand")
    print(f"lines of code: 1 beside the function, {by_hands} by hand")
    print(
        f"peak memory of the stream varies by {np.std(peaks) / np.mean(peaks):.1%} (coefficient of"
        " variation)"
    )


if __name__ == "__main__":
    main()
