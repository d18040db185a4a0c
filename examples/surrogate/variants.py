"""One changed line for each way to run a step of training: `python -m examples.surrogate.variants`.

bfloat16, rematerialisation, donation, the batch in parts, a step that cannot be traced, eight
devices, the same with weights and moments cut too. Loss, norm of the gradient and weights after a
step are asserted to be those of the plain step before one is timed; in bfloat16 to a hundredth.
Each has the same by hand beside it (`variants_by_hand.py`), asserted and timed in turn, with its
lines of code. The eight devices are virtual ones of one CPU, which show that it runs and what is
sent, not that it is faster.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import jitney

from .._lines import lines_of
from .._timing import seconds_of
from . import by_hand
from . import variants_by_hand as hand
from ._expert import batch
from ._losses import weighted
from ._step import Recipe, loss_of, start, step_of, updated
from .model import Surrogate

RECIPE = Recipe()
SAMPLES = 32
PARTS = 4  # of the batch
DATA = ("x", "index", "mask", "expert")
Step = Callable[..., Any]


@dataclass(frozen=True)
class Variant:
    """A step, and the line that makes it another one."""

    line: str
    step: Step
    rtol: float = 1e-4
    mesh: Any = None
    traced: bool = True  # else it runs un-jitted, and there is no program to look at
    by_hand: Step | None = None
    lines: int = 0  # of code by hand


def total(
    model: Surrogate,
    x: Float[Array, "example samples vars 3"],
    index: Int[Array, "example sets parents"],
    mask: Bool[Array, "example sets parents"],
    expert: Float[Array, "example sets"],
) -> Float[Array, ""]:
    """The loss of all examples together."""
    return jnp.sum(jax.vmap(weighted, (None, 0, 0, 0, 0))(model, x, index, mask, expert))


def in_parts(microbatch: int) -> Step:
    """The step with the batch in parts, of which the gradients are added up."""
    summed = jitney.accumulate(total, axis="example", microbatch=microbatch, wrt="model")
    update = jitney.optimize(lambda model, opt, slope: updated(RECIPE, model, opt, slope))

    def step(model: Surrogate, opt: Any, *data: Any) -> tuple[Surrogate, Any, dict[str, Any]]:
        value, slope = summed(model, *data)
        value, slope = jax.tree.map(lambda part: part / len(data[0]), (value, slope))
        model, opt = update(model, opt, slope)
        return model, opt, {"loss": value, "norm": optax.tree.norm(slope)}

    return step


def untraceable() -> Step:
    """The step with a clip that reads the norm in Python, which no trace can: it runs un-jitted,
    with a warning. The loss inside is compiled as before.
    """
    loss = loss_of(RECIPE)

    @jitney.optimize(on_trace_error="eager")
    def step(model: Surrogate, opt: PyTree, *data: Array) -> tuple[Surrogate, PyTree, dict]:
        value, slope = eqx.filter_value_and_grad(lambda model: jnp.mean(loss(model, *data)))(model)
        norm = optax.tree.norm(slope)
        if norm > RECIPE.clip:
            slope = jax.tree.map(lambda part: part * RECIPE.clip / norm, slope)
        return *updated(RECIPE, model, opt, slope), {"loss": value, "norm": norm}

    return step


def in_hand(step: Step, *names: str) -> dict[str, Any]:
    """A step by hand, and lines of code of what it needs."""
    return {"by_hand": step, "lines": lines_of(hand, *names)}


def variants(examples: int) -> dict[str, Variant]:
    """Each of the plain step but for one line."""
    part = examples // PARTS
    found = {
        "plain": Variant(
            'optimize(vmap="example")',
            step_of(RECIPE, pad=None, donate=False),
            **in_hand(hand.plain, "mean", "stepped", "plain"),
        ),
        "bfloat16": Variant(
            'optimize(vmap="example", precision="bf16")',
            step_of(RECIPE, "bf16", pad=None, donate=False),
            2e-2,
            **in_hand(hand.low, "mean", "in_bf16", "stepped", "low"),
        ),
        "remat": Variant(
            'optimize(vmap="example", remat=True)',
            step_of(RECIPE, remat=True, pad=None, donate=False),
            **in_hand(hand.checkpointed, "rematerialised", "stepped", "checkpointed"),
        ),
        "donation": Variant(
            'optimize(donate=("model", "opt"))',
            step_of(RECIPE, pad=None),
            **in_hand(hand.donated, "mean", "stepped", "donated"),
        ),
        "in parts": Variant(
            f'accumulate(total, axis="example", microbatch={part})',
            in_parts(part),
            **in_hand(hand.in_parts, "mean", "in_parts"),
        ),
        "not traceable": Variant(
            'optimize(on_trace_error="eager")',
            untraceable(),
            traced=False,
            **in_hand(hand.with_a_branch, "mean", "with_a_branch", "slope_of", "update"),
        ),
    }
    if len(jax.devices()) >= 8:
        mesh = jitney.mesh(data=8, devices=jax.devices()[:8])
        plain_mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))
        lines = lines_of(by_hand, "shardings", "program", "step_of")
        for name, fsdp in (("8 devices", False), ("8 devices, weights cut", True)):
            line = 'shard=("fsdp", {"example": "*"})' if fsdp else 'shard={"example": "*"}'
            step = step_of(RECIPE, pad=None, fsdp=fsdp, donate=False)
            theirs = by_hand.step_of(RECIPE, pad=False, mesh=plain_mesh, fsdp=fsdp)
            found[name] = Variant(f"optimize({line})", step, mesh=mesh, by_hand=theirs, lines=lines)
    return found


def call_of(variant: Variant, state: Any, data: Any) -> Callable[[], Any]:
    """One step, from a copy of the state, which may be donated."""

    def call() -> Any:
        own = jax.tree.map(jnp.array, state)
        with variant.mesh or nullcontext():
            return variant.step(*own, *data)

    return call


def off(found: Any, wanted: Any, rtol: float, name: str) -> float:
    """How far loss and norm of the gradient are from the plain step's, as a part of these.

    Raises:
        AssertionError: They, or the weights, are further than they may be.
    """
    parts = [[float(each[2][key]) for key in ("loss", "norm")] for each in (found, wanted)]
    np.testing.assert_allclose(*parts, rtol=rtol, err_msg=name)
    # the first step of Adam has the size of the rate, whatever the gradient: a sign may turn
    most = 2.1 * RECIPE.rate / 100 if rtol > 1e-3 else 1e-5
    for ours, theirs in zip(*(jax.tree.leaves(each[0]) for each in (found, wanted)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=most, err_msg=f"weights, {name}")
    return float(np.max(np.abs(np.divide(parts[0], parts[1]) - 1)))


def temporaries(variant: Variant, state: Any, data: Any) -> float | None:
    """MiB that XLA takes beside arguments and results, on one device."""
    lower = getattr(variant.step, "lower", None)
    if lower is None or not variant.traced:
        return None
    with variant.mesh or nullcontext():
        memory = lower(*state, *data).compile().memory_analysis()
    return memory.temp_size_in_bytes / 2**20


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, time in turn, print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.variants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--hidden", type=int, default=32, help=f"width {shown}")
    add("--batch", type=int, default=32, help=f"examples, a multiple of 8 {shown}")
    add("--vars", type=int, default=5, help=f"variables {shown}")
    add("--rounds", type=int, default=7, help=f"turns {shown}")
    chosen = parser.parse_args(arguments)
    data = batch(np.random.default_rng(0), chosen.batch, chosen.vars, SAMPLES).arrays
    model = Surrogate(chosen.hidden, key=jax.random.key(0))
    state, ways = (model, start(RECIPE, model)), variants(chosen.batch)
    calls, rtol = {}, {}
    for name, each in ways.items():
        calls[name], rtol[name] = call_of(each, state, data), each.rtol
        if each.by_hand:
            key = (name, "by hand")
            plain = Variant(each.line, each.by_hand)
            calls[key], rtol[key] = call_of(plain, state, data), each.rtol
    results = {name: jax.block_until_ready(call()) for name, call in calls.items()}
    away = {name: off(results[name], results["plain"], rtol[name], f"{name}") for name in calls}
    best = dict.fromkeys(calls, np.inf)
    for _ in range(chosen.rounds):
        for name, call in calls.items():
            best[name] = min(best[name], seconds_of(call)[0])
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    words = ("", "the line")
    for name in (*words, "off by", "temporaries, MiB", "ms", "by hand, ms", "lines by hand"):
        out.add_column(name, justify="left" if name in words else "right")
    for name, each in ways.items():
        memory = temporaries(each, state, data)
        size = "" if memory is None else f"{memory:.1f}"
        theirs = f"{best[name, 'by hand'] * 1e3:.1f}" if each.by_hand else ""
        took = (f"{best[name] * 1e3:.1f}", theirs, f"{each.lines}" if each.by_hand else "")
        out.add_row(name, each.line, f"{away[name]:.0e}", size, *took)
    Console(width=140).print(out)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
