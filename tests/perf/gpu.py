"""A batch of fits and a Gaussian kernel in chunks, on the device that JAX finds:

    python -m tests.perf.gpu [--small]

The fits are 20 damped Gauss-Newton steps on 200 points each, of 65,536 curves: `auto=True` beside
`jax.jit(jax.vmap(...))`. The kernel is of 60,000 by 60,000 points: cut along its rows, along its
columns, and by `memory`, beside `jax.jit`. Results are compared first; milliseconds are medians of
rounds in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize

STEPS, POINTS, LEARNS = 20, 200, 8.0
ROUNDS = 8


def fit(t: Float[Array, "p"], y: Float[Array, "p"]) -> Float[Array, "3"]:
    """Amplitude, rate and offset of a decay."""

    def residual(c: jax.Array) -> jax.Array:
        return c[0] * jnp.exp(-c[1] * t) + c[2] - y

    def step(state: Any, _: None) -> Any:
        c, damping = state
        r, slope = residual(c), jax.jacfwd(residual)(c)
        normal = slope.T @ slope
        new = c - jnp.linalg.solve(normal + damping * jnp.diag(jnp.diag(normal)), slope.T @ r)
        better = jnp.sum(residual(new) ** 2) < jnp.sum(r**2)
        c = jnp.where(better, new, c)
        return (c, jnp.where(better, damping * 0.3, damping * 4)), None

    start = jnp.array([1.0, 1.0, 0.0], t.dtype), jnp.array(1e-2, t.dtype)
    return jax.lax.scan(step, start, None, length=STEPS)[0][0]


def kernel(
    x: Float[Array, "n d"], y: Float[Array, "m d"], w: Float[Array, "m"]
) -> Float[Array, "n"]:
    """Sum of Gaussians around `y`, at `x`."""
    return jnp.exp(-jnp.sum(jnp.square(x[:, None] - y[None]), -1)) @ w


def in_turn(ways: dict[str, Callable[[], Any]]) -> str:
    """Medians of rounds, in another order each."""
    for way in ways.values():
        jax.block_until_ready(way())
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(ROUNDS):
        for name in list(ways)[:: 1 if k % 2 else -1]:
            began = time.perf_counter()
            jax.block_until_ready(ways[name]())
            taken[name].append(time.perf_counter() - began)
    return ", ".join(
        f"{name} {statistics.median(each) * 1e3:.4g} ms" for name, each in taken.items()
    )


def fits(lanes: int) -> None:
    rng = np.random.default_rng(1)
    t = np.broadcast_to(np.linspace(0, 4, POINTS, dtype=np.float32), (lanes, POINTS)).copy()
    y = 2 * np.exp(-1.3 * t) + 0.5 + 0.01 * rng.standard_normal(t.shape)
    at = jnp.asarray(t), jnp.asarray(y.astype(np.float32))
    plain, auto = jax.jit(jax.vmap(fit)), optimize(fit, vmap="lane", auto=True)
    np.testing.assert_allclose(auto(*at), plain(*at), rtol=1e-5)
    began = time.perf_counter()
    while time.perf_counter() - began < LEARNS:
        jax.block_until_ready(auto(*at))
    print(f"{lanes:,} fits:", in_turn({"plain": lambda: plain(*at), "auto": lambda: auto(*at)}))
    print(*(line for line in str(auto.plan(*at)).splitlines() if line.startswith("auto")))


def kernels(n: int, chunk: int, memory: str) -> None:
    rng = np.random.default_rng(0)
    at = [jnp.asarray(rng.standard_normal(s, np.float32)) for s in ((n, 8), (n, 8), (n,))]
    ways: dict[str, Any] = {
        "jit": jax.jit(kernel),
        "rows": optimize(kernel, chunk={"n": chunk}),
        "columns": optimize(kernel, chunk={"m": chunk}),
        "memory": optimize(kernel, memory=memory),
    }
    want = np.asarray(ways["jit"](*at))
    for way in ways.values():
        # products are of TensorFloat-32 on a GPU
        np.testing.assert_allclose(way(*at), want, atol=1e-3 * np.max(np.abs(want)))
    print(f"{n:,} x {n:,}:", in_turn({name: lambda f=f: f(*at) for name, f in ways.items()}))
    stats = jax.devices()[0].memory_stats()
    if stats is not None:
        print(f"peak of the device, jit included: {stats['peak_bytes_in_use'] / 2**30:.1f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="sizes that a CPU does in a second")
    small = parser.parse_args().small
    print(jax.__version__, jax.devices()[0].device_kind)
    fits(64 if small else 65_536)
    kernels(*(500, 128, "1MiB") if small else (60_000, 4096, "2GiB"))


if __name__ == "__main__":
    main()
