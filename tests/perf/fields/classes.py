"""Bodies whose data are in classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, NotRequired, TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from tests.perf.coverage._arrays import KEY, normal, uniform, whole

from ._body import body


class Rows(eqx.Module):
    x: Float[Array, "n d"]
    y: Float[Array, "n"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    image: Float[Array, "n d"]
    label: Int[Array, "n"]

    def replace(self, **changes: Any) -> Batch:
        return dataclasses.replace(self, **changes)


class Transition(NamedTuple):
    obs: Float[Array, "n d"]
    action: Int[Array, "n"]
    reward: Float[Array, "n"]
    next_obs: Float[Array, "n d"]


class Tokens(TypedDict):
    ids: Int[Array, "n"]
    weight: Float[Array, "n"]
    bias: NotRequired[Float[Array, "m"]]


@jax.tree_util.register_pytree_node_class
class Cloud:
    """A class that flattens itself, with a name as its auxiliary data."""

    position: Float[Array, "n 3"]
    mass: Float[Array, "n"]

    def __init__(self, position: Any, mass: Any, name: str = "cloud"):
        self.position, self.mass, self.name = position, mass, name

    def tree_flatten(self) -> tuple[Any, str]:
        return (self.position, self.mass), self.name

    @classmethod
    def tree_unflatten(cls, name: str, parts: Any) -> Cloud:
        return cls(*parts, name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Bodies:
    """As a physics engine keeps them."""

    pos: Float[Array, "n 2"]
    vel: Float[Array, "n 2"]
    time: Float[Array, ""]


class Regression(eqx.Module):
    """A model that keeps its data, and is called without any."""

    x: Float[Array, "n d"]
    y: Float[Array, "n"]

    def __call__(self, w: Any) -> Any:
        return jnp.mean((self.x @ w["w"] + w["b"] - self.y) ** 2)


class Observed(eqx.Module):
    rows: Rows
    error: Float[Array, "n"] | None = None


class Survey(eqx.Module):
    """Arrays in a named tuple in a module, and a setting that is static."""

    seen: Transition
    scale: Float[Array, ""]
    kind: str = eqx.field(static=True, default="huber")


def linear(params: dict[str, Array], data: Rows) -> Float[Array, ""]:
    residual = data.x @ params["w"] + params["b"] - data.y
    return jnp.mean(residual**2)


def classify(params, batch: Batch) -> Float[Array, ""]:
    batch = batch.replace(image=jnp.tanh(batch.image))
    logits = batch.image @ params["w"][:, None] * jnp.arange(1.0, 4.0)
    taken = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.label[:, None], axis=1)
    return -jnp.mean(taken)


def q_learning(params: eqx.nn.MLP, batch: Transition) -> Float[Array, ""]:
    q = jax.vmap(params)(batch.obs)
    best = jax.lax.stop_gradient(jnp.max(jax.vmap(params)(batch.next_obs), axis=1))
    chosen = jnp.take_along_axis(q, batch.action[:, None], axis=1)[:, 0]
    return jnp.mean((chosen - batch.reward - 0.9 * best) ** 2)


def bag_of_words(params, batch: Tokens) -> Float[Array, ""]:
    vectors = params["table"][batch["ids"]]
    pooled = jnp.sum(vectors * batch["weight"][:, None], axis=0) / jnp.sum(batch["weight"])
    return jnp.sum(jnp.tanh(pooled) ** 2)


def inertia(params, cloud: Cloud) -> Float[Array, ""]:
    centre = cloud.mass @ cloud.position / jnp.sum(cloud.mass)
    away = (cloud.position - centre) * params["w"]
    return jnp.sum(cloud.mass * jnp.sum(away**2, axis=1))


def energy(params: dict[str, Array], state: Bodies) -> Float[Array, ""]:
    kinetic = 0.5 * jnp.sum(state.vel**2)
    spring = 0.5 * params["b"] * jnp.sum((state.pos * params["w"][:2]) ** 2)
    return (kinetic + spring) * jnp.exp(-state.time)


def own_data(model: Regression, params) -> Float[Array, ""]:
    return model(params)


def weighted(params, data: Observed) -> Float[Array, ""]:
    residual = data.rows.x @ params["w"] - data.rows.y
    if data.error is not None:
        residual = residual / data.error
    return 0.5 * jnp.sum(residual**2)


def huber(params, data: Survey) -> Float[Array, ""]:
    off = data.seen.obs @ params["w"] - data.seen.reward
    near = 0.5 * off**2
    far = data.scale * (jnp.abs(off) - 0.5 * data.scale)
    return jnp.mean(
        jnp.where(jnp.abs(off) < data.scale, near, far) if data.kind == "huber" else near
    )


def of_tuple(params, batch: tuple[Float[Array, "n d"], Float[Array, "n"]]) -> Float[Array, ""]:
    x, y = batch
    return jnp.mean(jnp.logaddexp(0.0, -y * (x @ params["w"])))


def of_dict(params, batch: dict[str, Float[Array, "n"]]) -> Float[Array, ""]:
    rate = jnp.exp(params["b"] + params["w"][0] * batch["dose"])
    return jnp.sum(rate - batch["count"] * jnp.log(rate))


def layers(params: list[eqx.nn.Linear], data: Rows) -> Float[Array, ""]:
    def one(x: Any) -> Any:
        for layer in params[:-1]:
            x = jax.nn.gelu(layer(x))
        return params[-1](x)[0]

    return jnp.mean((jax.vmap(one)(data.x) - data.y) ** 2)


def _params(_: Any = None) -> dict[str, Any]:
    return {"w": normal(3, seed=5), "b": normal(seed=6)}


def _rows(n: Mapping[str, int]) -> Rows:
    return Rows(normal(n["n"], 3), normal(n["n"], seed=1))


def _transition(n: Mapping[str, int]) -> Transition:
    k = n["n"]
    return Transition(normal(k, 3), whole(k, below=2), normal(k, seed=2), normal(k, 3, seed=3))


def _table(n: Mapping[str, int]) -> dict[str, Any]:
    ids: Tokens = {"ids": whole(n["n"], below=5), "weight": uniform(n["n"])}
    return {"params": {"table": normal(5, 4)}, "batch": ids}


def _linears() -> list[eqx.nn.Linear]:
    one, two = jax.random.split(KEY)
    return [eqx.nn.Linear(3, 4, key=one), eqx.nn.Linear(4, 1, key=two)]


def _with(name: str, made: Any, params: Any = _params) -> Any:
    return lambda n: {"params": params(), name: made(n)}


BODIES = (
    body("classes", "module of rows", linear, _with("data", _rows)),
    body(
        "classes",
        "registered batch with replace",
        classify,
        _with("batch", lambda n: Batch(normal(n["n"], 3), whole(n["n"], below=3))),
    ),
    body(
        "classes",
        "transitions in a named tuple",
        q_learning,
        _with("batch", _transition, lambda: eqx.nn.MLP(3, 2, 8, 1, key=KEY)),
    ),
    body("classes", "tokens in a typed dict", bag_of_words, _table),
    body(
        "classes",
        "class that flattens itself",
        inertia,
        _with("cloud", lambda n: Cloud(normal(n["n"], 3), uniform(n["n"]) + 1)),
    ),
    body(
        "classes",
        "state of a physics engine",
        energy,
        _with("state", lambda n: Bodies(normal(n["n"], 2), normal(n["n"], 2, seed=1), normal())),
    ),
    body(
        "classes",
        "module that keeps its data",
        own_data,
        _with("model", lambda n: Regression(normal(n["n"], 3), normal(n["n"], seed=1))),
    ),
    body(
        "classes",
        "module in a module",
        weighted,
        _with("data", lambda n: Observed(_rows(n), uniform(n["n"], seed=3) + 1)),
    ),
    body(
        "classes", "optional field is None", weighted, _with("data", lambda n: Observed(_rows(n)))
    ),
    body(
        "classes",
        "named tuple in a module",
        huber,
        _with("data", lambda n: Survey(_transition(n), uniform())),
    ),
    body(
        "classes",
        "tuple of arrays",
        of_tuple,
        _with("batch", lambda n: (normal(n["n"], 3), normal(n["n"], seed=1))),
    ),
    body(
        "classes",
        "dict of arrays",
        of_dict,
        _with("batch", lambda n: {"dose": uniform(n["n"]), "count": uniform(n["n"], seed=1)}),
    ),
    body("classes", "list of layers", layers, _with("data", _rows, _linears)),
)
