"""Branches and loops that differ between the elements of a mapped axis: `vmap`, `chunk={axis: 1}`,
and `jax.lax.map` by hand.

    python -m tests.perf.lanes

512 lanes, 7 of which take the branch that costs; the same where all do; and a loop whose slowest
lane takes a thousand times the turns of the others. Results are asserted equal first. Compiling is
apart; of calls the best of some rounds, in which all take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from examples._figures import record
from jitney import optimize

LANES, ROUNDS = 512, 5


def branching(x: Float[Array, "n"]) -> Float[Array, ""]:
    """A long computation where the first element is positive, a sum elsewhere."""

    def hard(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2000, lambda _, s: s + jnp.sum(jnp.sin(s * x)), 0.0)

    return jax.lax.cond(x[0] > 0, hard, jnp.sum, x)


def halved(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Turns until the first element is small."""
    return jnp.sum(jax.lax.while_loop(lambda s: jnp.abs(s[0]) > 1.0, lambda s: s * (1 - 1e-3), x))


def inputs(first: Any) -> Any:
    """Lanes of 64 elements, the first of each as given."""
    x = np.random.default_rng(0).standard_normal((LANES, 64), np.float32)
    x[:, 0] = first
    return jnp.asarray(x)


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "cond, 7 of 512 lanes": (branching, inputs(np.where(np.arange(LANES) % 80 == 5, 1.0, -1.0))),
    "cond, all lanes": (branching, inputs(1.0)),
    "while_loop, one slow lane": (halved, inputs(np.where(np.arange(LANES) == 9, 1e6, 1.005))),
}


def main() -> None:
    figures: dict[str, dict[str, float]] = {}
    for name, (body, x) in CASES.items():
        ways = {
            "jax.jit, vmap": jax.jit(jax.vmap(body)),
            "jax.jit, lax.map": jax.jit(lambda x, body=body: jax.lax.map(body, x)),
            "jitney, vmap": optimize(body, vmap="lane"),
            'jitney, vmap, chunk={"lane": 1}': optimize(body, vmap="lane", chunk={"lane": 1}),
        }
        want, compiled = None, {}
        for way, f in ways.items():
            began = time.perf_counter()
            got = np.asarray(jax.block_until_ready(f(x)))
            compiled[way] = time.perf_counter() - began
            want = got if want is None else want
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for way, f in ways.items():
                began = time.perf_counter()
                jax.block_until_ready(f(x))
                best[way] = min(best[way], time.perf_counter() - began)
        for way, seconds in best.items():
            print(
                f"{name:<26} {way:<32} {seconds * 1e3:9.2f} ms   first call {compiled[way]:6.2f} s",
                flush=True,
            )
        figures[name] = {way: seconds * 1e3 for way, seconds in best.items()}
    record(milliseconds=figures)


if __name__ == "__main__":
    main()
