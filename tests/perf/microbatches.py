"""`accumulate` and `chunk` beside microbatches written by hand: time and memory of the gradients of
three networks, in turn in one process.

    python -m tests.perf.microbatches [--rounds 15] [--only GRU]

By hand is what one writes without jitney: a `lax.scan` over the batch in microbatches that adds up
values and gradients. Results are compared first; compiling is not timed and given apart. Each round
calls all of them one after the other; the ratio is the median over rounds of the ratio within a
round. Memory is what the compiler says of temporaries (`memory_analysis`). The whole batch at once
is there for comparison.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import jitney
from examples._figures import record

BATCH, MICRO = 256, 32
KEY = jax.random.key(0)
Call = Callable[[], Any]


class Convolutional(eqx.Module):
    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.first = eqx.nn.Conv2d(1, 16, kernel_size=3, padding=1, key=one)
        self.second = eqx.nn.Conv2d(16, 32, kernel_size=3, padding=1, key=two)
        self.pool = eqx.nn.MaxPool2d(kernel_size=2, stride=2)
        self.head = eqx.nn.Linear(32 * 7 * 7, 10, key=three)

    def __call__(self, image: Float[Array, "1 28 28"]) -> Float[Array, "10"]:
        x = self.pool(jax.nn.relu(self.first(image)))
        return self.head(self.pool(jax.nn.relu(self.second(x))).reshape(-1))


def images(
    net: Convolutional, image: Float[Array, "batch 1 28 28"], label: Int[Array, "batch"]
) -> Float[Array, ""]:
    logits = jax.vmap(net)(image)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], axis=1))


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.cell = eqx.nn.GRUCell(16, 64, key=one)
        self.head = eqx.nn.Linear(64, 1, key=two)

    def __call__(self, x: Float[Array, "time 16"]) -> Float[Array, "1"]:
        state, _ = jax.lax.scan(lambda state, row: (self.cell(row, state), None), jnp.zeros(64), x)
        return self.head(state)


def series(
    net: Recurrent, x: Float[Array, "batch time 16"], y: Float[Array, "batch 1"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    mlp: eqx.nn.MLP

    def __init__(self, key: Any):
        one, two = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, 64, key=one)
        self.norms = eqx.nn.LayerNorm(64), eqx.nn.LayerNorm(64)
        self.mlp = eqx.nn.MLP(64, 64, 128, 1, activation=jax.nn.gelu, key=two)

    def __call__(self, x: Float[Array, "time 64"]) -> Float[Array, "time 64"]:
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        h = jax.vmap(self.norms[0])(x)
        x = x + self.attention(h, h, h, mask=mask)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Transformer(eqx.Module):
    embedding: eqx.nn.Embedding
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self):
        one, two, *keys = jax.random.split(KEY, 4)
        self.embedding = eqx.nn.Embedding(50, 64, key=one)
        self.blocks = [Block(key) for key in keys]
        self.head = eqx.nn.Linear(64, 50, key=two)

    def __call__(self, token: Int[Array, "time"]) -> Float[Array, "time 50"]:
        x = jax.vmap(self.embedding)(token)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def tokens(
    net: Transformer, token: Int[Array, "batch time"], target: Int[Array, "batch time"]
) -> Float[Array, ""]:
    logits = jax.vmap(net)(token)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], axis=-1))


def _cases() -> Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def whole(below: int, *shape: int) -> Any:
        return jnp.asarray(rng.integers(0, below, size=shape), jnp.int32)

    return {
        "CNN": (images, (Convolutional(), normal(BATCH, 1, 28, 28), whole(10, BATCH))),
        "GRU": (series, (Recurrent(), normal(BATCH, 32, 16), normal(BATCH, 1))),
        "transformer": (tokens, (Transformer(), whole(50, BATCH, 32), whole(50, BATCH, 32))),
    }


def by_hand(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Values and gradients of microbatches, added up in a loop."""

    def gradient(net: Any, *data: Any) -> Any:
        params, static = eqx.partition(net, eqx.is_inexact_array)
        one = jax.value_and_grad(lambda params, *rows: loss(eqx.combine(params, static), *rows))

        def add(total: Any, rows: Any) -> Any:
            return jax.tree.map(jnp.add, total, one(params, *rows)), None

        cut = [x.reshape(-1, MICRO, *x.shape[1:]) for x in data]
        start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(add, start, cut)
        return jax.tree.map(lambda x: x / (BATCH // MICRO), total)

    return gradient


def _ways(loss: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Each way compiled, with the seconds that compiling took; or why jitney refuses it."""
    accumulated = jitney.accumulate(loss, axis="batch", microbatch=MICRO, wrt="net")
    chunked = jitney.optimize(chunk={"batch": MICRO})(loss).value_and_grad.program(wrt="net")
    arrays, static = eqx.partition(arguments, eqx.is_array)

    def flat(fn: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: jax.jit(lambda arrays: fn(*eqx.combine(arrays, static))).lower(arrays)

    lowered: dict[str, Callable[[], Any]] = {
        "by hand": flat(by_hand(loss)),
        "accumulate": lambda: accumulated.lower(*arguments),
        "chunk": lambda: chunked.lower(*arguments),
        "whole": flat(eqx.filter_value_and_grad(loss)),
    }
    made: dict[str, Any] = {}
    for name, lower in lowered.items():
        start = time.perf_counter()
        try:
            compiled = lower().compile()
        except jitney.JitneyError as error:
            made[name] = str(error).splitlines()[0]
            continue
        given = (arrays,) if name in ("by hand", "whole") else arguments
        made[name] = (
            compiled,
            (lambda compiled=compiled, given=given: compiled(*given)),
            time.perf_counter() - start,
        )
    return made


def _equal(a: Any, b: Any) -> None:
    """Up to rounding, by which max pooling may pick the other one of two elements that are nearly
    equal.
    """
    for x, y in zip(
        jax.tree.leaves(eqx.filter(a, eqx.is_array)),
        jax.tree.leaves(eqx.filter(b, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=0, atol=5e-3 * float(np.max(np.abs(y))))


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    jax.block_until_ready(eqx.filter(call(), eqx.is_array))
    return time.perf_counter() - start


def measured(
    name: str, loss: Callable[..., Any], arguments: tuple[Any, ...], rounds: int
) -> tuple[list[str], dict[str, float]]:
    """The lines of a table: time and memory beside those by hand. And the ratios of time."""
    made = _ways(loss, arguments)
    works = {way: each for way, each in made.items() if not isinstance(each, str)}
    for _, call, _ in works.values():
        _equal(call(), works["by hand"][1]())
    times: dict[str, list[float]] = {way: [] for way in works}
    for i in range(rounds):
        order = list(works) if i % 2 else list(reversed(works))
        for way in order:
            times[way].append(_seconds(works[way][1]))
    hand = works["by hand"][0].memory_analysis().temp_size_in_bytes
    lines, ratios = list[str](), dict[str, float]()
    for way, each in made.items():
        if isinstance(each, str):
            lines.append(f"| {name} | {way} | refused: {each} | | | | |")
            continue
        ratio = ratios[way] = statistics.median(
            a / b for a, b in zip(times[way], times["by hand"], strict=True)
        )
        temp = each[0].memory_analysis().temp_size_in_bytes
        time_of = f"{statistics.median(times[way]) * 1e3:.1f} | {ratio:.2f}"
        lines.append(
            f"| {name} | {way} | {time_of} | {temp / 2**20:.1f} | {temp / hand:.2f} |"
            f" {each[2]:.1f} |"
        )
    return lines, ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="networks whose names hold this")
    options = parser.parse_args()
    print(f"batch of {BATCH} in microbatches of {MICRO}, jax {jax.__version__}")
    print(
        "| network | way | ms | of by hand | temporaries, MiB | of by hand | trace and compile, s |"
    )
    print("|---|---|---|---|---|---|---|")
    found: list[float] = []
    for name, (loss, arguments) in _cases().items():
        if options.only in name:
            lines, ratios = measured(name, loss, arguments, options.rounds)
            found += [ratios[way] for way in ("accumulate", "chunk") if way in ratios]
            print("\n".join(lines), flush=True)
    record(least=min(found), most=max(found))


if __name__ == "__main__":
    main()
