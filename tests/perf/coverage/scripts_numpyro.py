"""Log densities as in the examples of NumPyro, written anew: what a sampler or variational
inference differentiates.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ._arrays import normal, uniform, whole
from ._model import CUTS, STATE, Model, never

Params = dict[str, Array]


def hierarchical(
    q: Params,
    offset: Float[Array, "groups"],
    group: Int[Array, "points"],
    x: Float[Array, "points"],
    y: Float[Array, "points"],
) -> Float[Array, ""]:
    """A regression with an intercept for each group."""
    intercepts = q["mean"] + jnp.exp(q["log_sd"]) * offset
    prior = (
        jnp.sum(norm.logpdf(offset))
        + norm.logpdf(q["mean"])
        + norm.logpdf(q["log_sd"])
        + norm.logpdf(q["slope"])
    )
    return prior + jnp.sum(norm.logpdf(y, intercepts[group] + q["slope"] * x, 0.5))


def hidden_markov(q: Params, y: Float[Array, "series time"]) -> Float[Array, ""]:
    """The forward algorithm, with three states."""
    transition = jax.nn.log_softmax(q["transition"], axis=1)

    def one(y: Any) -> Any:
        seen = norm.logpdf(y[:, None], q["mean"], 1.0)

        def step(alpha: Any, seen: Any) -> Any:
            return jax.nn.logsumexp(alpha[:, None] + transition, axis=0) + seen, None

        alpha, _ = jax.lax.scan(step, seen[0] - jnp.log(3.0), seen[1:])
        return jax.nn.logsumexp(alpha)

    return jnp.sum(jax.vmap(one)(y))


def stochastic_volatility(
    q: Params, step: Float[Array, "time"], returns: Float[Array, "time"]
) -> Float[Array, ""]:
    """A random walk of the logarithm of the volatility."""
    walk = jnp.cumsum(step * jnp.exp(q["log_sd"]))
    prior = jnp.sum(norm.logpdf(step)) + norm.logpdf(q["log_sd"])
    return prior + jnp.sum(jax.scipy.stats.t.logpdf(returns, 5.0, 0.0, jnp.exp(walk)))


def horseshoe(
    q: Params,
    beta: Float[Array, "features"],
    log_scale: Float[Array, "features"],
    x: Float[Array, "points features"],
    y: Float[Array, "points"],
) -> Float[Array, ""]:
    """A sparse regression."""
    scale = jnp.exp(log_scale + q["log_tau"])
    prior = jnp.sum(norm.logpdf(beta, 0.0, scale)) + jnp.sum(
        jax.scipy.stats.cauchy.logpdf(jnp.exp(log_scale)) + log_scale
    )
    return (
        prior + jnp.sum(norm.logpdf(y, x @ beta, jnp.exp(q["log_sd"]))) + norm.logpdf(q["log_tau"])
    )


def mixture(q: Params, x: Float[Array, "points 2"]) -> Float[Array, ""]:
    """Of three normal distributions."""
    each = jnp.sum(norm.logpdf(x[:, None], q["mean"], jnp.exp(q["log_sd"])[:, None]), axis=-1)
    return jnp.sum(jax.nn.logsumexp(each + jax.nn.log_softmax(q["weight"]), axis=1))


def proportional_hazards(
    q: Params, x: Float[Array, "patients 3"], died: Float[Array, "patients"]
) -> Float[Array, ""]:
    """Cox's partial likelihood of patients in the order of their times."""
    risk = x @ q["w"]
    at_risk = jax.lax.cumlogsumexp(risk, reverse=True)
    return jnp.sum((risk - at_risk) * died) + jnp.sum(norm.logpdf(q["w"]))


def neural_regression(
    q: Params, x: Float[Array, "points 3"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    """A Bayesian neural network."""
    z = jnp.tanh(jnp.tanh(x @ q["w1"]) @ q["w2"]) @ q["w3"]
    prior = sum(jnp.sum(norm.logpdf(q[name])) for name in ("w1", "w2", "w3"))
    return prior + jnp.sum(norm.logpdf(y, z[:, 0], jnp.exp(q["log_sd"])))


def multivariate(
    q: Params, x: Float[Array, "points"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    """A Gaussian process by the density of a multivariate normal."""
    distance = (x[:, None] - x[None]) ** 2
    kernel = jnp.exp(q["scale"] - 0.5 * distance * jnp.exp(-q["length"])) + (
        jnp.exp(q["noise"]) + 1e-3
    ) * jnp.eye(x.shape[0])
    return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros_like(y), kernel) + sum(
        map(norm.logpdf, q.values())
    )


def capture(q: Params, seen: Float[Array, "animals time"]) -> Float[Array, ""]:
    """Capture and recapture: an animal is alive or not, and is seen if it is, by chance."""
    survive, catch = jax.nn.log_sigmoid(q["survive"]), jax.nn.sigmoid(q["catch"])

    def step(alive: Any, seen: Any) -> Any:
        alive = alive + survive
        likely = jnp.log(jnp.where(seen > 0, catch, 1 - catch))
        dead = jnp.where(seen > 0, -jnp.inf, jnp.log1p(-jnp.exp(alive)))
        total = jnp.logaddexp(alive + likely, dead)
        return alive + likely - total, total

    _, totals = jax.lax.scan(step, jnp.zeros(seen.shape[0]), seen.T)
    return jnp.sum(totals)


def autoregression(q: Params, y: Float[Array, "time"]) -> Float[Array, ""]:
    """Of the second order."""
    expected = q["c"] + q["a"] * y[1:-1] + q["b"] * y[:-2]
    return jnp.sum(norm.logpdf(y[2:], expected, jnp.exp(q["log_sd"])))


def _numbers(**values: float) -> Params:
    return {name: jnp.float32(value) for name, value in values.items()}


_FACTOR = (
    "each element of a factor depends on all points before it: the matrix of all pairs is needed"
    " whole"
)
_NEXT = "a term is of neighbours: the loss is no sum of terms of one element each"
_WALK = (
    "a step of the walk adds to all that follow: the loss is no sum of terms of one element each"
)
_RISK = (
    "each patient's term is of all who live longer: the loss is no sum of terms of one element each"
)
_HMM = jax.device_put({"transition": normal(3, 3, seed=9), "mean": np.float32([-1.0, 0.0, 1.5])})
_MIXTURE = jax.device_put(
    {"mean": normal(3, 2, seed=8), "log_sd": np.zeros(3, np.float32), "weight": normal(3, seed=7)}
)
_NETWORK = jax.device_put(
    {
        name: normal(*shape, seed=6)
        for name, shape in (("w1", (3, 4)), ("w2", (4, 4)), ("w3", (4, 1)))
    }
)

MODELS = tuple(
    Model(*parts, group="scripts", **options)
    for *parts, options in (
        (
            "hierarchical regression",
            hierarchical,
            lambda n: {
                "q": _numbers(mean=0.1, log_sd=-0.2, slope=0.5),
                "offset": normal(n["groups"], seed=3),
                "group": whole(n["points"], below=n["groups"]),
                "x": normal(n["points"]),
                "y": normal(n["points"], seed=1),
            },
            {"points": 11, "groups": 5},
            "q",
            {},
        ),
        (
            "hidden Markov model",
            hidden_markov,
            lambda n: {"q": _HMM, "y": normal(n["series"], n["time"])},
            {"series": 11, "time": 7},
            "q",
            {"never": never("time", ("accumulate",), STATE)},
        ),
        (
            "stochastic volatility",
            stochastic_volatility,
            lambda n: {
                "q": _numbers(log_sd=-1.0),
                "step": normal(n["time"]),
                "returns": normal(n["time"], seed=1),
            },
            {"time": 11},
            "q",
            {"never": never("time", ("accumulate",), _WALK)},
        ),
        (
            "horseshoe regression",
            horseshoe,
            lambda n: {
                "q": _numbers(log_tau=-0.5, log_sd=0.1),
                "beta": normal(n["features"], seed=2),
                "log_scale": normal(n["features"], seed=3),
                "x": normal(n["points"], n["features"]),
                "y": normal(n["points"], seed=1),
            },
            {"points": 11, "features": 6},
            "q",
            {},
        ),
        (
            "normal mixture",
            mixture,
            lambda n: {"q": _MIXTURE, "x": normal(n["points"], 2)},
            {"points": 11},
            "q",
            {},
        ),
        (
            "proportional hazards",
            proportional_hazards,
            lambda n: {
                "q": {"w": jnp.asarray(normal(3, seed=5))},
                "x": normal(n["patients"], 3),
                "died": (normal(n["patients"], seed=1) > 0).astype("f"),
            },
            {"patients": 11},
            "q",
            {"never": never("patients", ("accumulate",), _RISK)},
        ),
        (
            "Bayesian neural network",
            neural_regression,
            lambda n: {
                "q": {**_NETWORK, "log_sd": jnp.float32(0.1)},
                "x": normal(n["points"], 3),
                "y": normal(n["points"], seed=1),
            },
            {"points": 11},
            "q",
            {},
        ),
        (
            "Gaussian process, multivariate normal",
            multivariate,
            lambda n: {
                "q": _numbers(scale=0.1, length=-0.5, noise=-0.7),
                "x": uniform(n["points"], high=5.0),
                "y": normal(n["points"], seed=1),
            },
            {"points": 11},
            "q",
            {"never": never("points", CUTS, _FACTOR)},
        ),
        (
            "capture and recapture",
            capture,
            lambda n: {
                "q": _numbers(survive=1.0, catch=-0.3),
                "seen": (normal(n["animals"], n["time"]) > 0).astype("f"),
            },
            {"animals": 11, "time": 5},
            "q",
            {"never": never("time", ("accumulate",), STATE)},
        ),
        (
            "autoregression",
            autoregression,
            lambda n: {"q": _numbers(c=0.1, a=0.5, b=-0.2, log_sd=0.1), "y": normal(n["time"])},
            {"time": 11},
            "q",
            {"never": never("time", ("accumulate",), _NEXT)},
        ),
    )
)
