"""A spread axis in chunks: `shard=` with `chunk=` beside `jax.lax.map` in chunks under plain
`jax.jit`, on eight virtual devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m tests.perf.spread

What is compared is what the compiler says of one device: temporaries, and what devices send each
other. Times on virtual devices say nothing. Results are asserted equal first.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record
from jitney._jax.xla.hlo import collectives

ROWS, FEATURES, HIDDEN, CHUNK = 131_072, 32, 128, 256
P, NamedSharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding


def gram(x: Float[Array, "n k"], w: Float[Array, "k hidden"]) -> Float[Array, "hidden hidden"]:
    """Products of features that are wider than the data."""
    h = jnp.tanh(x @ w)
    return h.T @ h / x.shape[0]


def by_map(x: Any, w: Any) -> Any:
    """The same in chunks, as one writes it for one device."""
    parts = jax.lax.map(lambda rows: gram(rows, w), x.reshape(-1, CHUNK, FEATURES))
    return parts.mean(0)


def by_slices(x: Any, w: Any) -> Any:
    """The same with a sum that is carried."""

    def step(total: Any, i: Any) -> Any:
        return total + gram(jax.lax.dynamic_slice_in_dim(x, i * CHUNK, CHUNK), w), None

    count = x.shape[0] // CHUNK
    return jax.lax.scan(step, jnp.zeros((w.shape[1], w.shape[1])), jnp.arange(count))[0] / count


def main() -> None:
    mesh = jitney.mesh(data=8)
    x = np.random.default_rng(0).standard_normal((ROWS, FEATURES), np.float32)
    w = np.random.default_rng(1).standard_normal((FEATURES, HIDDEN), np.float32)
    lies = {"in_shardings": (NamedSharding(mesh.mesh, P("data")), NamedSharding(mesh.mesh, P()))}
    ways: dict[str, Any] = {
        "jitney, shard and chunk": jitney.optimize(
            gram, shard={"n": "data"}, chunk={"n": CHUNK}, mesh=mesh
        ),
        "jitney, shard": jitney.optimize(gram, shard={"n": "data"}, mesh=mesh),
        "jax.jit, lax.scan of slices": jax.jit(by_slices, **lies),
        "jax.jit, lax.map of chunks": jax.jit(by_map, **lies),
    }
    h = np.tanh(x.astype(np.float64) @ w)
    want, taken = h.T @ h / ROWS, list[float]()
    size = f"{ROWS:,} x {FEATURES} over 8 devices, {x.nbytes / 8 / 2**20:.0f} MiB on each"
    print(f"jax {jax.__version__}, {size}, {CHUNK} rows at a time")
    for name, run in ways.items():
        np.testing.assert_allclose(jax.block_until_ready(run(x, w)), want, rtol=1e-3, atol=1e-4)
        compiled = run.lower(x, w).compile()
        taken.append(compiled.memory_analysis().temp_size_in_bytes / 2**20)
        sent = collectives(compiled.as_text(), {"data": 8})
        text = ", ".join(
            f"{each.kind} of {each.bytes / 2**20:.3g} MiB{' in each turn' if each.in_loop else ''}"
            for each in sent
        )
        print(
            f"  {name:28} temporaries {taken[-1]:6.2f} MiB ({taken[-1] / taken[0]:5.1f}),"
            f" {text or 'nothing'} sent"
        )
    record(**dict(zip(("chunked", "whole", "scan", "map"), taken, strict=True)))


if __name__ == "__main__":
    main()
