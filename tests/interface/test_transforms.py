"""Programs under JAX's and Equinox's transformations, and inside one another: the numbers of the
plain function.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from tests._tracing import count_traces


def plain(w: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sin(w * x))


OPTIONS = [
    {},
    {"remat": True},
    {"donate": "w"},
    {"precision": "f32"},
    {"compiler": "fast"},
    {"contracts": False},
]
W, X = np.linspace(0.1, 1, 4, dtype=np.float32), np.linspace(1, 2, 4, dtype=np.float32)
OUTER = {
    "jit": lambda f: jax.jit(f)(W, X),
    "jit with keywords": lambda f: jax.jit(lambda w, x: f(x=x, w=w))(W, X),
    "grad": lambda f: jax.grad(f)(W, X),
    "value and grad": lambda f: jax.value_and_grad(f, argnums=(0, 1))(W, X),
    "grad of grad": lambda f: jax.grad(lambda w: jnp.sum(jax.grad(f)(w, X)))(W),
    "jacfwd": lambda f: jax.jacfwd(f)(W, X),
    "hessian": lambda f: jax.hessian(f)(W, X),
    "jvp": lambda f: jax.jvp(f, (W, X), (X, W)),
    "vjp": lambda f: jax.vjp(f, W, X)[1](np.float32(1)),
    "vmap": lambda f: jax.vmap(f, (None, 0))(W, np.stack([X, W])),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f), (None, 0))(W, np.stack([X, W])),
    "scan": lambda f: jax.lax.scan(lambda c, x: (c + f(W, x), c), np.float32(0), np.stack([X, W])),
    "cond": lambda f: jax.lax.cond(True, f, lambda w, x: jnp.zeros(()), W, X),
    "while": lambda f: jax.lax.while_loop(
        lambda c: c < 10, lambda c: c + jnp.abs(f(W, X)) + 1, np.float32(0)
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f))(W, X),
    "linearize": lambda f: jax.linearize(f, W, X)[1](X, W),
    "eval_shape": lambda f: jax.eval_shape(f, W, X).shape,
    "filter_jit": lambda f: eqx.filter_jit(f)(W, X),
    "filter_grad": lambda f: eqx.filter_grad(f)(jnp.asarray(W), X),
    "filter_vmap": lambda f: eqx.filter_vmap(f, in_axes=(None, 0))(W, np.stack([X, W])),
    "make_jaxpr": lambda f: jax.make_jaxpr(f)(W, X).out_avals[0].shape,
    "no jit": lambda f: _without_jit(f),
}


def _without_jit(f):
    with jax.disable_jit():
        return f(W, X)


@pytest.mark.core(
    "grad of grad-{}",
    "vmap of grad-{}",
    "jvp-{}",
    "vjp-{}",
    "scan-{}",
    "cond-{}",
    "while-{}",
    "jit-{}",
    "no jit-{}",
    "linearize-{}",
    "filter_vmap-{}",
    "make_jaxpr-{}",
    "eval_shape-{}",
    "grad-*",
    "vmap-*",
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("outer", OUTER)
def test_the_numbers_are_those_of_the_plain_function(outer, options):
    """Under each transformation, with each option."""

    def body(w: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
        return plain(w, x)

    got, want = OUTER[outer](optimize(**options)(body)), OUTER[outer](plain)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)


def test_a_program_inside_another_is_traced_once():
    """Called fifty times in a body, it stays one sub-program."""
    inner = count_traces(plain)
    fast = optimize(inner)

    @optimize
    def outer(w, x):
        return sum(fast(w, x) for _ in range(50))

    np.testing.assert_allclose(outer(W, X), 50 * plain(W, X), rtol=1e-5)
    assert inner.traces == 1


def test_a_program_that_calls_itself():
    """By a static depth."""

    @optimize
    def power(x, depth: int):
        return x if depth == 0 else x * power(x, depth - 1)

    np.testing.assert_allclose(power(X, 3), X**4, rtol=1e-5)


def test_mapped_programs_under_vmap():
    """The option's axis inside, JAX's outside."""

    @optimize(vmap="b")
    def f(w: Float[Array, "n"], x: Float[Array, "n"]) -> Float[Array, ""]:
        return plain(w, x)

    x = np.stack([np.stack([X, W])] * 3)
    np.testing.assert_allclose(
        jax.vmap(f, (None, 0))(W, x), [[plain(W, b) for b in a] for a in x], rtol=1e-5
    )


@pytest.mark.rest
def test_a_step_of_training():
    """A module through `filter_value_and_grad` of a program, inside a program that gives its
    buffers up.
    """
    model = eqx.nn.MLP(4, 1, 8, 1, key=jax.random.key(0))

    @optimize
    def loss(model, x, y):
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    @optimize(donate="model")
    def step(model, x, y):
        value, grads = eqx.filter_value_and_grad(loss)(model, x, y)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.05 * g, grads)), value

    x, y = jax.random.normal(jax.random.key(1), (32, 4)), jnp.ones((32, 1))
    values = []
    for _ in range(20):
        model, value = step(model, x, y)
        values.append(float(value))
    assert values[-1] < values[0] / 2
    assert step.stats.traces == 1
