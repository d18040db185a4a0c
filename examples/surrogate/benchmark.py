"""Seconds of one training step, eight ways in turn: `python -m examples.surrogate.benchmark`.
Results are asserted equal first.

The step is mean loss, gradient, clip by norm and AdamW. The ways:

    eager loop        `before.py`: a Python loop over examples, parent sets as frozensets
    eager vmap        `jax.vmap` of the loss, nothing compiled
    filter_jit loop   one compiled step, inside which a Python loop goes over the examples
    filter_jit vmap   `eqx.filter_jit` of the step with `jax.vmap` inside
    jit vmap          by hand at exact size: `jax.jit` of the same, state donated
    masks by hand     `by_hand.py`: one `jax.jit`, with masks through the network and sizes
                      rounded up, as `pad=` has them
    jitney            `optimize(vmap="example")` of the loss, the step with `donate=`
    jitney padded     the same with `pad=`, as in training

Loops over more than `--most` examples, or over wide ones, are left out, with a dash: they compile
for minutes. The first step is measured apart, with nothing in any cache: it is what tracing and
compiling take, and the step. Warm steps go in turns, and the fastest counts. The last table has
first steps in processes of their own: with an empty persistent cache, and with what that process
left in it; jitney has one by default, the others have JAX's, which takes three settings.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# a first step is one that compiles, but in the processes of `fresh`
os.environ.setdefault("JITNEY_CACHE", "off")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .._figures import record
from . import before, by_hand
from ._data import Batch
from ._expert import batch
from ._losses import LOSSES
from ._step import PAD, Recipe, start, step_of, updated
from ._train import Run
from .model import Surrogate

WAYS = (
    "eager loop",
    "eager vmap",
    "filter_jit loop",
    "filter_jit vmap",
    "jit vmap",
    "masks by hand",
    "jitney",
    "jitney padded",
)
JAXS_CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
QUICK = ((16, 8, 5), (16, 32, 5), (128, 8, 5))
FULL = tuple(
    (hidden, examples, d)
    for hidden in (16, 128, 512)
    for examples in (2, 8, 32, 128)
    for d in (3, 6, 12, 20)
)
BESIDE = (
    ("eager loop", "jitney"),
    ("jit vmap", "jitney"),
    ("masks by hand", "jitney padded"),
)
SAMPLES = 32
RECIPE = Recipe()
Step = Callable[[Surrogate, Any], tuple[Surrogate, Any, Any]]


def steps(data: Batch) -> dict[str, Step]:
    """Each way as a step on one batch."""
    arrays = tuple(map(jnp.asarray, data.arrays))
    exact, padded = step_of(RECIPE, pad=None), step_of(RECIPE, pad=PAD)
    mapped, looped = eqx.filter_jit(_mapped, donate="none"), eqx.filter_jit(_looped)
    plain, masked = jax.jit(_mapped, donate_argnums=(0, 1)), by_hand.step_of(RECIPE)
    return {
        "eager loop": lambda model, opt: before.step(RECIPE, model, opt, data),
        "eager vmap": lambda model, opt: _mapped(model, opt, *arrays),
        "filter_jit loop": lambda model, opt: looped(model, opt, *arrays),
        "filter_jit vmap": lambda model, opt: mapped(model, opt, *arrays),
        "jit vmap": lambda model, opt: plain(model, opt, *arrays),
        "masks by hand": lambda model, opt: masked(model, opt, *data.arrays),
        "jitney": lambda model, opt: exact(model, opt, *arrays),
        "jitney padded": lambda model, opt: padded(model, opt, *data.arrays),
    }


def _stepped(
    model: Surrogate, opt: Any, mean: Callable[[Surrogate], Any]
) -> tuple[Surrogate, Any, Any]:
    value, gradient = eqx.filter_value_and_grad(mean)(model)
    model, opt = updated(RECIPE, model, opt, gradient)
    return model, opt, {"loss": value, "norm": optax.tree.norm(gradient)}


def _mapped(model: Surrogate, opt: Any, *arrays: Any) -> tuple[Surrogate, Any, Any]:
    return _stepped(
        model,
        opt,
        lambda model: jnp.mean(jax.vmap(LOSSES[RECIPE.loss], (None, 0, 0, 0, 0))(model, *arrays)),
    )


def _looped(model: Surrogate, opt: Any, *arrays: Any) -> tuple[Surrogate, Any, Any]:
    def mean(model: Surrogate) -> Any:
        found = [
            LOSSES[RECIPE.loss](model, *(part[i] for part in arrays)) for i in range(len(arrays[0]))
        ]
        return sum(found) / len(found)

    return _stepped(model, opt, mean)


def once(step: Step, state: tuple[Surrogate, Any]) -> tuple[float, float, Any]:
    """Seconds and CPU seconds of one step, and what it gave."""
    state = jax.block_until_ready(jax.tree.map(jnp.array, state))  # a copy, which may be donated
    began, busy = time.perf_counter(), time.process_time()
    found = jax.block_until_ready(step(*state))
    return time.perf_counter() - began, time.process_time() - busy, found


def measured(
    hidden: int, examples: int, variables: int, ways: tuple[str, ...], rounds: int
) -> dict[str, tuple[float, float, float]]:
    """Seconds of the first and of the fastest warm step of each way, and CPU seconds of the warm
    step that took fewest of these.

    Raises:
        AssertionError: Two ways differ in loss, gradient norm or weights.
    """
    data = batch(np.random.default_rng(examples), examples, variables, SAMPLES)
    model = Surrogate(hidden, key=jax.random.key(0))
    state = (model, start(RECIPE, model))
    made, first, warm, busy = steps(data), {}, {}, {}
    found = {}
    for way in ways:
        first[way], _, found[way] = once(made[way], state)
    equal(found)
    for turn in range(rounds):
        for way in ways:
            if turn and warm[way] > 5:
                continue  # one turn of a long step is enough
            seconds, of_cpu, _ = once(made[way], state)
            warm[way] = min(seconds, warm.get(way, np.inf))
            busy[way] = min(of_cpu, busy.get(way, np.inf))
    return {way: (first[way], warm[way], busy[way]) for way in ways}


def equal(found: dict[str, Any]) -> None:
    """End unless all ways gave the same loss, gradient norm, moments of the gradient and
    weights.
    """
    (_, wanted), *rest = found.items()
    for way, each in rest:
        for name in ("loss", "norm"):
            np.testing.assert_allclose(
                float(each[2][name]), float(wanted[2][name]), rtol=1e-4, err_msg=f"{name}, {way}"
            )
        for ours, theirs in zip(*map(jax.tree.leaves, (each[1], wanted[1])), strict=True):
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-2, atol=1e-5, err_msg=f"optimiser, {way}"
            )
        for ours, theirs in zip(*map(jax.tree.leaves, (each[0], wanted[0])), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4, err_msg=f"weights, {way}")


def affordable(hidden: int, examples: int, variables: int, most: int) -> tuple[str, ...]:
    """The ways whose loop over examples is not too long to compile or to run."""
    long = examples > most or (hidden > 128 and examples > 8) or (variables > 12 and examples > 8)
    return tuple(way for way in WAYS if not (long and way.endswith("loop")))


def mixed(examples: int, hidden: int, exact: bool) -> tuple[str, dict[str, int]]:
    """Compile counts and seconds of one step each with 3 to 20 variables, padded and, where asked
    for, at exact size.
    """
    made = Run(examples=examples, hidden=hidden)
    data = [batch(np.random.default_rng(d), examples, d, made.samples) for d in range(3, 21)]
    lines, compiles = [], {}
    for name, pad in (("padded", PAD), ("exact", None))[: 1 + exact]:
        model = made.model()
        state, step = (model, start(RECIPE, model)), step_of(RECIPE, pad=pad)
        began = time.perf_counter()
        for each in data:
            *state, metrics = step(*state, *each.arrays)
        jax.block_until_ready(metrics)
        seconds, again = time.perf_counter() - began, time.perf_counter()
        for each in data:
            *state, metrics = step(*state, *each.arrays)
        jax.block_until_ready(metrics)
        compiles[name] = step.stats.compiles
        lines.append(
            f"{name}: {step.stats.compiles} compiles, {seconds:.1f} s, and"
            f" {time.perf_counter() - again:.2f} s the second time"
        )
    return "One step each with 3, 4, ..., 20 variables, " + "; ".join(lines), compiles


def fresh(cell: tuple[int, ...]) -> list[tuple[str, float, float]]:
    """Seconds of the first step of each compiled way in a process of its own, without and with what
    an earlier process compiled.
    """
    out = []
    for way in ("jit vmap", "masks by hand", "jitney", "jitney padded"):
        with tempfile.TemporaryDirectory() as folder:
            # JAX has one cache for a process: jitney's would serve both
            cache = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": folder}
            if not way.startswith("jitney"):
                cache = {**JAXS_CACHE, "JAX_COMPILATION_CACHE_DIR": folder}
            env = {**os.environ, **cache}
            command = [
                sys.executable,
                "-m",
                f"{__package__}.benchmark",
                "--one",
                way,
                *map(str, cell),
            ]
            runs = [
                subprocess.run(command, capture_output=True, text=True, check=True, env=env)
                for _ in range(2)
            ]
            out.append((way, *(float(run.stdout.splitlines()[-1]) for run in runs)))
    return out


def one(way: str, hidden: int, examples: int, variables: int) -> float:
    """Seconds of the first step in this process."""
    data = batch(np.random.default_rng(examples), examples, variables, SAMPLES)
    model = Surrogate(hidden, key=jax.random.key(0))
    return once(steps(data)[way], (model, start(RECIPE, model)))[0]


def fresh_table(cell: tuple[int, int, int]) -> Table:
    """First steps of the ways that compile, in processes of their own."""
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title="first step in a process of its own, s",
        title_justify="left",
    )
    for name in ("hidden", "batch", "vars", "way", "empty cache", "filled cache"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, cold, again in fresh(cell):
        table.add_row(*map(str, cell), way, f"{cold:.2f}", f"{again:.2f}")
    return table


def main() -> None:
    """Run each cell, print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.benchmark", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="hidden 16, 128, 512; batch 2, 8, 32, 128; 3, 6, 12, 20 variables",
    )
    parser.add_argument("--cells", nargs="+", metavar="HIDDEN,BATCH,VARS", help="these alone")
    parser.add_argument(
        "--rounds", type=int, default=5, help="turns of warm steps (default: %(default)s)"
    )
    parser.add_argument(
        "--most",
        type=int,
        default=8,
        help="the largest batch that is looped over (default: %(default)s)",
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        default=WAYS,
        choices=WAYS,
        metavar="WAY",
        help="these alone, by name; jitney among them",
    )
    parser.add_argument(
        "--no-mixed", action="store_true", help="leave out the run over all numbers of variables"
    )
    parser.add_argument(
        "--no-fresh", action="store_true", help="leave out first steps in processes of their own"
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(one(chosen.one[0], *map(int, chosen.one[1:])))
        return
    cells = [tuple(map(int, cell.split(","))) for cell in chosen.cells or ()] or (
        FULL if chosen.full else QUICK
    )
    console = Console(width=140)
    tables = [
        Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for title in ("warm step, ms", "first step, s", "warm step, ms of CPU")
    ]
    for table in tables:
        for name in (
            "hidden",
            "batch",
            "vars",
            *WAYS,
            "eager loop / jitney",
            "jit vmap / jitney",
            "masks by hand / padded",
        ):
            table.add_column(name, justify="right")
    warm, busy, compiles = {}, {}, {}
    for hidden, examples, variables in cells:
        ways = tuple(
            way
            for way in affordable(hidden, examples, variables, chosen.most)
            if way in chosen.ways
        )
        found = measured(hidden, examples, variables, ways, chosen.rounds)
        cell = f"{hidden},{examples},{variables}"
        warm[cell] = {way: each[1] * 1e3 for way, each in found.items()}
        busy[cell] = {way: each[2] * 1e3 for way, each in found.items()}
        shown = zip(tables, (1, 0, 2), (1e3, 1, 1e3), (1, 2, 1), strict=True)
        for table, at, scale, digits in shown:
            row = [f"{found[way][at] * scale:.{digits}f}" if way in found else "-" for way in WAYS]
            ratios = [
                f"{found[way][at] / found[ours][at]:.2f}" if {way, ours} <= {*found} else "-"
                for way, ours in BESIDE
            ]
            table.add_row(str(hidden), str(examples), str(variables), *row, *ratios)
        print(
            f"{hidden},{examples},{variables}: "
            + ", ".join(f"{way} {a:.2f} s {b * 1e3:.1f} ms" for way, (a, b, _) in found.items()),
            file=sys.stderr,
            flush=True,
        )
        jax.clear_caches()
    for table in tables:
        console.print(table)
    if not chosen.no_fresh:
        console.print(fresh_table(cells[0]))
    if not chosen.no_mixed:
        said, compiles = mixed(8, 16, chosen.full)
        console.print(said)
    record(ms=warm, cpu=busy, compiles=compiles)


if __name__ == "__main__":
    main()
