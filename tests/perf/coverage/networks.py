"""Networks that treat each example alone: layers, convolutions with pooling, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._arrays import KEY, normal, whole
from ._model import Model, never


def mlp(
    net: eqx.nn.MLP, x: Float[Array, "batch features"], y: Float[Array, "batch out"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


class Convolutional(eqx.Module):
    first: eqx.nn.Conv2d
    pool: eqx.nn.MaxPool2d | eqx.nn.AvgPool2d
    second: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self, pool: Any):
        one, two, three = jax.random.split(KEY, 3)
        self.first = eqx.nn.Conv2d(1, 3, kernel_size=3, padding=1, key=one)
        self.pool = pool(kernel_size=2, stride=2)
        self.second = eqx.nn.Conv2d(3, 4, kernel_size=3, key=two)
        self.head = eqx.nn.Linear(4, 5, key=three)

    def __call__(self, image: Float[Array, "1 height width"]) -> Float[Array, "5"]:
        x = self.pool(jax.nn.relu(self.first(image)))
        x = self.pool(jax.nn.relu(self.second(x)))
        return self.head(x.reshape(-1))


def classified(
    net: Convolutional, image: Float[Array, "batch 1 height width"], label: Int[Array, "batch"]
) -> Float[Array, ""]:
    logits = jax.vmap(net)(image)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], axis=1)
    return -jnp.mean(chosen)


class Normed(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    second: eqx.nn.Linear

    def __init__(self, mode: Any):
        one, two = jax.random.split(KEY)
        self.first = eqx.nn.Linear(3, 4, key=one)
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode=mode)
        self.second = eqx.nn.Linear(4, 1, key=two)

    def __call__(
        self, x: Float[Array, "3"], state: eqx.nn.State
    ) -> tuple[Float[Array, "1"], eqx.nn.State]:
        x, state = self.norm(self.first(x), state)
        return self.second(jax.nn.relu(x)), state


def batch_normed(
    net: Normed, state: eqx.nn.State, x: Float[Array, "batch 3"], y: Float[Array, "batch 1"]
) -> tuple[Float[Array, ""], eqx.nn.State]:
    out, state = jax.vmap(net, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    return jnp.mean((out - y) ** 2), state


class LayerNormed(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    second: eqx.nn.Linear

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.first = eqx.nn.Linear(3, 4, key=one)
        self.norm = eqx.nn.LayerNorm(4)
        self.second = eqx.nn.Linear(4, 1, key=two)

    def __call__(self, x: Float[Array, "3"]) -> Float[Array, "1"]:
        return self.second(jax.nn.relu(self.norm(self.first(x))))


def layer_normed(
    net: LayerNormed, x: Float[Array, "batch 3"], y: Float[Array, "batch 1"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


def _regression(net: Callable[[], Any], *, features: int = 3) -> Any:
    return lambda n: {
        "net": net(),
        "x": normal(n["batch"], features),
        "y": normal(n["batch"], 1, seed=1),
    }


def _images(net: Callable[[], Any]) -> Any:
    return lambda n: {
        "net": net(),
        "image": normal(n["batch"], 1, 10, 10),
        "label": whole(n["batch"], below=5),
    }


def _batch_norm(mode: str) -> Model:
    def data(n: Any) -> dict[str, Any]:
        net, state = eqx.nn.make_with_state(Normed)(mode)
        return {
            "net": net,
            "state": state,
            "x": normal(n["batch"], 3),
            "y": normal(n["batch"], 1, seed=1),
        }

    return Model(
        f"batch norm ({mode})",
        batch_normed,
        data,
        {"batch": 11},
        "net",
        never(
            "batch",
            ("accumulate",),
            "its statistics are of the whole batch: an example's loss waits for them",
        ),
        has_aux=True,
    )


MODELS = (
    Model(
        "MLP",
        mlp,
        _regression(lambda: eqx.nn.MLP(3, 1, 8, 2, activation=jax.nn.gelu, key=KEY)),
        {"batch": 11},
        "net",
    ),
    Model(
        "CNN, max pooling",
        classified,
        _images(lambda: Convolutional(eqx.nn.MaxPool2d)),
        {"batch": 11},
        "net",
    ),
    Model(
        "CNN, average pooling",
        classified,
        _images(lambda: Convolutional(eqx.nn.AvgPool2d)),
        {"batch": 11},
        "net",
    ),
    _batch_norm("batch"),
    _batch_norm("ema"),
    Model("layer norm", layer_normed, _regression(LayerNormed), {"batch": 11}, "net"),
)
