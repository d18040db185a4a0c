"""What a warm call of a sharded program costs, against `jax.jit` with shardings written by hand, in
turn in one process.

Run from the project's root: `XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m
tests.perf.shard`. Virtual devices share the processor: this measures dispatch, not speed. By hand
the function gets the module's arrays as the module that they lie in, or as a flat list, which saves
JAX the flattening and its user the module. Results are compared first, and the programs must have
the same collectives; compiling is not timed. Each call is waited for: calls with collectives that
overlap can bring virtual devices to a standstill, with plain JAX too. Each figure is the least of
several rounds.
"""

import time
from collections import Counter
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

import jitney
from examples._figures import record
from jitney._jax.xla.hlo import collectives

ROUNDS, CALLS = 15, 50


def apply(model, x: Float[Array, "batch n"]) -> Float[Array, "batch m"]:
    """What runs."""
    return jax.vmap(model)(x)


def case(depth: int, mesh: Any, spread: bool) -> tuple[int, Any, Any, Any]:
    """The same model by hand and by jitney, on arrays that lie right."""
    model = eqx.nn.MLP(8, 8, 8, depth, key=jax.random.key(0))
    arrays, rest = eqx.partition(model, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def sharding(*spec: Any) -> Any:
        return NamedSharding(mesh, P(*spec))

    spec = [sharding("model") if spread else sharding() for _ in leaves]
    leaves = [jax.device_put(leaf, to) for leaf, to in zip(leaves, spec, strict=True)]
    x = jax.device_put(np.ones((16, 8), np.float32), sharding("data"))

    def flat(x, *leaves):
        y = apply(eqx.combine(jax.tree.unflatten(treedef, leaves), rest), x)
        return jax.lax.with_sharding_constraint(y, sharding("data"))

    def whole(arrays, x):
        y = apply(eqx.combine(arrays, rest), x)
        return jax.lax.with_sharding_constraint(y, sharding("data"))

    by_hand = jax.jit(flat, in_shardings=(sharding("data"), *spec))
    of_module = jax.jit(whole, in_shardings=(jax.tree.unflatten(treedef, spec), sharding("data")))
    program = jitney.optimize(
        apply, shard={"batch": "data"} | ({"out": "model"} if spread else {}), mesh=mesh
    )
    there = jax.tree.unflatten(treedef, leaves)
    placed = eqx.combine(there, rest)
    np.testing.assert_allclose(program(placed, x), by_hand(x, *leaves), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(program(placed, x), of_module(there, x), rtol=1e-5, atol=1e-6)
    texts = (
        by_hand.lower(x, *leaves).compile().as_text(),
        program.lower(placed, x).compile().as_text(),
    )
    kinds = [
        Counter((each.kind, each.along, each.bytes) for each in collectives(text, dict(mesh.shape)))
        for text in texts
    ]
    if kinds[0] != kinds[1]:
        raise SystemExit(f"other collectives: by hand {kinds[0]}, jitney {kinds[1]}")
    return (
        len(leaves),
        lambda: by_hand(x, *leaves),
        lambda: of_module(there, x),
        lambda: program(placed, x),
    )


def race(calls: list[Any]) -> list[float]:
    """Microseconds a call."""
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(CALLS):
                jax.block_until_ready(call())
            least[i] = min(least[i], (time.perf_counter() - start) / CALLS * 1e6)
    return least


def main() -> None:
    """Print a line for each size of model."""
    mesh = jitney.mesh(data=-1, model=2).mesh
    ratios: list[float] = []
    for depth in (2, 8, 32):
        for spread in (False, True):
            count, *ways = case(depth, mesh, spread)
            flat, module, ours = race(ways)
            ratios.append(ours / module)
            what = f"{count:2d} arrays, {'spread' if spread else 'copied'}, on {mesh.size} devices"
            print(
                f"MLP of {what}: by hand {module:6.1f} us, of flat arrays {flat:6.1f}, jitney"
                f" {ours:6.1f}, ratio {ours / module:.2f}"
            )
    record(least=min(ratios), most=max(ratios))


if __name__ == "__main__":
    main()
