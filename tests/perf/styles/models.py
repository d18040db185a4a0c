"""In the style of Equinox's documentation: modules as arguments."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.random import key

from .case import Case, normal


def forward(model, x):
    return jax.vmap(model)(x)


def regression_step(model, x, y):
    grads = eqx.filter_grad(lambda model: jnp.mean((jax.vmap(model)(x) - y) ** 2))(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-2 * g, grads))


def cross_entropy(model, x, labels):
    logits = jax.nn.log_softmax(jax.vmap(model)(x))
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))


def classifier_gradient(model, x, labels):
    return eqx.filter_value_and_grad(cross_entropy)(model, x, labels)


def gru(cell, xs):
    return jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(cell.hidden_size), xs)[0]


def attention_block(attention, norm, x):
    y = jax.vmap(norm)(x)
    return x + attention(y, y, y)


def bag_of_words(embedding, linear, tokens):
    return jax.vmap(lambda words: linear(jnp.mean(jax.vmap(embedding)(words), axis=0)))(tokens)


def dropped(linear, dropout, x, key):
    return jax.vmap(lambda x, key: dropout(linear(x), key=key))(
        x, jax.random.split(key, x.shape[0])
    )


def reconstruction(encoder, decoder, x):
    return eqx.filter_grad(
        lambda pair: jnp.mean((jax.vmap(lambda x: pair[1](pair[0](x)))(x) - x) ** 2)
    )((encoder, decoder))


def cnn():
    layers = [
        eqx.nn.Conv2d(1, 4, kernel_size=4, key=key(0)),
        eqx.nn.MaxPool2d(kernel_size=2, stride=2),
        jax.nn.relu,
        jnp.ravel,
        eqx.nn.Linear(576, 10, key=key(1)),
    ]
    return eqx.nn.Sequential(
        [layer if isinstance(layer, eqx.Module) else eqx.nn.Lambda(layer) for layer in layers]
    )


def mlp(inside, out, width, depth, seed=0):
    return eqx.nn.MLP(inside, out, width, depth, key=key(seed))


def attention():
    return eqx.nn.MultiheadAttention(4, 64, key=key(0))


def words():
    layers = eqx.nn.Embedding(500, 32, key=key(0)), eqx.nn.Linear(32, 5, key=key(1))
    return *layers, jnp.arange(1280).reshape(64, 20) % 500


CASES = [
    Case("equinox", forward, lambda: (mlp(32, 8, 64, 3), normal(128, 32))),
    Case("equinox", regression_step, lambda: (mlp(32, 8, 64, 3), normal(128, 32), normal(128, 8))),
    Case(
        "equinox", classifier_gradient, lambda: (cnn(), normal(32, 1, 28, 28), jnp.arange(32) % 10)
    ),
    Case("equinox", gru, lambda: (eqx.nn.GRUCell(8, 32, key=key(0)), normal(50, 8))),
    Case("equinox", attention_block, lambda: (attention(), eqx.nn.LayerNorm(64), normal(64, 64))),
    Case("equinox", bag_of_words, words),
    Case(
        "equinox",
        dropped,
        lambda: (eqx.nn.Linear(64, 64, key=key(0)), eqx.nn.Dropout(0.3), normal(64, 64), key(1)),
    ),
    Case(
        "equinox",
        reconstruction,
        lambda: (mlp(64, 4, 64, 1), mlp(4, 64, 64, 1, seed=1), normal(128, 64)),
    ),
]
