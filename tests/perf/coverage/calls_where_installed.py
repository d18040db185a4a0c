"""Calls of samplers, of a probabilistic language and of state-space models along the data axis, a
row a call: blackjax, numpyro and dynamax. The environment of the tests has none of them, so these
rows are there where one is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp

from ._arrays import KEY
from .calls import Call, as_model


def _regression(k: Any, t: Any, y: Any) -> Callable[[Any], Any]:
    def density(q: Any) -> Any:
        return -0.5 * jnp.sum((y - q[0] - q[1] * t) ** 2) / k[0] - 0.5 * jnp.sum(q**2)

    return density


def _kernel(algorithm: Callable[[Any, Any], Any]) -> Call:
    """Three steps of a kernel, from the two parameters."""

    def call(k: Any, t: Any, y: Any) -> Any:
        kernel = algorithm(_regression(k, t, y), jnp.ones_like(k))

        def one(state: Any, key: Any) -> tuple[Any, Any]:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(one, kernel.init(k), jax.random.split(KEY, 3))[1]

    return call


def _blackjax(blackjax: Any) -> Iterator[tuple[str, Call]]:
    walk = blackjax.mcmc.random_walk
    yield "hmc", _kernel(lambda density, ones: blackjax.hmc(density, 0.01, ones, 5))
    yield "mala", _kernel(lambda density, _: blackjax.mala(density, 0.01))
    yield "barker_proposal", _kernel(lambda density, _: blackjax.barker_proposal(density, 0.05))
    yield (
        "additive_step_random_walk",
        _kernel(lambda f, ones: blackjax.additive_step_random_walk(f, walk.normal(0.1 * ones))),
    )


def _numpyro(numpyro: Any) -> Iterator[tuple[str, Call]]:
    dist: Any = import_module("numpyro.distributions")
    util: Any = import_module("numpyro.infer.util")

    def model(t: Any, y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("points", t.shape[0]):
            numpyro.sample("y", dist.Normal(a + b * t, 0.5), obs=y)

    def sites(k: Any) -> dict[str, Any]:
        return {"a": k[0], "b": k[1]}

    yield "log_density", lambda k, t, y: util.log_density(model, (t, y), {}, sites(k))[0]
    yield "potential_energy", lambda k, t, y: util.potential_energy(model, (t, y), {}, sites(k))
    yield "GaussianRandomWalk", lambda k, t, y: dist.GaussianRandomWalk(k[0], len(y)).log_prob(y)


def _dynamax(dynamax: Any) -> Iterator[tuple[str, Call]]:
    linear: Any = import_module("dynamax.linear_gaussian_ssm.inference")
    hidden: Any = import_module("dynamax.hidden_markov_model")

    def linear_model(k: Any) -> Any:
        eye = jnp.eye(2, dtype=k.dtype)
        return linear.make_lgssm_params(
            initial_mean=k,
            initial_cov=eye,
            dynamics_weights=0.5 * k[1] * eye,
            dynamics_cov=0.1 * eye,
            emissions_weights=jnp.ones((1, 2), k.dtype),
            emissions_cov=0.2 * eye[:1, :1],
        )

    def states(k: Any, y: Any) -> Any:
        turns = jax.nn.softmax(jnp.outer(k, k), axis=1)
        return jax.nn.softmax(k), turns, -0.5 * (y[:, None] - k) ** 2

    yield (
        "lgssm_filter",
        lambda k, t, y: linear.lgssm_filter(linear_model(k), y[:, None]).filtered_means,
    )
    yield (
        "lgssm_smoother",
        lambda k, t, y: linear.lgssm_smoother(linear_model(k), y[:, None]).smoothed_means,
    )
    yield "hmm_filter", lambda k, t, y: hidden.hmm_filter(*states(k, y)).filtered_probs
    yield "hmm_smoother", lambda k, t, y: hidden.hmm_smoother(*states(k, y)).smoothed_probs


_LIBRARIES: dict[str, Callable[[Any], Iterator[tuple[str, Call]]]] = {
    "blackjax": _blackjax,
    "numpyro": _numpyro,
    "dynamax": _dynamax,
}


MODELS = tuple(
    as_model(f"{name}.{call}", body)
    for name, rows in _LIBRARIES.items()
    if find_spec(name)
    for call, body in rows(import_module(name))
)
