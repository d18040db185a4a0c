"""Models of probabilities: diffusion, a variational autoencoder, a Gaussian process, the density
that a Hamiltonian sampler asks for.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ._arrays import KEY, normal
from ._model import CUTS, Model, never


def diffusion(
    net: eqx.nn.MLP, x: Float[Array, "batch features"], key: Key[Array, ""]
) -> Float[Array, ""]:
    """Denoising score matching with one time and one noise for each example, as in Equinox's
    example.
    """

    def one(row: Any, t: Any, key: Any) -> Any:
        mean = row * jnp.exp(-0.5 * t)
        std = jnp.sqrt(jnp.maximum(1 - jnp.exp(-t), 1e-5))
        noise = jax.random.normal(key, row.shape)
        seen = mean + std * noise
        return (1 - jnp.exp(-t)) * jnp.mean((net(jnp.append(seen, t)) + noise / std) ** 2)

    n = x.shape[0]
    tkey, losskey = jax.random.split(key)
    t = jax.random.uniform(tkey, (n,), minval=0, maxval=10 / n)
    t = t + (10 / n) * jnp.arange(n)  # low discrepancy over times
    return jnp.mean(jax.vmap(one)(x, t, jax.random.split(losskey, n)))


class Autoencoder(eqx.Module):
    encoder: eqx.nn.MLP
    decoder: eqx.nn.MLP

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.encoder = eqx.nn.MLP(3, 4, 8, 1, key=one)
        self.decoder = eqx.nn.MLP(2, 3, 8, 1, key=two)


def variational(
    net: Autoencoder, x: Float[Array, "batch 3"], key: Key[Array, ""]
) -> Float[Array, ""]:
    mean, logvar = jnp.split(jax.vmap(net.encoder)(x), 2, axis=1)
    z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
    seen = jax.vmap(net.decoder)(z)
    kl = -0.5 * jnp.sum(1 + logvar - mean**2 - jnp.exp(logvar), axis=1)
    return jnp.mean(jnp.sum((seen - x) ** 2, axis=1) + kl)


def gaussian_process(
    params: dict[str, Float[Array, ""]], x: Float[Array, "points 2"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    """Negative log marginal likelihood with a squared exponential kernel."""
    distance = jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)
    kernel = jnp.exp(params["scale"] - distance * jnp.exp(-params["length"]))
    factor = jnp.linalg.cholesky(kernel + jnp.exp(params["noise"]) * jnp.eye(x.shape[0]))
    alpha = jax.scipy.linalg.cho_solve((factor, True), y)
    return (
        0.5 * y @ alpha
        + jnp.sum(jnp.log(jnp.diag(factor)))
        + 0.5 * x.shape[0] * jnp.log(2 * jnp.pi)
    )


def log_density(
    q: dict[str, Array], x: Float[Array, "points k"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    """Of a logistic regression with priors: what a Hamiltonian sampler differentiates."""
    w, b, log_scale = q["w"], q["b"], q["log_scale"]
    prior = jnp.sum(
        jax.scipy.stats.norm.logpdf(w, 0.0, jnp.exp(log_scale))
    ) + jax.scipy.stats.norm.logpdf(b)
    prior = prior + jax.scipy.stats.norm.logpdf(log_scale)
    logits = x @ w + b
    return prior + jnp.sum(y * jax.nn.log_sigmoid(logits) + (1 - y) * jax.nn.log_sigmoid(-logits))


def _gp() -> dict[str, Any]:
    return {"scale": jnp.float32(0.1), "length": jnp.float32(0.2), "noise": jnp.float32(-0.5)}


def _position() -> dict[str, Any]:
    return {
        "w": jnp.asarray(normal(3, seed=5)),
        "b": jnp.float32(0.3),
        "log_scale": jnp.float32(0.1),
    }


def _denoiser() -> eqx.nn.MLP:
    return eqx.nn.MLP(4, 3, 8, 2, activation=jax.nn.gelu, key=KEY)


_FACTOR = (
    "each element of a factor depends on all points before it: the matrix of all pairs is needed"
    " whole"
)

MODELS = (
    Model(
        "diffusion",
        diffusion,
        lambda n: {"net": _denoiser(), "x": normal(n["batch"], 3), "key": KEY},
        {"batch": 11},
        "net",
    ),
    Model(
        "variational autoencoder",
        variational,
        lambda n: {"net": Autoencoder(), "x": normal(n["batch"], 3), "key": KEY},
        {"batch": 11},
        "net",
    ),
    Model(
        "Gaussian process",
        gaussian_process,
        lambda n: {"params": _gp(), "x": normal(n["points"], 2), "y": normal(n["points"], seed=1)},
        {"points": 11},
        "params",
        never("points", CUTS, _FACTOR),
    ),
    Model(
        "HMC log-density",
        log_density,
        lambda n: {
            "q": _position(),
            "x": normal(n["points"], 3),
            "y": (normal(n["points"], seed=1) > 0).astype("float32"),
        },
        {"points": 11},
        "q",
    ),
)
