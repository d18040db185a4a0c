"""What a first call costs beyond JAX's own trace, lowering and compile, in seconds of processors.

Run from the project's root: `python -m tests.perf.first_call` (names of cases for some of them).
Each first call is that of a process of its own, without any persistent cache, behind the imports
and the start of the backend; the sides take turns, and the median of five processes counts.
`jax.jit` is given the same function, with its arrays flat. `own` is what jitney takes beyond it,
what it imports on the way included, and `traced` how often the function itself ran in Python.
Seconds are of processors, of all threads of the compiler, since other work on the machine changes
them less than those of the clock.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, Float

from examples._figures import record

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "5"))


@dataclass(frozen=True)
class Case:
    """A function with its arguments.

    Args:
        fn: What `jax.jit` compiles.
        options: Of `jitney.optimize`, which it gets.
        peer: The first call of another package that does the same, if there is one.
        ours: Jitney's call, if it is not simply that of `optimize(fn)`.
        program: What is called of the decorated function.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    program: Callable[[Any], Any] = lambda decorated: decorated
    jitted: Callable[[Any], Any] = lambda fn: fn
    peer: Callable[[], Any] | None = None
    ours: Callable[[], Any] | None = None


def layers() -> Case:
    """Eight layers, one written behind the other."""
    return Case(_layers, _weights(), {})


def gradient() -> Case:
    """Their gradient."""
    import jax

    return Case(_layers, _weights(), {}, lambda decorated: decorated.grad, jax.grad)


def padded() -> Case:
    """Statistics of rows whose number is padded to the next power of two; `jax.jit` has the exact
    size.
    """
    import jax.numpy as jnp
    import numpy as np

    def standardised(x: Float[Array, "n k"]) -> tuple[Float[Array, "n k"], Float[Array, "k k"]]:
        centred = x - jnp.mean(x, axis=0)
        scaled = centred / jnp.sqrt(jnp.mean(centred**2, axis=0))
        return scaled, scaled.T @ scaled / x.shape[0]

    return Case(
        standardised,
        (np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32),),
        {"pad": {"n": "pow2"}},
    )


def checked() -> Case:
    """A few functions with run-time checks of Equinox, by lineax: a dense solve."""
    import jax.numpy as jnp
    import lineax

    def dense(a: Any, b: Any) -> Any:
        return lineax.linear_solve(lineax.MatrixLinearOperator(a), b).value

    return Case(dense, (jnp.eye(8) + 0.1, jnp.ones(8)), {})


def surrogate() -> Case:
    """The first step of the surrogate, beside `eqx.filter_jit`."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    from examples.surrogate import benchmark
    from examples.surrogate._expert import batch
    from examples.surrogate._step import start, step_of
    from examples.surrogate.model import Surrogate

    data = batch(np.random.default_rng(8), 8, 5, benchmark.SAMPLES)
    arrays = tuple(map(jnp.asarray, data.arrays))
    model = Surrogate(16, key=jax.random.key(0))
    args = (model, start(benchmark.RECIPE, model), *arrays)
    mapped = eqx.filter_jit(benchmark._mapped, donate="none")
    exact = step_of(benchmark.RECIPE, pad=None)
    copied: Any = jax.tree.map(jnp.array, args)  # since it donates them
    return Case(
        benchmark._mapped, args, {}, peer=lambda: mapped(*args), ours=lambda: exact(*copied)
    )


def trf() -> Case:
    """A fit by the method of `examples/trf`."""
    import jax.numpy as jnp

    from examples.trf import options
    from examples.trf.benchmark import CASES, measured

    t, y = map(jnp.asarray, measured(CASES["decay"], 1000))
    return Case(options.fit, (options.START, t, y), {})


def curve_fit() -> Case:
    """The whole of `curve_fit`, beside optimistix's Levenberg-Marquardt."""
    from examples.trf import options
    from examples.trf.benchmark import CASES, solvers

    made = solvers(CASES["decay"], 1000, None)
    return Case(options.fit, trf().args, {}, peer=made["optx LM"], ours=made["trf"])


def _layers(weights: list[Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    for weight in weights:
        x = jax.nn.gelu(x @ weight)
    return jnp.mean(x**2)


def _weights() -> tuple[Any, ...]:
    import jax.numpy as jnp

    return [jnp.ones((32, 32)) / 32] * 8, jnp.ones((16, 32))


CASES = {
    "layers": layers,
    "layers, gradient": gradient,
    "statistics, padded": padded,
    "lineax, dense solve": checked,
    "surrogate, a step": surrogate,
    "trf, the program": trf,
    "trf, `curve_fit`": curve_fit,
}
IN_X64 = ("trf",)


def by_jax(case: Case) -> list[float]:
    """Seconds of tracing, lowering and compiling, and of the first run."""
    import equinox as eqx
    import jax

    fn = case.jitted(case.fn)
    arrays, rest = eqx.partition(case.args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def flat(*leaves: Any) -> Any:
        return jax.tree.leaves(
            eqx.filter(fn(*eqx.combine(jax.tree.unflatten(treedef, leaves), rest)), eqx.is_array)
        )

    seconds = [time.process_time()]
    traced = jax.jit(flat).trace(*leaves)
    seconds.append(time.process_time())
    lowered = traced.lower()
    seconds.append(time.process_time())
    compiled = lowered.compile()
    seconds.append(time.process_time())
    jax.block_until_ready(compiled(*leaves))
    seconds.append(time.process_time())
    return [after - before for before, after in itertools.pairwise(seconds)]


def by_jitney(case: Case) -> list[float]:
    """Seconds of the first call, and how often the function ran."""
    import functools

    import jax

    import jitney

    runs = [0]

    @functools.wraps(case.fn)
    def counted(*args: Any, **kwargs: Any) -> Any:
        runs[0] += 1
        return case.fn(*args, **kwargs)

    call = case.ours
    if call is None:
        program = case.program(jitney.optimize(**case.options)(counted))
        call = lambda: program(*case.args)
    return [_seconds(lambda: jax.block_until_ready(jax.tree.leaves(call()))), runs[0]]


def by_peer(case: Case) -> list[float]:
    """Seconds of the first call of the other package."""
    import jax

    peer = case.peer
    return (
        [] if peer is None else [_seconds(lambda: jax.block_until_ready(jax.tree.leaves(peer())))]
    )


def _seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


SIDES = {"jax.jit": by_jax, "jitney": by_jitney, "peer": by_peer}


def alone(name: str, side: str) -> None:
    """In this process, one of them."""
    import jax
    import jax.numpy as jnp

    import jitney  # noqa: F401

    jax.config.update("jax_enable_x64", name.startswith(IN_X64))
    case = CASES[name]()
    jax.block_until_ready(jax.jit(jnp.sin)(jnp.ones(3)))
    print(json.dumps(SIDES[side](case)))


def run(name: str, side: str) -> list[float]:
    """In a process of its own."""
    env = {**os.environ, "JITNEY_CACHE": "off", "OPENBLAS_NUM_THREADS": "1"}
    # what is imported on the way has been compiled before, as where it is installed
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "tests.perf.first_call", name, side]
    return json.loads(
        subprocess.run(
            command, env=env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()[-1]
    )


def medians(runs: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*runs, strict=True)]


def main() -> None:
    """All cases, the sides in turn."""
    print(
        "| seconds of processors | trace | lower | compile | run | `jax.jit` | jitney | own |"
        " traced | peer |\n|" + "---|" * 10
    )
    found: dict[str, dict[str, float]] = {}
    for name in sys.argv[1:] or CASES:
        taken: dict[str, list[list[float]]] = {side: [] for side in SIDES}
        run(name, "jitney")  # which writes the byte code
        for _ in range(ROUNDS):
            for side, runs in taken.items():
                runs.append(run(name, side))
        jit, (ours, traced), peer = map(medians, taken.values())
        parts = " | ".join(f"{part:.3f}" for part in (*jit, sum(jit), ours, ours - sum(jit)))
        print(
            f"| {name} | {parts} | {traced:.0f} | {f'{peer[0]:.3f}' if peer else ''} |", flush=True
        )
        found[name] = {"jit": sum(jit), "jitney": ours} | ({"peer": peer[0]} if peer else {})
    record(cpu=found)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2] in SIDES:
        alone(*sys.argv[1:])
    else:
        main()
