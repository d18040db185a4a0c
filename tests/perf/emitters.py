"""What an option of XLA's buys and costs on a CPU with JAX 0.10: `python -m tests.perf.emitters`.

By default a kernel is compiled by MLIR and then by LLVM; with `xla_cpu_use_fusion_emitters` off it
is LLVM alone. The programs are those of `tests.perf.auto`, under plain `jax.jit(jax.vmap(...))`.
Compiles are in seconds of the processors, the least of two, with no cache; warm calls take turns
for a second and a half, and their ratio is the median over pairs. Results are compared first.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import numpy as np

from .batches import FIRST, SECOND, Batch

OPTIONS = {"xla_cpu_use_fusion_emitters": False}
SECONDS, LEAST = 1.5, 6


def compiled(batch: Batch, options: dict[str, Any] | None) -> tuple[Any, float]:
    """The program, and the seconds of its compile."""
    jax.clear_caches()
    lowered = jax.jit(jax.vmap(batch.body)).lower(*batch.arrays())
    began = time.process_time()
    program = lowered.compile(compiler_options=options)
    return program, time.process_time() - began


def difference(want: object, got: object) -> float:
    """Largest difference of a number, by the largest number of its array.

    Raises:
        AssertionError: It is no rounding.
    """
    pairs = zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True)
    found = 0.0
    for one, other in ((np.asarray(a, float), np.asarray(b, float)) for a, b in pairs):
        most = float(np.nanmax(np.abs(one), initial=0.0)) or 1.0
        found = max(found, float(np.nanmax(np.abs(one - other), initial=0.0)) / most)
    assert found < 1e-3, found
    return found


def compare(name: str, batch: Batch) -> tuple[float, float]:
    """Print a line, and return how many times as fast compile and warm call are."""
    ways = [[compiled(batch, options) for _ in range(2)] for options in (None, OPTIONS)]
    before, after = (min(seconds for _, seconds in way) for way in ways)
    programs, arrays = [way[-1][0] for way in ways], batch.arrays()
    differ = difference(*(program(*arrays) for program in programs))

    walls: list[list[float]] = [[], []]
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(walls[0]) < LEAST:
        for i in (0, 1) if len(walls[0]) % 2 else (1, 0):
            began = time.perf_counter()
            jax.block_until_ready(programs[i](*arrays))
            walls[i].append(time.perf_counter() - began)
    warm = statistics.median(a / b for a, b in zip(*walls, strict=True))
    own = " ".join(f"{1e3 * statistics.median(wall):8.2f}" for wall in walls)
    print(
        f"{name:20} compile {before:5.2f} {after:5.2f} s {before / after:5.2f}  "
        f"warm {own} ms {warm:5.2f}  differ by {differ:.0e}",
        flush=True,
    )
    return before / after, warm


def main() -> None:
    """All programs, and the geometric means."""
    print(f"jax {jax.__version__}: as it is, and with {OPTIONS}")
    found = [compare(name, batch) for name, batch in {**FIRST, **SECOND}.items()]
    compiles, warm = (statistics.geometric_mean(each) for each in zip(*found, strict=True))
    print(f"times as fast in the geometric mean: compile {compiles:.2f}, warm {warm:.2f}")


if __name__ == "__main__":
    main()
