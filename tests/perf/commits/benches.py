"""Benchmarks of a few milliseconds each, which every commit can run: one for each way to call a
function.

A benchmark is a function that makes the call. It imports jitney itself, since the worker counts
what that import takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Call = Callable[[], Any]


def numbers(*shape: int) -> Any:
    """The same ones in each process."""
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def added(x: Float[Array, "n"], y: Float[Array, "n"], z: Float[Array, "n"]) -> Float[Array, "n"]:
    return x + y + z


def spread(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.var(jnp.sin(x))


def warm() -> Call:
    """Three small arrays: what is around a call."""
    from jitney import optimize

    f, x = optimize(added), jnp.asarray(numbers(4))
    return lambda: f(x, x, x)


def model() -> Call:
    """A network of 18 arrays as an argument."""
    from jitney import optimize

    net, x = eqx.nn.MLP(4, 4, 4, 8, key=jax.random.key(0)), jnp.asarray(numbers(4))
    f = optimize(lambda net, x: net(x))
    return lambda: f(net, x)


def gradient() -> Call:
    """With respect to one argument."""
    from jitney import optimize

    f = optimize(lambda x, y: jnp.sum(jnp.sin(x) ** 2) * jnp.sum(y**3))
    x = jnp.asarray(numbers(4))
    return lambda: f.grad(x, x)


def pad() -> Call:
    """A thousand rows in a bucket of 1024."""
    from jitney import optimize

    f, x = optimize(pad={"n": "pow2"})(spread), jnp.asarray(numbers(1000))
    return lambda: f(x)


def chunk() -> Call:
    """A mean and a variance of a million numbers, in sixteen chunks."""
    from jitney import optimize

    f, x = optimize(chunk={"n": 65_536})(spread), jnp.asarray(numbers(2**20))
    return lambda: f(x)


def stream() -> Call:
    """The same numbers from the host, in sixteen parts."""
    from jitney import optimize
    from jitney import stream as streamed

    f, x = optimize(chunk={"n": 65_536})(spread), numbers(2**20)
    return lambda: streamed(f, x)[0]


BENCHES: dict[str, Callable[[], Call]] = {
    each.__name__: each for each in (warm, model, gradient, pad, chunk, stream)
}
