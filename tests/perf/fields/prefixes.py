"""Bodies that read the beginning of a longer buffer, and stacks of modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tests.perf.coverage._arrays import KEY, normal, uniform
from tests.perf.coverage._model import CUTS, PAIRS, STATE, never

from ._body import body

LONG = 40


class Positions(eqx.Module):
    table: Float[Array, "longest d"]
    head: eqx.nn.Linear

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n"]:
        return jax.vmap(self.head)(x + self.table[: x.shape[0]])[:, 0]


def learned(params: Positions, x: Float[Array, "n 3"]) -> Float[Array, ""]:
    return jnp.mean(jnp.tanh(params(x)) ** 2)


def sliced(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    pos = jax.lax.dynamic_slice_in_dim(params["table"], 0, x.shape[0])
    return jnp.mean(jnp.sin(x + pos))


def masked(
    params, x: Float[Array, "n d"], mask: Float[Array, "longest longest"]
) -> Float[Array, ""]:
    """Attention with a causal mask that is made once, as long as any series."""
    n = x.shape[0]
    scores = x @ jnp.diag(params["w"]) @ x.T
    weights = jax.nn.softmax(jnp.where(mask[:n, :n] > 0, scores, -jnp.inf), axis=-1)
    return jnp.mean((weights @ x) ** 2)


def cached(params, x: Float[Array, "n d"], cache: Float[Array, "longest d"]) -> Float[Array, ""]:
    """Rows that are written into a cache."""
    return jnp.sum(jnp.tanh(cache.at[: x.shape[0]].set(x * params["w"])))


def faded(params, x: Float[Array, "n d"], weight: Float[Array, "longest"]) -> Float[Array, ""]:
    return weight[: x.shape[0]] @ (x @ params["w"])


def sinusoids(params, x: Float[Array, "n d"]) -> Float[Array, ""]:
    """Positions that are computed."""
    angle = jnp.arange(x.shape[0])[:, None] * params["w"]
    return jnp.mean((x + jnp.sin(angle)) ** 3)


def ensemble(params: eqx.nn.MLP, x: Float[Array, "n 3"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """A stack of networks, by `filter_vmap`."""
    each = eqx.filter_vmap(lambda net: jax.vmap(net)(x)[:, 0])(params)
    return jnp.mean((each - y) ** 2)


def committee(params: eqx.nn.MLP, x: Float[Array, "n 3"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """The likelihood of the mean and the variance over a stack."""

    def one(row: Any) -> Any:
        each = eqx.filter_vmap(lambda net: net(row)[0])(params)
        return jnp.mean(each), jnp.var(each) + 0.1

    mean, variance = jax.vmap(one)(x)
    return 0.5 * jnp.mean(jnp.log(variance) + (y - mean) ** 2 / variance)


def scanned_layers(params: eqx.nn.Linear, x: Float[Array, "n 3"]) -> Float[Array, ""]:
    """Layers in one stack, over which a scan goes."""
    arrays, rest = eqx.partition(params, eqx.is_array)

    def layer(h: Any, part: Any) -> Any:
        return jnp.tanh(jax.vmap(eqx.combine(part, rest))(h)), None

    return jnp.mean(jax.lax.scan(layer, x, arrays)[0] ** 2)


def heads(params, x: Float[Array, "n 3"], y: Float[Array, "n 4"]) -> Float[Array, ""]:
    """One trunk, and a stack of heads."""
    trunk, stack = params
    hidden = jax.vmap(trunk)(x)
    out = eqx.filter_vmap(lambda head: jax.vmap(head)(hidden)[:, 0], out_axes=1)(stack)
    return jnp.mean((out - y) ** 2)


def compartments(params, dose: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """Pharmacokinetics: an amount that decays from dose to dose."""

    def step(amount: Any, dose: Any) -> Any:
        amount = amount * jnp.exp(-jnp.exp(params["w"][0])) + dose
        return amount, amount

    _, amounts = jax.lax.scan(step, jnp.zeros((), dose.dtype), dose)
    return jnp.mean((amounts * params["w"][1] - y) ** 2)


def orbits(params, t: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """Radial velocities, with Kepler's equation solved by Newton's method."""
    anomaly = 6.0 * t + params["w"][0]
    e = jax.nn.sigmoid(params["w"][1]) / 2

    def newton(_: Any, E: Any) -> Any:
        return E - (E - e * jnp.sin(E) - anomaly) / (1 - e * jnp.cos(E))

    E = jax.lax.fori_loop(0, 6, newton, anomaly)
    return jnp.mean((params["w"][2] * jnp.cos(E) - y) ** 2)


def transit(params, t: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
    """A light curve: the depth of a transit, by a smooth step."""
    depth, start, width = jax.nn.sigmoid(params["w"])
    inside = jax.nn.sigmoid((width / 2 - jnp.abs(t - start)) * 20)
    error = jnp.std(y)
    return -jnp.sum(jax.scipy.stats.norm.logpdf(y, 1 - depth * inside, error))


def _given(*names: str) -> Any:
    def data(n: Mapping[str, int]) -> dict[str, Any]:
        k = n["n"]
        arrays = {
            "x": normal(k, 3),
            "y": normal(k, seed=1),
            "t": uniform(k, seed=2),
            "dose": uniform(k, seed=3),
            "mask": (normal(LONG, LONG) < 9) * _lower(),
            "cache": normal(LONG, 3, seed=4),
            "weight": uniform(LONG, seed=5),
        }
        params = {"w": normal(3, seed=5), "table": normal(LONG, 3, seed=6)}
        return {"params": params, **{name: arrays[name] for name in names}}

    return data


def _lower() -> Any:
    import numpy as np

    return np.tril(np.ones((LONG, LONG), np.float32))


def _nets(made: Any, *names: str) -> Any:
    return lambda n: {**_given(*names)(n), "params": made()}


def _stack(made: Any, count: int = 4) -> Any:
    return eqx.filter_vmap(made)(jax.random.split(KEY, count))


def _mlps() -> Any:
    return _stack(lambda key: eqx.nn.MLP(3, 1, 4, 1, key=key))


def _heads() -> Any:
    return eqx.nn.Linear(3, 3, key=KEY), _stack(lambda key: eqx.nn.Linear(3, 1, key=key))


BODIES = (
    body(
        "prefixes",
        "learned positions in a module",
        learned,
        _nets(lambda: Positions(normal(LONG, 3, seed=6), eqx.nn.Linear(3, 1, key=KEY)), "x"),
    ),
    body("prefixes", "dynamic_slice of a table", sliced, _given("x")),
    body(
        "prefixes",
        "mask of a longer buffer",
        masked,
        _given("x", "mask"),
        never=never("n", CUTS, PAIRS),
    ),
    body("prefixes", "rows written into a cache", cached, _given("x", "cache")),
    body("prefixes", "beginning of given weights", faded, _given("x", "weight")),
    body("prefixes", "computed positions", sinusoids, _given("x")),
    body("stacks", "ensemble", ensemble, _nets(_mlps, "x", "y")),
    body("stacks", "mean and variance over a stack", committee, _nets(_mlps, "x", "y")),
    body(
        "stacks",
        "stack of layers under a scan",
        scanned_layers,
        _nets(lambda: _stack(lambda key: eqx.nn.Linear(3, 3, key=key)), "x"),
    ),
    body(
        "stacks",
        "one trunk, a stack of heads",
        heads,
        lambda n: {"params": _heads(), "x": normal(n["n"], 3), "y": normal(n["n"], 4, seed=1)},
    ),
    body(
        "stacks",
        "pharmacokinetics",
        compartments,
        _given("dose", "y"),
        never=never("n", ("accumulate",), STATE),
    ),
    body("stacks", "radial velocities", orbits, _given("t", "y")),
    body("stacks", "light curve", transit, _given("t", "y")),
)
