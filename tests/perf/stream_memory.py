"""Memory of a process while it streams: `python -m tests.perf.stream_memory [--gib 2]`.

Anonymous memory (RssAnon, without pages of files, which are the system's) is read every 5 ms while a
function with two passes goes over a file, after one stream of the same function. The result is
compared with NumPy's. Linux only.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

STATUS = Path("/proc/self/status")
PAUSE = 5e-3


@jitney.optimize
def variance(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.var(x)


def anonymous() -> float:
    """MiB of anonymous memory that this process has in RAM."""
    found = re.search(r"^RssAnon:\s*(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None, "this kernel does not count anonymous memory"
    return int(found[1]) / 1024


class Course(threading.Thread):
    """Reads the memory until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self.seen: list[float] = []

    def run(self) -> None:
        while not self.is_over.wait(PAUSE):
            self.seen.append(anonymous())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=2, help="of the file (default: %(default)s)")
    size = int(parser.parse_args().gib * 2**28)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "x.npy"
        data = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(size,))
        rng = np.random.default_rng(0)
        for start in range(0, size, 2**24):
            data[start : start + 2**24] = rng.standard_normal(len(data[start : start + 2**24]))
        data.flush()
        want = data.var(dtype=np.float64)
        del data
        variance.stream(path, progress=False)
        course = Course()
        course.start()
        start = time.perf_counter()
        got = float(variance.stream(path, progress=False).result)
        seconds = time.perf_counter() - start
        course.is_over.set()
        course.join()
    np.testing.assert_allclose(got, want, rtol=1e-4)
    seen = np.array(course.seen)
    figures = {
        "seconds": seconds,
        "mean": float(seen.mean()),
        "most": float(seen.max()),
        "variation": float(100 * seen.std() / seen.mean()),
    }
    print(
        f"{size * 4 / 2**30:g} GiB in two passes, {seconds:.2f} s: anonymous memory {seen.mean():.1f} MiB on"
        f" average, {seen.max():.1f} at most, coefficient of variation {figures['variation']:.2f} %,"
        f" {len(seen)} readings"
    )
    record(memory=figures)


if __name__ == "__main__":
    main()
