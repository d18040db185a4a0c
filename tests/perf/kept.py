"""What a full folder of compiled programs costs a new one: jitney's size limit against JAX's, in
turn, each in its own process.

Run from the project's root: `python -m tests.perf.kept`. The folder holds 5000 small entries. Each
figure is for one new small program: traced, compiled, run and written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples._figures import record
from jitney._jax.compile_cache.entries import NAME

ENTRIES, PROGRAMS, ROUNDS = 5000, 50, 3


def measure() -> None:
    """Seconds of wall and CPU for each new program of this process."""
    import jax.numpy as jnp  # here, because only this process has its folder named
    import numpy as np

    import jitney

    x = jnp.ones(3)
    jitney.optimize(lambda x: x)(x)
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(PROGRAMS):
        np.testing.assert_array_equal(
            jitney.optimize(lambda x, i=float(i): x * i + 1)(x), np.full(3, i + 1.0)
        )
    print((time.perf_counter() - wall) / PROGRAMS, (time.process_time() - cpu) / PROGRAMS)


def run(entries: int, **environment: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / NAME
        folder.mkdir(mode=0o700)
        for i in range(entries):
            (folder / f"jit_fn-{i:064x}-cache").write_bytes(bytes(100))
            (folder / f"jit_fn-{i:064x}-atime").write_bytes(time.time_ns().to_bytes(8, "little"))
        env = {**os.environ, "JITNEY_CACHE_DIR": base, **environment}
        done = subprocess.run(
            [sys.executable, "-m", "tests.perf.kept", "one"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def main() -> None:
    ways = {"jitney's limit": {}, "JAX's limit": {"JAX_COMPILATION_CACHE_MAX_SIZE": str(2**31)}}
    print(
        f"{'entries':>8}  {'':16}{'wall':>11}{'CPU':>11}   for each new program, the least of"
        f" {ROUNDS} rounds"
    )
    found: dict[int, dict[str, float]] = {0: {}, ENTRIES: {}}
    for entries in found:
        rounds = [
            {name: run(entries, **environment) for name, environment in ways.items()}
            for _ in range(ROUNDS)
        ]
        for name in ways:
            wall, cpu = (
                min(column) * 1e3 for column in zip(*(found[name] for found in rounds), strict=True)
            )
            print(f"{entries:8}  {name:16}{wall:8.1f} ms{cpu:8.1f} ms")
            found[entries][name] = cpu
    record(empty=found[0], full=found[ENTRIES])


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["one"] else main()
