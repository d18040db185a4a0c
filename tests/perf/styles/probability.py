"""In the style of NumPyro's and blackjax's documentation: log densities, kernels, filters."""

import jax
import jax.numpy as jnp
from jax.scipy import stats
from jax.scipy.linalg import cho_solve

from .case import Case, normal, positive


def log_density(w, x, y):
    logits = x @ w
    return jnp.sum(y * logits - jnp.logaddexp(0.0, logits)) + jnp.sum(stats.norm.logpdf(w))


def eight_schools(params, y, sigma):
    theta = params["mu"] + jnp.exp(params["log_tau"]) * params["z"]
    prior = (
        stats.norm.logpdf(params["mu"], 0.0, 5.0)
        + stats.cauchy.logpdf(jnp.exp(params["log_tau"]), 0.0, 5.0)
        + params["log_tau"]
    )
    return (
        prior
        + jnp.sum(stats.norm.logpdf(params["z"]))
        + jnp.sum(stats.norm.logpdf(y, theta, sigma))
    )


def schools_gradient(params, y, sigma):
    return jax.value_and_grad(eight_schools)(params, y, sigma)


def leapfrog(w, momentum, x, y):
    gradient = jax.grad(log_density)

    def step(_, state):
        w, p = state
        p = p + 0.005 * gradient(w, x, y)
        w = w + 0.01 * p
        return w, p + 0.005 * gradient(w, x, y)

    return jax.lax.fori_loop(0, 10, step, (w, momentum))


def random_walk(key, w, x, y):
    def step(state, key):
        w, value = state
        first, second = jax.random.split(key)
        proposal = w + 0.1 * jax.random.normal(first, w.shape)
        proposed = log_density(proposal, x, y)
        accept = jnp.log(jax.random.uniform(second)) < proposed - value
        return (jnp.where(accept, proposal, w), jnp.where(accept, proposed, value)), w

    return jax.lax.scan(step, (w, log_density(w, x, y)), jax.random.split(key, 20))[1]


def evidence_gradient(params, key, x, y):
    def negative_elbo(params):
        mean, log_scale = params
        draws = mean + jnp.exp(log_scale) * jax.random.normal(key, (16, mean.size))
        return -jnp.mean(jax.vmap(log_density, (0, None, None))(draws, x, y)) - jnp.sum(log_scale)

    return jax.value_and_grad(negative_elbo)(params)


def gaussian_process(params, x, y):
    scale, noise = jnp.exp(params)
    kernel = jnp.exp(-0.5 * ((x[:, None] - x[None]) / scale) ** 2) + noise * jnp.eye(x.size)
    factor = jnp.linalg.cholesky(kernel)
    return -0.5 * y @ cho_solve((factor, True), y) - jnp.sum(jnp.log(jnp.diagonal(factor)))


def kalman(mean, covariance, a, q, ys):
    def step(state, y):
        mean, p = state
        mean, p = a @ mean, a @ p @ a.T + q
        gain = p[:, :1] / (p[0, 0] + 1.0)
        return (mean + gain[:, 0] * (y - mean[0]), p - gain @ p[:1]), mean[0]

    return jax.lax.scan(step, (mean, covariance), ys)[1]


def particles(key, ys):
    def step(x, inputs):
        y, key = inputs
        first, second = jax.random.split(key)
        x = 0.9 * x + jax.random.normal(first, x.shape)
        return jax.random.choice(
            second, x, x.shape, p=jax.nn.softmax(-0.5 * (y - x) ** 2)
        ), jnp.mean(x)

    return jax.lax.scan(step, jnp.zeros(200), (ys, jax.random.split(key, ys.size)))[1]


def data():
    return normal(500, 10), (normal(500) > 0).astype(jnp.float32)


def schools():
    return {"mu": jnp.float32(0.0), "log_tau": jnp.float32(1.0), "z": normal(8)}


CASES = [
    Case("numpyro", log_density, lambda: (normal(10), *data())),
    Case("numpyro", schools_gradient, lambda: (schools(), normal(8), positive(8))),
    Case(
        "numpyro", evidence_gradient, lambda: ((normal(10), normal(10)), jax.random.key(0), *data())
    ),
    Case("blackjax", leapfrog, lambda: (normal(10) / 10, normal(10), *data())),
    Case("blackjax", random_walk, lambda: (jax.random.key(0), normal(10), *data())),
    Case(
        "gpjax",
        gaussian_process,
        lambda: (jnp.array([0.0, -1.0]), jnp.linspace(0.0, 5.0, 100), normal(100)),
    ),
    Case(
        "dynamax",
        kalman,
        lambda: (normal(4), jnp.eye(4), 0.9 * jnp.eye(4), 0.1 * jnp.eye(4), normal(100)),
    ),
    Case("dynamax", particles, lambda: (jax.random.key(0), normal(20))),
]
