"""Figures of the pages of `docs/problems` that no other benchmark has.

    python -m tests.perf.problems [scans] [jacobians] [products]

`scans`: the gradient of ten thousand steps (`long-scans.md`): memory by `memory_analysis`, and the
least of three calls, in turn; gradients are compared first. `jacobians`: the first call for a
million unknowns beside three passes by hand, and the passes of a system whose neighbours are drawn
at random (`jacobians.md`). `products`: what the compiler counts of an attention beside what the
process grows by, with XLA's library for products and without (`out-of-memory.md`; in processes of
their own, since a flag of XLA decides).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples._figures import record

MIB = 2**20
WITHOUT = "--xla_cpu_experimental_ynn_fusion_type="


def step(a: Any, x: Any, u: Any) -> Any:
    y = jnp.tanh(a * x + u)
    return x + 0.1 * jnp.sin(y) * jnp.exp(-(y**2))


def loss(a: Float[Array, "n"], drive: Float[Array, "time"]) -> Float[Array, ""]:
    x, _ = jax.lax.scan(lambda x, u: (step(a, x, u), None), jnp.zeros_like(a), drive)
    return jnp.sum(x**2)


def each_step(a: Any, drive: Any) -> Any:
    """By hand, with a checkpoint around the step."""
    once = jax.checkpoint(lambda x, u: step(a, x, u))
    x, _ = jax.lax.scan(lambda x, u: (once(x, u), None), jnp.zeros_like(a), drive)
    return jnp.sum(x**2)


def nested(a: Any, drive: Any) -> Any:
    """By hand, a scan of scans with a checkpoint around the inner one."""

    @jax.checkpoint
    def inner(x: Any, us: Any) -> Any:
        return jax.lax.scan(lambda x, u: (step(a, x, u), None), x, us)[0]

    groups = drive.reshape(100, -1)
    x, _ = jax.lax.scan(lambda x, us: (inner(x, us), None), jnp.zeros_like(a), groups)
    return jnp.sum(x**2)


def scans() -> dict[str, Any]:
    a, drive = jnp.linspace(0.5, 1.0, 1000), jnp.sin(jnp.arange(10_000.0) * 0.01)
    placed: Mapping[str, Any] = {
        'memory="60MiB"': jitney.optimize(memory="60MiB")(loss),
        'memory="10MiB"': jitney.optimize(memory="10MiB")(loss),
        'remat="auto", memory="10MiB"': jitney.optimize(remat="auto", memory="10MiB")(loss),
    }
    gradients: dict[str, Any] = {
        "jax.grad": jax.jit(jax.grad(loss)),
        "checkpoint around the function": jax.jit(jax.grad(jax.checkpoint(loss))),
        "checkpoint around the step": jax.jit(jax.grad(each_step)),
        "a scan of scans": jax.jit(jax.grad(nested)),
    }
    compiled: dict[str, Any] = {
        name: made.lower(a, drive).compile() for name, made in gradients.items()
    }
    for name, program in placed.items():
        compiled[name] = program.grad.program(wrt="a").lower(a, drive).compile()
    runs = {
        **{name: lambda made=made: made(a, drive) for name, made in gradients.items()},
        **{name: lambda f=f: f.grad(a, drive, wrt="a") for name, f in placed.items()},
    }
    plain = np.asarray(runs["jax.grad"]())
    for run in runs.values():
        np.testing.assert_allclose(run(), plain, rtol=1e-4, atol=1e-6)

    found: dict[str, Any] = {}
    for name, seconds in least(runs, 3).items():
        usage = compiled[name].memory_analysis()
        mib = (usage.temp_size_in_bytes + usage.argument_size_in_bytes) / MIB
        print(f"{name:<32}{mib:>8.1f} MiB {seconds:>8.2f} s a call", flush=True)
        found[name] = {"MiB": mib, "s": seconds}
    return found


def least(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of a call of each, in turn."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def heat(u: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.pad(u, 1)[2:] - 2 * u + jnp.pad(u, 1)[:-2] + 0.1 * jnp.exp(u)


@jax.jit
def coloured(u: Any) -> Any:
    """Three passes, by hand."""
    i = jnp.arange(u.size)
    push = jax.linearize(heat, u)[1]
    rows = jax.vmap(push)(jnp.stack([(i % 3 == c).astype(u.dtype) for c in range(3)]))
    return jnp.stack([rows[(i + k) % 3, i] for k in (-1, 0, 1)])


NEIGHBOURS = np.random.default_rng(0).integers(0, 20_000, (20_000, 4)).astype(np.int32)


def coupled(u: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.tanh(u) - jnp.mean(u[NEIGHBOURS] ** 2, axis=1)


def jacobians() -> dict[str, Any]:
    u = jnp.linspace(0.0, 1.0, 1_000_000)
    system: Any = jitney.lazy_derivatives(wrt="u", sparse=True)(heat)
    runs = {
        "jitney": lambda: system.jacobian(u).data,
        "three passes by hand": lambda: coloured(u),
    }
    found: dict[str, Any] = {}
    for name, run in runs.items():
        began = time.perf_counter()
        jax.block_until_ready(run())
        found[name] = {"first call, s": time.perf_counter() - began}
    for name, seconds in least(runs, 5).items():
        found[name]["ms"] = 1e3 * seconds
        first, again = found[name]["first call, s"], found[name]["ms"]
        print(f"{name:<32}{first:>8.2f} s first, {again:>8.2f} ms again", flush=True)

    drawn: Any = jitney.lazy_derivatives(wrt="u", sparse=True)(coupled)
    small = jnp.linspace(0.0, 1.0, 20_000)
    dense = np.asarray(jax.jacfwd(coupled)(small)[:50])
    np.testing.assert_allclose(drawn.jacobian(small).todense()[:50], dense, atol=1e-6)
    print(drawn.jacobian.plan(small))
    return found


def attention() -> None:
    """Print what the compiler counts and what the process grows by, of one call."""
    jax.config.update("jax_enable_compilation_cache", False)
    q = jnp.ones((16_384, 64)) / 8
    made = jax.jit(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v).lower(q, q, q).compile()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jax.block_until_ready(made(q, q, q))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    usage: Any = made.memory_analysis()
    counted = (usage.temp_size_in_bytes + usage.argument_size_in_bytes) / MIB
    print(f"{counted:.0f} MiB counted, {grown / 1024:.0f} MiB more in the process", flush=True)


def products() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, flags in (("as it is", ""), (WITHOUT, WITHOUT)):
        env = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
        done = subprocess.run(
            [sys.executable, "-m", "tests.perf.problems", "attention"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        found[name] = done.stdout.strip()
        print(f"{name:<46}{found[name]}", flush=True)
    return found


def main() -> None:
    chosen = sys.argv[1:] or ["scans", "jacobians", "products"]
    if chosen == ["attention"]:
        attention()
        return
    print(f"jax {jax.__version__}, {jax.default_backend()}")
    record(
        **{
            name: {"scans": scans, "jacobians": jacobians, "products": products}[name]()
            for name in chosen
        }
    )


if __name__ == "__main__":
    main()
