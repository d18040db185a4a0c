"""Bodies with hyperparameters that are numbers of Python and vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, ScalarLike

from tests.perf.coverage._arrays import normal, uniform

from ._body import body


class Hyper(NamedTuple):
    l2: float
    l1: float = 0.1


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Config:
    """As a settings class is registered: numbers are leaves, a name is not."""

    rate: float
    degree: int = 2
    name: str = dataclasses.field(default="run", metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    step: int
    params: dict[str, Any]
    rate: float


class Prior(eqx.Module):
    scale: Float[ArrayLike, ""]


def decayed(params, x: Float[Array, "n d"], y: Float[Array, "n"], decay) -> Float[Array, ""]:
    return jnp.mean((x @ params["w"] - y) ** 2) + decay * jnp.sum(params["w"] ** 2)


def elastic(params, x: Float[Array, "n d"], y: Float[Array, "n"], hyper: Hyper) -> Float[Array, ""]:
    penalty = hyper.l2 * jnp.sum(params["w"] ** 2) + hyper.l1 * jnp.sum(jnp.abs(params["w"]))
    return jnp.mean((x @ params["w"] - y) ** 2) + penalty


def of_settings(params, x: Float[Array, "n d"], settings) -> Float[Array, ""]:
    return jnp.mean(jnp.tanh(x @ params["w"] / settings["temperature"])) * settings["scale"][0]


def polynomial(params, x: Float[Array, "n"], config: Config) -> Float[Array, ""]:
    return config.rate * jnp.mean(sum(params["w"][i] * x**i for i in range(config.degree + 1)))


def scheduled(state: TrainState, x: Float[Array, "n d"], params) -> Float[Array, ""]:
    warm = jnp.minimum(1.0, (state.step + 1) / 100)
    return warm * state.rate * jnp.mean(jnp.square(x @ (params["w"] + state.params["w"])))


def either(params, x: Float[Array, "n d"], rate: float | Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sum(jax.nn.softplus(x @ params["w"] * rate))


def like(params, x: Float[Array, "n d"], temperature: ScalarLike) -> Float[Array, ""]:
    return jax.nn.logsumexp(x @ params["w"] / temperature)


def annotated(params, x: Float[Array, "n d"], rate: float) -> Float[Array, ""]:
    return jnp.mean(jnp.exp(-rate * (x @ params["w"]) ** 2))


def scaled_prior(params, x: Float[Array, "n d"], prior: Prior) -> Float[Array, ""]:
    density = jax.scipy.stats.norm.logpdf(params["w"], 0.0, prior.scale)
    return jnp.sum(density) + jnp.mean(x @ params["w"])


def clipped(params, x: Float[Array, "n d"], bounds) -> Float[Array, ""]:
    low, high = bounds
    return jnp.mean(jnp.clip(x @ params["w"], low, high))


def _given(*names: str, **rest: Any) -> Any:
    def data(n: Mapping[str, int]) -> dict[str, Any]:
        arrays = {"x": normal(n["n"], 3), "y": normal(n["n"], seed=1)}
        return {"params": {"w": normal(3, seed=5)}, **{k: arrays[k] for k in names}, **rest}

    return data


def _state(number: float) -> dict[str, Any]:
    return {"state": TrainState(int(10 * number), {"w": normal(3, seed=8)}, number)}


def _settings(number: float) -> dict[str, Any]:
    return {"settings": {"temperature": number, "scale": (number, "m")}}


def _alone(n: Mapping[str, int]) -> dict[str, Any]:
    return {"params": {"w": normal(3, seed=5)}, "x": uniform(n["n"]), "config": Config(0.5)}


BODIES = (
    body(
        "numbers",
        "decay without annotation",
        decayed,
        _given("x", "y", decay=0.1),
        varied=lambda number: {"decay": number},
    ),
    body(
        "numbers",
        "named tuple of numbers",
        elastic,
        _given("x", "y", hyper=Hyper(0.5)),
        varied=lambda number: {"hyper": Hyper(number)},
    ),
    body(
        "numbers",
        "dict of settings",
        of_settings,
        _given("x", **_settings(0.5)),
        varied=_settings,
    ),
    body(
        "numbers",
        "registered settings",
        polynomial,
        _alone,
        varied=lambda number: {"config": Config(number)},
    ),
    body(
        "numbers",
        "training state with a step",
        scheduled,
        _given("x", **_state(0.5)),
        varied=_state,
    ),
    body(
        "numbers",
        "number or array",
        either,
        _given("x", rate=0.5),
        varied=lambda number: {"rate": number},
    ),
    body(
        "numbers",
        "temperature is like a scalar",
        like,
        _given("x", temperature=0.5),
        varied=lambda number: {"temperature": number},
    ),
    body(
        "numbers",
        "rate annotated float",
        annotated,
        _given("x", rate=0.5),
        varied=lambda number: {"rate": number},
    ),
    body(
        "numbers",
        "number in a module, like an array",
        scaled_prior,
        _given("x", prior=Prior(0.5)),
        varied=lambda number: {"prior": Prior(number)},
    ),
    body(
        "numbers",
        "bounds in a tuple",
        clipped,
        _given("x", bounds=(-0.5, 0.5)),
        varied=lambda number: {"bounds": (-number, number)},
    ),
)
