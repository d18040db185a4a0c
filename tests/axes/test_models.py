"""Models that people train: the gradient of a batch padded, cut, accumulated and streamed, against
JAX's own at exact size.
"""

import functools
import inspect
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, UInt32

from jitney import accumulate, optimize, stream
from tests._arrays import random_key

KEY = random_key(0)
N, CHUNK = 11, 4


class Recurrent(eqx.Module):
    """A GRU over time; its last state is read."""

    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self):
        self.cell, self.out = eqx.nn.GRUCell(2, 3, key=KEY), eqx.nn.Linear(3, 1, key=KEY)

    def __call__(self, x):
        return self.out(jax.lax.scan(lambda h, a: (self.cell(a, h), None), jnp.zeros(3), x)[0])[0]


class Convolutional(eqx.Module):
    """With both kinds of pooling."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    out: eqx.nn.Linear

    def __init__(self):
        self.first, self.second = eqx.nn.Conv2d(1, 2, 3, key=KEY), eqx.nn.Conv2d(2, 2, 2, key=KEY)
        self.out = eqx.nn.Linear(2, 3, key=KEY)

    def __call__(self, x):
        x = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(self.first(x)))
        return self.out(eqx.nn.AvgPool2d(2, 1)(jnp.tanh(self.second(x))).reshape(-1))


class Attention(eqx.Module):
    """Causal, with dropout behind it: each example has a key."""

    attend: eqx.nn.MultiheadAttention
    dropout: eqx.nn.Dropout

    def __init__(self):
        self.attend = eqx.nn.MultiheadAttention(2, 4, key=KEY)
        self.dropout = eqx.nn.Dropout(0.4)

    def __call__(self, x, key):
        causal = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        return jnp.sum(self.dropout(self.attend(x, x, x, causal), key=key))


class Autoencoder(eqx.Module):
    """Variational."""

    encode: eqx.nn.Linear
    decode: eqx.nn.Linear

    def __init__(self):
        self.encode, self.decode = eqx.nn.Linear(3, 4, key=KEY), eqx.nn.Linear(2, 3, key=KEY)


def gru(
    model: Recurrent, x: Float[Array, "batch time 2"], y: Float[Array, "batch"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def cnn(
    model: Convolutional, x: Float[Array, "batch 1 8 8"], y: Int[Array, "batch"]
) -> Float[Array, ""]:
    return -jnp.mean(
        jnp.take_along_axis(jax.nn.log_softmax(jax.vmap(model)(x)), y[:, None], axis=1)
    )


def attention(
    model: Attention, x: Float[Array, "batch 5 4"], keys: UInt32[Array, "batch 2"]
) -> Float[Array, ""]:
    return jnp.mean(jax.vmap(model)(x, keys) ** 2)


def dropped(
    model: Attention, x: Float[Array, "batch 5 4"], key: UInt32[Array, "2"]
) -> Float[Array, ""]:
    """The keys are made of one."""
    return jnp.mean(jax.vmap(model)(x, jax.random.split(key, x.shape[0])) ** 2)


def vae(
    model: Autoencoder, x: Float[Array, "batch 3"], key: UInt32[Array, "2"]
) -> Float[Array, ""]:
    mean, log = jnp.split(jax.vmap(model.encode)(x), 2, axis=1)
    z = mean + jnp.exp(log) * jax.random.normal(key, mean.shape)
    return jnp.mean((jax.vmap(model.decode)(z) - x) ** 2) + 0.1 * jnp.mean(
        mean**2 + jnp.exp(2 * log) - 2 * log
    )


def rows(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


LOSSES = {
    "gru": (gru, Recurrent, lambda: [rows(N, 4, 2), rows(N)]),
    "cnn": (cnn, Convolutional, lambda: [rows(N, 1, 8, 8), np.arange(N, dtype=np.int32) % 3]),
    "attention": (
        attention,
        Attention,
        lambda: [rows(N, 5, 4), np.asarray(jax.random.split(jax.random.PRNGKey(1), N))],
    ),
    "dropout": (dropped, Attention, lambda: [rows(N, 5, 4), np.asarray(jax.random.PRNGKey(1))]),
    "vae": (vae, Autoencoder, lambda: [rows(N, 3), np.asarray(jax.random.PRNGKey(1))]),
}


@functools.cache
def exact(name):
    """The loss, its model and arguments, and what Equinox makes of them."""
    loss, model, arguments = LOSSES[name]
    made, given = model(), arguments()
    return loss, made, given, eqx.filter_jit(eqx.filter_value_and_grad(loss))(made, *given)


def check(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_a_batch_is_accumulated(name):
    """Over microbatches, the last one shorter."""
    loss, model, given, want = exact(name)
    check(accumulate(loss, axis="batch", microbatch=CHUNK, wrt="model")(model, *given), want)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["gru", "cnn", "dropout"])
def test_the_gradient_is_cut(name):
    """By `chunk` on the loss."""
    loss, model, given, want = exact(name)
    check(optimize(chunk={"batch": CHUNK})(loss).value_and_grad(model, *given, wrt="model"), want)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["gru", "cnn", "dropout"])
def test_the_gradient_is_padded(name):
    """Without a warning, which would say that it runs at exact size."""
    loss, model, given, want = exact(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(
            optimize(pad={"batch": "pow2"})(loss).value_and_grad(model, *given, wrt="model"), want
        )


@pytest.mark.rest
def test_the_gradient_is_streamed():
    """From arrays on the host; each chunk draws what the whole would have there."""
    loss, model, given, want = exact("vae")
    data = dict(zip(inspect.signature(loss).parameters, [model, *given], strict=True))
    check(
        stream(
            optimize(loss).value_and_grad.program(wrt="model"),
            **data,
            chunk={"batch": CHUNK},
            progress=False,
        ).result,
        want,
    )
