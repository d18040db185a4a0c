"""In the style of JAX's own tutorials: element-wise functions, losses, derivatives, loops."""

import jax
import jax.numpy as jnp
from jax import lax

from .case import Case, normal, positive


def selu(x):
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    logits = x @ w + b
    return logits - jax.nn.logsumexp(logits, axis=-1, keepdims=True)


def update(params, x, target):
    grads = jax.grad(lambda params: -jnp.mean(predict(params, x) * target))(params)
    return [(w - 0.1 * dw, b - 0.1 * db) for (w, b), (dw, db) in zip(params, grads, strict=True)]


def logistic_loss(w, x, y):
    return jnp.mean(jnp.logaddexp(0.0, -y * (x @ w)))


def logistic_gradient(w, x, y):
    return jax.value_and_grad(logistic_loss)(w, x, y)


def logistic_hessian(w, x, y):
    return jax.jacfwd(jax.jacrev(logistic_loss))(w, x, y)


def convolved(signals, kernel):
    return jax.vmap(lambda signal: jnp.convolve(signal, kernel, mode="same"))(signals)


def recurrent(w, u, h, xs):
    return lax.scan(lambda h, x: (jnp.tanh(w @ h + u @ x),) * 2, h, xs)


def square_root(x):
    return lax.while_loop(
        lambda y: jnp.max(jnp.abs(y * y - x)) > 1e-3, lambda y: (y + x / y) / 2, x
    )


def heat(u):
    return lax.fori_loop(
        0, 50, lambda _, u: u.at[1:-1].set(u[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])), u
    )


def clipped(grads, limit):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return lax.cond(
        norm > limit, lambda g: jax.tree.map(lambda x: x * limit / norm, g), lambda g: g, grads
    )


def layers():
    return [(normal(m, n) / 16, normal(n)) for m, n in ((256, 128), (128, 128), (128, 10))]


def labelled_rows():
    return normal(2000, 20), jnp.sign(normal(2000))


CASES = [
    Case("jax", selu, lambda: (normal(200_000),)),
    Case("jax", predict, lambda: (layers(), normal(64, 256))),
    Case(
        "jax", update, lambda: (layers(), normal(64, 256), jax.nn.one_hot(jnp.arange(64) % 10, 10))
    ),
    Case("jax", logistic_gradient, lambda: (normal(20), *labelled_rows())),
    Case("jax", logistic_hessian, lambda: (normal(20), *labelled_rows())),
    Case("jax", convolved, lambda: (normal(32, 1000), normal(9))),
    Case("jax", recurrent, lambda: (normal(32, 32) / 8, normal(32, 8), normal(32), normal(50, 8))),
    Case("jax", square_root, lambda: (positive(5000),)),
    Case("jax", heat, lambda: (normal(2000),)),
    Case("jax", clipped, lambda: ({"w": normal(128, 128), "b": normal(128)}, jnp.float32(1.0))),
]
