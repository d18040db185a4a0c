"""Loops and checks whose length or outcome depends on rows: they see those of the data only, never
padding.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

V = Float[Array, "n"]
# 5 of 8; their differences are new numbers, and zeros behind what is valid
X = np.array([1, 3, 2, 5, 4], np.float32)
MANY = 100  # turns; without end for the user, but a test shall fail, not hang


def doubled(y):
    """It ends for no number at or below zero."""
    value, turns = jax.lax.while_loop(
        lambda c: (c[0] < 1) & (c[1] < MANY), lambda c: (2 * c[0], c[1] + 1), (y / 8, 0)
    )
    return eqx.error_if(value, turns == MANY, "it does not end")


def checked(y):
    return eqx.error_if(y, ~(y > 0), "not above zero")


def nested(y):
    return jax.lax.scan(lambda c, _: (doubled(c) / 4, c), y, None, length=3)[0]


def through(y):
    """A branch, which is a selection under `vmap`, around a loop."""
    return jax.lax.cond(y > 1, doubled, lambda y: y, y)


BODIES = [doubled, checked, nested, through]
OVER = {
    "map": lambda f, y: jax.lax.map(f, y),
    "vmap": lambda f, y: jax.vmap(f)(y),
    "vmap of a map": lambda f, y: jax.vmap(lambda row: jax.lax.map(f, row), in_axes=1, out_axes=1)(
        jnp.stack([y, y + 1], 1)
    ),
    "map of a vmap": lambda f, y: jax.lax.map(jax.vmap(f), jnp.stack([y, y + 1], 1)),
    "scan": lambda f, y: jax.lax.scan(lambda c, y: (c + f(y), c), jnp.zeros(()), y),
    "scan from the end": lambda f, y: jax.lax.scan(
        lambda c, y: (c - y, f(y)), jnp.zeros(()), y, reverse=True
    ),
    "jit of a checkpoint": lambda f, y: jax.jit(jax.checkpoint(jax.vmap(f)))(y),
}


def program(body, over):
    def fn(x: V):
        return OVER[over](body, jnp.abs(jnp.diff(x)))

    return fn


@pytest.mark.core("map-doubled")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("over", OVER)
def test_rows_of_the_data_only(body, over):
    """To the bit, and padded."""
    fn = program(body, over)
    f = jitney.optimize(fn, pad={"n": "pow2"})
    for got, want in zip(jax.tree.leaves(f(X)), jax.tree.leaves(jax.jit(fn)(X)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert f.stats.padding["n"] == pytest.approx(0.6)  # 5 to 8


@pytest.mark.core("map")
@pytest.mark.parametrize("over", ["map", "vmap", "scan"])
def test_an_error_in_a_row_of_the_data_is_raised(over):
    """Two equal neighbours differ by zero."""
    f = jitney.optimize(program(checked, over), pad={"n": "pow2"})
    with pytest.raises(Exception, match="not above zero"):
        jax.block_until_ready(f(np.array([1, 2, 2, 3, 5], np.float32)))


@pytest.mark.rest
def test_a_gradient_goes_through_a_map_with_a_check():
    """From outside, through the padded program; rows that do not exist have no part in it."""
    f = jitney.optimize(program(lambda y: jnp.sqrt(checked(y)), "map"), pad={"n": "pow2"})
    plain = program(lambda y: jnp.sqrt(y), "map")
    got = jax.grad(lambda x: jnp.sum(f(x)))(jnp.asarray(X))
    np.testing.assert_allclose(
        got, jax.grad(lambda x: jnp.sum(plain(x)))(jnp.asarray(X)), rtol=1e-6
    )


@pytest.mark.rest
def test_an_empty_scan_runs_no_row():
    """Two rows have no second difference, so there is no row to stand for one."""

    def fn(x: V):
        return jax.lax.scan(lambda c, y: (c + doubled(y), y), jnp.zeros(()), jnp.diff(x, n=2) ** 2)

    f = jitney.optimize(fn, pad={"n": "pow2"})
    for x in (X[:2], X[:3], X):
        for got, want in zip(jax.tree.leaves(f(x)), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.rest
def test_keys_that_come_out_of_a_map_with_a_check():
    """A row that is not run gives a key nonetheless, which nobody sees."""

    def fn(x: V):
        return jax.random.key_data(
            jax.lax.map(lambda y: jax.random.key(checked(y).astype(np.int32)), jnp.abs(jnp.diff(x)))
        )

    np.testing.assert_array_equal(jitney.optimize(fn, pad={"n": "pow2"})(X), jax.jit(fn)(X))
