"""Equal layers as one loop (`roll="auto"`) beside the same layers one behind the other.

`python -m tests.perf.rolled [layers ...]` makes an MLP, a transformer and a residual CNN of 12, 24
and 48 layers, of each the loss, its gradient and a step of Adam: of a list of layers and of layers
of `jitney.stack`, both as they are and with `roll="auto"`. It prints the seconds to trace and
lower, and to compile without any cache, of processors, so that other work on the machine counts
less; and the milliseconds of a call, the least of some rounds, in which all take turns. `*`:
something was rolled.

"one layer" is the same of a model of a single layer, which is compiled whatever is rolled: as many
times as it is shorter no loop can be. `JITNEY_BENCH_MODELS` names some of the models, apart by
semicolons, `JITNEY_BENCH_KINDS` some of value, gradient and step, and `JITNEY_BENCH_WAYS` some of
the five programs, of which the first is what the others are compared with; `JITNEY_BENCH_ROUNDS`
says how many rounds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import jitney
from examples._figures import record
from jitney import optimize

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "7"))
KEY = jax.random.key(0)


class Attention(eqx.Module):
    """A block of a transformer, before normalisation."""

    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    wide: eqx.nn.Linear
    narrow: eqx.nn.Linear

    def __init__(self, width: int, key: Any):
        a, b, c = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(4, width, key=a)
        self.norms = [eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)]
        self.wide, self.narrow = (
            eqx.nn.Linear(width, 4 * width, key=b),
            eqx.nn.Linear(4 * width, width, key=c),
        )

    def __call__(self, x: Any) -> Any:
        h = jax.vmap(self.norms[0])(x)
        x = x + self.attention(h, h, h)
        h = jax.vmap(self.norms[1])(x)
        return x + jax.vmap(lambda row: self.narrow(jax.nn.gelu(self.wide(row))))(h)


class Residual(eqx.Module):
    """A block of a residual CNN."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm

    def __init__(self, channels: int, key: Any):
        a, b = jax.random.split(key)
        self.first = eqx.nn.Conv2d(channels, channels, 3, padding=1, key=a)
        self.second = eqx.nn.Conv2d(channels, channels, 3, padding=1, key=b)
        self.norm = eqx.nn.GroupNorm(4, channels)

    def __call__(self, x: Any) -> Any:
        return x + self.second(jax.nn.relu(self.first(self.norm(x))))


class Dense(eqx.Module):
    """A layer of an MLP."""

    linear: eqx.nn.Linear

    def __call__(self, x: Any) -> Any:
        return jax.nn.relu(self.linear(x))


MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "MLP": (lambda key: Dense(eqx.nn.Linear(256, 256, key=key)), (1024, 256)),
    "transformer": (lambda key: Attention(128, key), (16, 64, 128)),
    "residual CNN": (lambda key: Residual(16, key), (32, 16, 16, 16)),
}


def loss(layers: Any, x: Float[Array, "batch ..."]) -> Float[Array, ""]:
    """What is timed; its gradient is with respect to the layers."""

    def one(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return jnp.mean(jax.vmap(one)(x) ** 2)


def program_of(kind: str, options: dict[str, Any]) -> Any:
    """A new one, of layers and a batch. A step takes the gradient itself; its state is not carried
    on, since each call is the same.
    """
    adam = optax.adam(1e-3)

    def step(layers: Any, x: Float[Array, "batch ..."]) -> Any:
        state = adam.init(eqx.filter(layers, eqx.is_array))
        updates, state = adam.update(eqx.filter_grad(loss)(layers, x), state)
        return eqx.apply_updates(layers, updates), state

    def value(layers: Any, x: Float[Array, "batch ..."]) -> Float[Array, ""]:
        return loss(layers, x)

    made: Any = optimize(cache=False, **options)(step if kind == "step" else value)
    return made.grad.program(wrt="layers") if kind == "gradient" else made


def compiled(program: Any, layers: Any, x: Any) -> tuple[float, float, Any, bool]:
    """Seconds to trace and lower, and to compile, what runs, and whether something was rolled."""
    began = time.process_time()
    lowered = program.lower(layers, x)
    traced = time.process_time()
    made = lowered.compile()
    ended = time.process_time()
    rolled = any(
        d["name"] == "layers" and d["taken"] for d in program.plan(layers, x).to_dict()["decisions"]
    )
    return (
        traced - began,
        ended - traced,
        lambda: jax.block_until_ready(eqx.filter(made(layers, x), eqx.is_array)),
        rolled,
    )


def rounds(ways: dict[str, Any]) -> dict[str, float]:
    """Seconds of a call each, in turn."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for how, (_, _, run, _) in ways.items():
            began = time.perf_counter()
            run()
            best[how] = min(best[how], time.perf_counter() - began)
    return best


def chosen(variable: str, default: Any) -> list[str]:
    """What an environment variable names."""
    return [name.strip() for name in os.environ.get(variable, ";".join(default)).split(";")]


def main() -> None:
    jax.config.update("jax_enable_compilation_cache", False)
    print(f"jax {jax.__version__}, {jax.default_backend()}")
    print(
        f"{'model':>13} {'layers':>6} {'of':>8} {'how':>15} {'trace s':>8} {'compile s':>9}"
        f" {'shorter':>8} {'run ms':>8} {'beside':>7}"
    )
    found: dict[str, dict[str, float]] = {}
    for name in chosen("JITNEY_BENCH_MODELS", MODELS):
        make, shape = MODELS[name]
        for count in [int(n) for n in sys.argv[1:]] or [12, 24, 48]:
            layers = [make(key) for key in jax.random.split(KEY, count)]
            x, stacked = jax.random.normal(KEY, shape), jitney.stack(layers)
            for kind in chosen("JITNEY_BENCH_KINDS", ("value", "gradient", "step")):
                roll = {"roll": "auto"}
                given: dict[str, Any] = {
                    "list": ({}, layers),
                    "list, rolled": (roll, layers),
                    "stacked": ({}, stacked),
                    "stacked, rolled": (roll, stacked),
                    "one layer": ({}, layers[:1]),
                }
                asked = chosen("JITNEY_BENCH_WAYS", given)
                ways = {
                    how: compiled(program_of(kind, given[how][0]), given[how][1], x)
                    for how in asked
                }
                best = rounds(ways)
                found[f"{name}, {count}, {kind}"] = {
                    how: took for how, (_, took, *_) in ways.items()
                }
                for how, (traced, took, _, rolled) in ways.items():
                    shorter, beside = ways[asked[0]][1] / took, best[how] / best[asked[0]]
                    print(
                        f"{name:>13} {count:>6} {kind:>8} {how + '*' * rolled:>16} {traced:>7.2f}"
                        f" {took:>9.3f} {shorter:>7.1f}x {1e3 * best[how]:>8.2f} {beside:>7.2f}",
                        flush=True,
                    )
    record(compile=found)


if __name__ == "__main__":
    main()
