"""Models of sequences: recurrent cells, and attention with a causal mask and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ._arrays import KEY, normal
from ._model import CUTS, PAIRS, STATE, Model, never


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell | eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, cell: Any):
        one, two = jax.random.split(KEY)
        self.cell = cell(2, 4, key=one)
        self.head = eqx.nn.Linear(4, 1, key=two)

    def __call__(self, x: Float[Array, "time 2"]) -> Float[Array, "1"]:
        def step(state: Any, row: Any) -> Any:
            return self.cell(row, state), None

        zero = jnp.zeros(4)
        state, _ = jax.lax.scan(
            step, (zero, zero) if isinstance(self.cell, eqx.nn.LSTMCell) else zero, x
        )
        return self.head(state[0] if isinstance(state, tuple) else state)


def recurrent(
    net: Recurrent, x: Float[Array, "batch time 2"], y: Float[Array, "batch 1"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


class Predictor(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __call__(self, x: Float[Array, "time 2"]) -> Float[Array, "time 2"]:
        def step(state: Any, row: Any) -> Any:
            state = self.cell(row, state)
            return state, self.head(state)

        return jax.lax.scan(step, jnp.zeros(4), x)[1]


def predicted(
    net: Predictor, x: Float[Array, "batch time 2"], y: Float[Array, "batch time 2"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    dropout: eqx.nn.Dropout
    norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.attention = eqx.nn.MultiheadAttention(2, 4, dropout_p=0.1, key=one)
        self.dropout = eqx.nn.Dropout(0.2)
        self.norm = eqx.nn.LayerNorm(4)
        self.mlp = eqx.nn.MLP(4, 4, 8, 1, activation=jax.nn.gelu, key=two)

    def __call__(self, x: Float[Array, "time 4"], key: Key[Array, ""]) -> Float[Array, "time 4"]:
        one, two = jax.random.split(key)
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h, mask=mask, key=one)
        return x + self.dropout(jax.vmap(self.mlp)(x), key=two)


def attended(
    net: Block,
    x: Float[Array, "batch time 4"],
    y: Float[Array, "batch time 4"],
    key: Key[Array, ""],
) -> Float[Array, ""]:
    keys = jax.random.split(key, x.shape[0])
    return jnp.mean((jax.vmap(net)(x, keys) - y) ** 2)


def attended_given(
    net: Block,
    x: Float[Array, "batch time 4"],
    y: Float[Array, "batch time 4"],
    keys: Key[Array, "batch"],
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x, keys) - y) ** 2)


def _series(net: Callable[[], Any], *, every: bool = False) -> Any:
    def made(n: Any) -> dict[str, Any]:
        shape = (n["batch"], n["time"], 2) if every else (n["batch"], 1)
        return {"net": net(), "x": normal(n["batch"], n["time"], 2), "y": normal(*shape, seed=1)}

    return made


def _embedded(n: Any) -> dict[str, Any]:
    return {
        "net": Block(),
        "x": normal(n["batch"], n["time"], 4),
        "y": normal(n["batch"], n["time"], 4, seed=1),
    }


_SIZES = {"batch": 11, "time": 7}

MODELS = (
    Model(
        "GRU",
        recurrent,
        _series(lambda: Recurrent(eqx.nn.GRUCell)),
        _SIZES,
        "net",
        never("time", ("accumulate",), STATE),
    ),
    Model(
        "LSTM",
        recurrent,
        _series(lambda: Recurrent(eqx.nn.LSTMCell)),
        _SIZES,
        "net",
        never("time", ("accumulate",), STATE),
    ),
    Model(
        "GRU, a loss at each step",
        predicted,
        _series(
            lambda: Predictor(eqx.nn.GRUCell(2, 4, key=KEY), eqx.nn.Linear(4, 2, key=KEY)),
            every=True,
        ),
        _SIZES,
        "net",
        never("time", ("accumulate",), STATE),
    ),
    Model(
        "attention, causal, dropout",
        attended,
        lambda n: {**_embedded(n), "key": KEY},
        _SIZES,
        "net",
        never("time", CUTS, PAIRS),
    ),
    Model(
        "attention, keys given",
        attended_given,
        lambda n: {**_embedded(n), "keys": jax.random.split(KEY, n["batch"])},
        _SIZES,
        "net",
        never("time", CUTS, PAIRS),
    ),
)
