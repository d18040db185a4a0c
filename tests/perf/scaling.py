"""Weak and strong scaling of a training step on 1, 2, 4 and 8 virtual devices, beside the same step
with shardings written by hand.

Run from the project's root: `XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m
tests.perf.scaling`. Virtual devices share the cores of one processor, so more of them are not
faster: what is seen is overhead, of dividing the work and of the collectives. With a batch of one
size for all (strong) the work is the same on any number of devices, with a batch of one size for
each (weak) it grows with them, and "of one device" is the time beside that much work on one: 1.00
is no overhead at all.

Both steps start from one state; losses, states and collectives are compared before anything is
timed. Compiling is timed apart, without a cache. The two take turns, each step is waited for, and
each figure is the least of several rounds.
"""

import os
import time
from collections import Counter
from typing import Any

os.environ["JITNEY_CACHE"] = "off"

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

import jitney
from examples._figures import record
from jitney._jax.xla.hlo import collectives

ROUNDS, STEPS, WIDTH = 10, 5, 128
BATCHES = {"strong": 2048, "weak": 128}  # of all, and of each
OPTIMISER = optax.adam(1e-3)


def update(
    model: Any, opt: Any, x: Float[Array, "batch n"], y: Float[Array, "batch n"]
) -> tuple[Any, Any, Float[Array, ""]]:
    """A step of training."""
    value, gradient = eqx.filter_value_and_grad(
        lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2)
    )(model)
    change, opt = OPTIMISER.update(gradient, opt)
    return eqx.apply_updates(model, change), opt, value


def begin() -> tuple[Any, Any]:
    """Model and state of the optimiser."""
    model = eqx.nn.MLP(WIDTH, WIDTH, WIDTH, 3, key=jax.random.key(0))
    return model, OPTIMISER.init(eqx.filter(model, eqx.is_array))


def by_hand(mesh: Any, fsdp: bool) -> tuple[Any, Any]:
    """The step with a sharding for each array, and the state it starts from."""
    arrays, rest = eqx.partition(begin(), eqx.is_array)

    def cut(leaf: Any) -> NamedSharding:
        spread = fsdp and leaf.ndim > 0 and mesh.size > 1
        # every array's first axis is as long as any and divides
        return NamedSharding(mesh, P("data") if spread else P())

    state, data = jax.tree.map(cut, arrays), NamedSharding(mesh, P("data"))

    def step(arrays: Any, x: Any, y: Any) -> Any:
        *after, value = update(*eqx.combine(arrays, rest), x, y)
        return eqx.filter(tuple(after), eqx.is_array), value

    jitted = jax.jit(
        step, in_shardings=(state, data, data), out_shardings=(state, None), donate_argnums=0
    )
    return jitted, jax.device_put(arrays, state)


def ours(mesh: Any, fsdp: bool) -> Any:
    """The step by jitney."""
    rules: Any = {"batch": "data"}
    return jitney.optimize(
        update, donate=("model", "opt"), shard=("fsdp", rules) if fsdp else rules, mesh=mesh
    )


def compiled(lowered: Any, mesh: Any) -> tuple[float, Counter[Any]]:
    """Seconds to compile, and what the devices send each other."""
    began = time.perf_counter()
    text = lowered.compile().as_text()
    seconds = time.perf_counter() - began
    return seconds, Counter(
        (each.kind, each.along, each.bytes) for each in collectives(text, dict(mesh.shape))
    )


def measured(count: int, batch: int, fsdp: bool) -> tuple[list[float], list[float], Counter[Any]]:
    """Milliseconds a step, seconds to compile, and collectives: by hand, and by jitney."""
    mesh = jitney.mesh(data=count, devices=jax.devices()[:count]).mesh
    x, y = np.random.default_rng(0).normal(size=(2, batch, WIDTH)).astype(np.float32)
    x, y = jax.device_put((x, y), NamedSharding(mesh, P("data")))
    hand, arrays = by_hand(mesh, fsdp)
    step, state = ours(mesh, fsdp), begin()
    compiles, sent = zip(
        *(compiled(each, mesh) for each in (hand.lower(arrays, x, y), step.lower(*state, x, y))),
        strict=True,
    )
    if sent[0] != sent[1]:
        raise SystemExit(f"other collectives: by hand {sent[0]}, jitney {sent[1]}")
    for _ in range(3):
        arrays, value = jax.block_until_ready(hand(arrays, x, y))
        *state, loss = jax.block_until_ready(step(*state, x, y))
        np.testing.assert_allclose(loss, value, rtol=1e-6)
    for a, b in zip(
        jax.tree.leaves(eqx.filter(state, eqx.is_array)), jax.tree.leaves(arrays), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(STEPS):
            arrays, _ = jax.block_until_ready(hand(arrays, x, y))
        between = time.perf_counter()
        for _ in range(STEPS):
            *state, _ = jax.block_until_ready(step(*state, x, y))
        ended = time.perf_counter()
        least = [
            min(a, b / STEPS * 1e3)
            for a, b in zip(least, (between - began, ended - between), strict=True)
        ]
    return least, list(compiles), sent[0]


def main() -> None:
    """Print a line for each way to spread, each kind of scaling, and each number of devices."""
    if len(jax.devices()) < 8:
        raise SystemExit(
            "8 devices are needed: set XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    print(
        f"MLP of four layers of width {WIDTH}, Adam, on virtual devices that share {os.cpu_count()}"
        " cores: overhead, not speed"
    )
    found: dict[str, dict[str, float]] = {}
    for fsdp in (False, True):
        for scaling, size in BATCHES.items():
            first: list[float] = []
            for count in (1, 2, 4, 8):
                work = count if scaling == "weak" else 1
                batch = work * size
                least, compiles, sent = measured(count, batch, fsdp)
                first = first or least
                found[f"{'fsdp' if fsdp else 'data'}, {scaling}, {count}"] = dict(
                    zip(("hand", "jitney"), least, strict=True)
                )
                of_one = [each / (one * work) for each, one in zip(least, first, strict=True)]
                said = (
                    ", ".join(
                        f"{many} {kind}"
                        for kind, many in Counter(kind for kind, *_ in sent.elements()).items()
                    )
                    or "nothing"
                )
                print(
                    f"{'fsdp' if fsdp else 'data'}, {scaling:6}, {count} devices, batch {batch:4}:"
                    f" by hand {least[0]:6.2f} ms, jitney {least[1]:6.2f} ms, ratio"
                    f" {least[1] / least[0]:.2f}; of one device {of_one[0]:.2f} and"
                    f" {of_one[1]:.2f}; compiled in {compiles[0]:.2f} and {compiles[1]:.2f} s;"
                    f" sends {said}",
                    flush=True,
                )
    record(ms=found)


if __name__ == "__main__":
    main()
