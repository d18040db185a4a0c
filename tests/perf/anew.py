"""Functions that are decorated anew and called once, as each test of a suite does: what `pad` costs
there.

    python -m tests.perf.anew

Eight bodies, each at one size, in a process whose caches are warm, so that what is left is
tracing, proving and looking up. Results are asserted equal first. A process makes the functions of
one way; the second of each is timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from examples._figures import record

WAYS = {
    "jax.jit": None,
    "jitney": {},
    "jitney, pad": {"pad": {"n": [32]}},
    'jitney, pad, cache="program"': {"pad": {"n": [32]}, "cache": "program"},
}


def calls(way: str) -> tuple[float, list[float]]:
    """Seconds for all first calls, and a number of each."""
    import jax
    import jax.numpy as jnp

    from jitney import optimize
    from tests.perf._bodies import BODIES

    options = WAYS[way]
    rng, results, seconds = np.random.default_rng(0), [], 0.0
    for body in BODIES:
        x = rng.standard_normal(20, np.float32)
        began = time.perf_counter()
        f: Any = jax.jit(body) if options is None else optimize(body, **options)
        got = jax.block_until_ready(f(x))
        seconds += time.perf_counter() - began
        results.append(float(jnp.sum(got)))
    return seconds, results


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(calls(sys.argv[1])))
        return
    want, figures = None, {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as cache:
            warm = {
                "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            env = {**os.environ, **warm, "JITNEY_CACHE_DIR": cache}
            command = [sys.executable, "-m", "tests.perf.anew", way]
            runs = [
                json.loads(
                    subprocess.run(
                        command, env=env, check=True, capture_output=True, text=True
                    ).stdout
                )
                for _ in range(2)
            ]
        want = want or runs[0][1]
        for _, results in runs:
            np.testing.assert_allclose(results, want, rtol=1e-4, atol=1e-5)
        figures[way] = runs[1][0]
        print(
            f"{way:<32} {runs[0][0]:6.2f} s at first, {runs[1][0]:6.2f} s in a second process",
            flush=True,
        )
    record(seconds=figures)


if __name__ == "__main__":
    main()
