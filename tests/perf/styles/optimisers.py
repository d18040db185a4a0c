"""In the style of optax's documentation: parameters as a dict, a state, and a step."""

import jax
import jax.numpy as jnp
import optax

from .case import Case, normal

ADAM = optax.adam(1e-3)
CHAIN = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1e-2, momentum=0.9))
ADAMW = optax.adamw(optax.cosine_decay_schedule(1e-3, 1000))


def squares(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def deep(params, x):
    for layer in params.values():
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.mean(x**2)


def adam_step(params, state, x, y):
    loss, grads = jax.value_and_grad(squares)(params, x, y)
    updates, state = ADAM.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def momentum_step(params, state, x):
    updates, state = CHAIN.update(jax.grad(deep)(params, x), state, params)
    return optax.apply_updates(params, updates), state


def adamw_step(params, state, x):
    updates, state = ADAMW.update(jax.grad(deep)(params, x), state, params)
    return optax.apply_updates(params, updates), state


def adam_arguments():
    params = {"w": normal(64, 8) / 8, "b": normal(8)}
    return params, ADAM.init(params), normal(512, 64), normal(512, 8)


def deep_arguments(optimiser):
    params = {
        f"layer{i}": {"w": normal(32, 32, seed=i) / 8, "b": normal(32, seed=i)} for i in range(6)
    }
    return params, optimiser.init(params), normal(64, 32)


CASES = [
    Case("optax", adam_step, adam_arguments),
    Case("optax", momentum_step, lambda: deep_arguments(CHAIN)),
    Case("optax", adamw_step, lambda: deep_arguments(ADAMW)),
]
