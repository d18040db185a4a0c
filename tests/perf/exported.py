"""What a first call costs in a fresh process: from a file of `f.export(...)`, and from the source,
with and without the compiled code kept.

Run from the project's root: `python -m tests.perf.exported`. It is the gradient of a neural ODE
(diffrax, 16 trajectories). Each figure is the least CPU time of three processes, which are started
in turn; imports and what makes the arguments stand apart.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from examples._figures import record

ROUNDS = 3
SOURCE = """
import diffrax, equinox as eqx, jax, jax.numpy as jnp, jitney

@jitney.optimize
def loss(field, start, times, seen):
    def one(y0):
        term = diffrax.ODETerm(lambda t, y, args: field(y))
        saved = diffrax.SaveAt(ts=times)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), times[0], times[-1], 0.1, y0, saveat=saved,
                                   stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6)).ys
    return jnp.mean((jax.vmap(one)(start) - seen) ** 2)

def arguments():
    field = eqx.nn.MLP(2, 2, 32, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    return field, jnp.ones((16, 2)), jnp.linspace(0.0, 1.0, 10), jnp.zeros((16, 10, 2))
"""
MAKE = """
import source
source.loss.value_and_grad.export("loss.jitney", *source.arguments(), wrt="field")
"""
CALL = """
import time
start = time.process_time()
{imports}
import jax
arguments = jax.block_until_ready({arguments})
made = time.process_time()
jax.block_until_ready(jax.tree.leaves({call}))
print(made - start, time.process_time() - made)
"""
FROM_SOURCE = CALL.format(
    imports="import source",
    arguments="source.arguments()",
    call='source.loss.value_and_grad(*arguments, wrt="field")',
)
# The arguments are made as there, without the module that holds the function.
FROM_FILE = CALL.format(
    imports="import equinox as eqx, jax, jax.numpy as jnp, jitney; jitney.load",
    arguments=(
        "(eqx.nn.MLP(2, 2, 32, 2, activation=jax.nn.softplus, key=jax.random.key(0)), "
        "jnp.ones((16, 2)), jnp.linspace(0.0, 1.0, 10), jnp.zeros((16, 10, 2)))"
    ),
    call='jitney.load("loss.jitney")(*arguments)',
)


def run(folder: Path, code: str, cache: str) -> list[float]:
    env = {**os.environ, "JITNEY_CACHE_DIR": str(folder / "cache"), "JITNEY_CACHE": cache}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(figure) for figure in done.stdout.split()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir(mode=0o700)
        (folder / "source.py").write_text(SOURCE)
        run(folder, MAKE, "off")
        for code in (FROM_SOURCE, FROM_FILE):  # so that the compiled code is there
            run(folder, code, "on")
        ways = {
            "source": (FROM_SOURCE, "off"),
            "source, compiled code kept": (FROM_SOURCE, "on"),
            "file": (FROM_FILE, "off"),
            "file, compiled code kept": (FROM_FILE, "on"),
        }
        rounds = [{way: run(folder, *how) for way, how in ways.items()} for _ in range(ROUNDS)]
        print(
            f"file of {(folder / 'loss.jitney').stat().st_size / 1024:.0f} KiB; CPU seconds, the"
            f" least of {ROUNDS}"
        )
        print(f"{'':28}{'before':>9}{'first call':>12}")
        calls: dict[str, float] = {}
        for way in ways:
            before, call = (
                min(column) for column in zip(*(seen[way] for seen in rounds), strict=True)
            )
            print(f"{way:28}{before:9.2f}{call:12.2f}")
            calls[way] = call
        record(cpu=calls)


if __name__ == "__main__":
    main()
