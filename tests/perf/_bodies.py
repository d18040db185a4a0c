"""Bodies for benchmarks of first calls: small numerical functions of one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def variance(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.var(x)


def softmax(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.nn.softmax(x)


def centred(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-3)


def running(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.cumsum(jnp.sin(x))


def autocorrelation(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x[1:] * x[:-1]) / jnp.sum(x * x)


def smoothed(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jax.lax.scan(lambda c, v: (0.9 * c + v, 0.9 * c + v), jnp.float32(0), x)[1]


def quantiles(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.sort(x) * jnp.arange(x.shape[0], dtype=x.dtype)


def gram(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.exp(-((x[:, None] - x) ** 2)))


BODIES: tuple[Callable[..., Any], ...] = (
    variance,
    softmax,
    centred,
    running,
    autocorrelation,
    smoothed,
    quantiles,
    gram,
)
