"""Losses as in the examples of diffrax, written anew with hand-written solvers: controlled, latent,
stochastic and partial equations.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ._arrays import KEY, normal, uniform
from ._model import HALO, STATE, Model, never


class Controlled(eqx.Module):
    start: eqx.nn.Linear
    field: eqx.nn.MLP
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.start = eqx.nn.Linear(2, 3, key=one)
        self.field = eqx.nn.MLP(3, 6, 8, 1, activation=jnp.tanh, final_activation=jnp.tanh, key=two)
        self.head = eqx.nn.Linear(3, 1, key=three)

    def __call__(self, x: Float[Array, "time 2"]) -> Float[Array, ""]:
        def step(y: Any, dx: Any) -> Any:
            return y + self.field(y).reshape(3, 2) @ dx, None

        y, _ = jax.lax.scan(step, self.start(x[0]), jnp.diff(x, axis=0))
        return self.head(y)[0]


def controlled(
    net: Controlled, x: Float[Array, "batch time 2"], label: Float[Array, "batch"]
) -> Float[Array, ""]:
    logits = jax.vmap(net)(x)
    return jnp.mean(jax.nn.softplus(logits) - label * logits)


class Latent(eqx.Module):
    encoder: eqx.nn.GRUCell
    to_latent: eqx.nn.Linear
    field: eqx.nn.MLP
    decoder: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(KEY, 4)
        self.encoder = eqx.nn.GRUCell(3, 4, key=keys[0])
        self.to_latent = eqx.nn.Linear(4, 4, key=keys[1])
        self.field = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=keys[2])
        self.decoder = eqx.nn.Linear(2, 2, key=keys[3])

    def __call__(
        self, t: Float[Array, "time"], y: Float[Array, "time 2"], key: Key[Array, ""]
    ) -> Float[Array, ""]:
        data = jnp.concatenate([t[:, None], y], axis=1)
        hidden, _ = jax.lax.scan(
            lambda h, row: (self.encoder(row, h), None), jnp.zeros(4), data, reverse=True
        )
        mean, logstd = jnp.split(self.to_latent(hidden), 2)
        z = mean + jnp.exp(logstd) * jax.random.normal(key, (2,))

        def step(z: Any, dt: Any) -> Any:
            z = z + dt * self.field(z + 0.5 * dt * self.field(z))
            return z, self.decoder(z)

        _, seen = jax.lax.scan(step, z, jnp.diff(t, prepend=0.0))
        kl = 0.5 * jnp.sum(mean**2 + jnp.exp(2 * logstd) - 2 * logstd - 1)
        return 0.5 * jnp.sum((seen - y) ** 2) + kl


def latent(
    net: Latent, t: Float[Array, "batch time"], y: Float[Array, "batch time 2"], key: Key[Array, ""]
) -> Float[Array, ""]:
    return jnp.mean(jax.vmap(net)(t, y, jax.random.split(key, t.shape[0])))


def normalising_flow(net: eqx.nn.MLP, x: Float[Array, "batch 2"]) -> Float[Array, ""]:
    """Negative log-likelihood of a continuous normalising flow, with the exact trace of the
    Jacobian.
    """

    def one(y: Any) -> Any:
        def step(carry: Any, t: Any) -> Any:
            y, logp = carry
            out, back = jax.vjp(lambda y: net(jnp.append(y, t)), y)
            trace = jnp.trace(jax.vmap(lambda row: back(row)[0])(jnp.eye(2)))
            return (y - 0.125 * out, logp - 0.125 * trace), None

        (y, logp), _ = jax.lax.scan(step, (y, jnp.zeros(())), jnp.linspace(1.0, 0.0, 8))
        return logp + jnp.sum(jax.scipy.stats.norm.logpdf(y))

    return -jnp.mean(jax.vmap(one)(x))


class Stochastic(eqx.Module):
    drift: eqx.nn.MLP
    diffusion: eqx.nn.MLP

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.drift = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=one)
        self.diffusion = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=two)


def stochastic(
    net: Stochastic, y0: Float[Array, "batch 2"], y1: Float[Array, "batch 2"], key: Key[Array, ""]
) -> Float[Array, ""]:
    """A neural stochastic differential equation by Euler's method, with a Brownian path for each
    example.
    """

    def one(y: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (8, 2))
        step = lambda y, dw: (y + 0.125 * net.drift(y) + 0.35 * net.diffusion(y) * dw, None)
        return jax.lax.scan(step, y, noise)[0]

    ends = jax.vmap(one)(y0, jax.random.split(key, y0.shape[0]))
    return jnp.mean((ends - y1) ** 2)


def heat(
    params: dict[str, Float[Array, ""]], start: Float[Array, "points"], end: Float[Array, "points"]
) -> Float[Array, ""]:
    """A nonlinear heat equation by finite differences, with fixed ends."""

    def step(_: Any, y: Any) -> Any:
        bend = y[:-2] - 2 * y[1:-1] + y[2:]
        return jnp.concatenate(
            [y[:1], y[1:-1] + params["rate"] * bend - params["sink"] * y[1:-1] ** 3, y[-1:]]
        )

    return jnp.mean((jax.lax.fori_loop(0, 5, step, start) - end) ** 2)


def kalman(params: dict[str, Array], y: Float[Array, "time 1"]) -> Float[Array, ""]:
    """Negative log-likelihood of a Kalman filter with two states."""
    A, C = params["A"], params["C"]
    Q, R = jnp.exp(params["q"]) * jnp.eye(2), jnp.exp(params["r"]) * jnp.eye(1)

    def step(carry: Any, y: Any) -> Any:
        m, P = carry
        m, P = A @ m, A @ P @ A.T + Q
        S = C @ P @ C.T + R
        K = jnp.linalg.solve(S, C @ P).T
        error = y - C @ m
        nll = 0.5 * (error @ jnp.linalg.solve(S, error) + jnp.linalg.slogdet(S)[1])
        return (m + K @ error, P - K @ C @ P), nll

    _, losses = jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2)), y)
    return jnp.sum(losses)


_BATCH_TIME = {"batch": 11, "time": 7}


def _flow() -> eqx.nn.MLP:
    return eqx.nn.MLP(3, 2, 8, 1, activation=jnp.tanh, key=KEY)


def _linear_system() -> dict[str, Any]:
    return {
        "A": jnp.asarray([[0.9, 0.2], [-0.1, 0.8]], jnp.float32),
        "C": jnp.asarray([[1.0, 0.5]], jnp.float32),
        "q": jnp.float32(-1.0),
        "r": jnp.float32(-0.5),
    }


def _ends(n: Any) -> dict[str, Any]:
    return {"y0": normal(n["batch"], 2), "y1": normal(n["batch"], 2, seed=1)}


def _times(n: Any) -> Any:
    return uniform(n["batch"], n["time"], seed=4).cumsum(axis=1).astype("float32") / n["time"]


MODELS = tuple(
    Model(*parts, group="scripts", **options)
    for *parts, options in (
        (
            "neural CDE",
            controlled,
            lambda n: {
                "net": Controlled(),
                "x": normal(n["batch"], n["time"], 2),
                "label": (normal(n["batch"], seed=1) > 0).astype("f"),
            },
            _BATCH_TIME,
            "net",
            {"never": never("time", ("accumulate",), STATE)},
        ),
        (
            "latent ODE",
            latent,
            lambda n: {
                "net": Latent(),
                "t": _times(n),
                "y": normal(n["batch"], n["time"], 2),
                "key": KEY,
            },
            _BATCH_TIME,
            "net",
            {"never": never("time", ("accumulate",), STATE)},
        ),
        (
            "normalising flow",
            normalising_flow,
            lambda n: {"net": _flow(), "x": normal(n["batch"], 2)},
            {"batch": 11},
            "net",
            {},
        ),
        (
            "neural SDE",
            stochastic,
            lambda n: {"net": Stochastic(), **_ends(n), "key": KEY},
            {"batch": 11},
            "net",
            {},
        ),
        (
            "heat equation",
            heat,
            lambda n: {
                "params": {"rate": jnp.float32(0.2), "sink": jnp.float32(0.05)},
                "start": uniform(n["points"]),
                "end": uniform(n["points"], seed=1),
            },
            {"points": 11},
            "params",
            {"never": never("points", ("accumulate",), HALO)},
        ),
        (
            "Kalman filter",
            kalman,
            lambda n: {"params": _linear_system(), "y": normal(n["time"], 1)},
            {"time": 11},
            "params",
            {"never": never("time", ("accumulate",), STATE)},
        ),
    )
)
