"""What jitney takes before a program runs: import, decoration and first call, beside `jax.jit`,
each in a process of its own, in turn.

Run from the project's root: `python -m tests.perf.imports`. Each line is a step after `import jax,
equinox`, in milliseconds: the least and the median of the rounds, as a process saw it. Bytecode is
there, as after an installation; no program is kept from one process to the next. `--beside FOLDER`
adds the source of another tree (its `src`), for before and after; `--rounds 5` and `--steps plain`
are less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from examples._figures import record

HERE = Path(__file__).parents[2] / "src"
OPTIONS = {"plain": "", "pad": 'pad={"n": "pow2"}', "chunk": 'chunk={"n": 4}'}
BEGIN = """
import json, sys, time, jax, equinox, numpy as np
from jaxtyping import Array, Float
def f(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.numpy.sin(x) * y + 1
x = np.arange(16, dtype=np.float32)
jax.jit(lambda x: x - 1)(x).block_until_ready()  # the backend has started
steps, last = {}, time.perf_counter()
def step(name):
    global last
    steps[name], last = time.perf_counter() - last, time.perf_counter()
"""
JITNEY = """
import jitney
step("import jitney")
jitney.optimize
step("jitney.optimize")
g = jitney.optimize(OPTIONS)(f)
step("decorate")
"""
PLAIN = """
g = jax.jit(f)
"""
END = """
result = np.asarray(g(x, x))
step("first call")
modules = [name for name in sys.modules if name.split(".")[0] == "jitney"]
print(json.dumps({"steps": {**steps, "in all": sum(steps.values())}, "result": result.tolist(), "modules": len(modules)}))
"""


def run(script: str, source: Path, bytecode: str) -> dict[str, Any]:
    """The steps of one process."""
    # Without its cache JAX keeps no program, and jitney, which would have turned it on, leaves it
    # so.
    env = {
        **os.environ,
        "PYTHONPATH": str(source),
        "PYTHONPYCACHEPREFIX": bytecode,
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script + END],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def table(name: str, rounds: Mapping[str, list[dict[str, Any]]]) -> None:
    print(f"\n{name:>22}" + "".join(f"{side:>24}" for side in rounds))
    steps = max((found[0]["steps"] for found in rounds.values()), key=len)
    for step in steps:
        row = f"{step:>22}"
        for found in rounds.values():
            times = [one["steps"][step] * 1e3 for one in found if step in one["steps"]]
            row += f"{min(times):13.1f} /{statistics.median(times):7.1f}  " if times else " " * 24
        print(row)
    print(
        f"{'modules of jitney':>22}"
        + "".join(f"{found[0]['modules']:>24}" for found in rounds.values())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", choices=OPTIONS, nargs="*", default=list(OPTIONS))
    given = parser.parse_args()
    least: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as bytecode:
        for name in given.steps:
            script = JITNEY.replace("OPTIONS", OPTIONS[name])
            sides = {"jax.jit": (PLAIN, HERE), "jitney": (script, HERE)}
            if given.beside is not None:
                sides["beside"] = script, given.beside
            for side in sides.values():
                run(*side, bytecode)  # writes the bytecode
            rounds: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
            for _ in range(given.rounds):
                for side, how in sides.items():
                    rounds[side].append(run(*how, bytecode))
            for found in rounds.values():
                np.testing.assert_allclose(
                    found[0]["result"], rounds["jax.jit"][0]["result"], rtol=1e-6
                )
            table(f"{name}, least / median", rounds)
            of = {"jit": ("jax.jit", "first call"), "jitney": ("jitney", "in all")}
            least[name] = {
                key: min(one["steps"][step] for one in rounds[side]) * 1e3
                for key, (side, step) in of.items()
            }
    record(**least)


if __name__ == "__main__":
    main()
