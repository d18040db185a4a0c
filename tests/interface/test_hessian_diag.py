"""`f.hessian_diag`: the diagonal of `jax.hessian`, without its other entries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import lazy_derivatives, optimize
from jitney.errors import DerivativeError

WIDE = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def mixed(x: Float[Array, "rows k"]) -> Float[Array, ""]:
    """A function whose Hessian is full."""
    return jnp.sum(jnp.sin(x)) ** 2 + jnp.sum(x[:, 0] ** 3)


def diagonal(fn, x):
    return jnp.diag(jax.hessian(fn)(x).reshape(x.size, x.size)).reshape(x.shape)


@pytest.mark.parametrize("rows", [0, 1, 2, 4])
def test_it_is_the_diagonal_of_the_hessian(rows):
    """Few elements one by one, many as a batch, and none."""
    x = WIDE[:rows]
    got = lazy_derivatives(wrt="x")(mixed).hessian_diag(x)
    np.testing.assert_allclose(got, diagonal(mixed, x), rtol=1e-5, atol=1e-5)


def test_its_sum_is_the_laplacian():
    """1/r is harmonic; exp(a x) sin(b y) has a closed form."""
    at = np.array([0.3, -0.4, 0.9])
    with jax.enable_x64(True):
        potential = lazy_derivatives(lambda at: 1 / jnp.linalg.norm(at))
        assert abs(float(jnp.sum(potential.hessian_diag(at, wrt="at")))) < 1e-12
        wave = lazy_derivatives(lambda at: jnp.exp(2 * at[0]) * jnp.sin(3 * at[1]))
        got = wave.hessian_diag(at[:2], wrt="at")
        value = np.exp(2 * 0.3) * np.sin(3 * -0.4)
        np.testing.assert_allclose(got, [4 * value, -9 * value], rtol=1e-12)


def test_a_tree_keeps_its_structure():
    """With None where there is nothing to differentiate."""

    def energy(state):
        return jnp.sum(state["x"] ** 3) * state["y"] ** 2

    state = {"x": jnp.arange(3.0), "y": jnp.float32(2.0), "steps": jnp.arange(2)}
    got = optimize(energy).hessian_diag(state, wrt="state")
    np.testing.assert_allclose(got["x"], 6 * state["x"] * 4)
    np.testing.assert_allclose(got["y"], 2 * 9.0)
    assert got["steps"] is None


def test_a_backward_pass_alone_is_used_once():
    """`jax.custom_vjp` has no forward pass; a `while` loop has no backward one."""

    @jax.custom_vjp
    def cube(x):
        return x**3

    cube.defvjp(lambda x: (x**3, x), lambda x, g: (3 * x**2 * g,))
    x = jnp.array([1.0, 2.0])
    got = optimize(lambda x: jnp.sum(cube(x)) * x[0]).hessian_diag(x, wrt="x")
    np.testing.assert_allclose(got, [12.0, 12.0], rtol=1e-6)

    def looped(x):
        return jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * s[1]), (0, x))[1]

    got = optimize(lambda x: jnp.sum(looped(x))).hessian_diag(x, wrt="x")
    np.testing.assert_allclose(got, 12 * x**2, rtol=1e-6)


def test_it_is_padded():
    """With the numbers of each exact size; a refusal would be a warning."""
    f = optimize(pad={"rows": [4]})(mixed)
    for rows in (3, 4):
        x = WIDE[:rows]
        got = f.hessian_diag(x, wrt="x")
        np.testing.assert_allclose(got, diagonal(mixed, x), rtol=1e-4, atol=1e-5)


def test_it_is_traced_inside_of_another_program():
    """As in the loss of an equation: `vmap` over places, a gradient around it."""

    def height(scale: Float[Array, ""], at: Float[Array, "2"]) -> Float[Array, ""]:
        return jnp.sin(scale * at[0]) * at[1] ** 2

    skin = lazy_derivatives(wrt="at")(height)
    places = jnp.asarray(WIDE[:, :2])

    def loss(scale, hessian):
        return jnp.mean(jax.vmap(lambda at: hessian(scale, at))(places) ** 2)

    def by_jax(scale, at):
        return jnp.trace(jax.hessian(height, 1)(scale, at))

    got = jax.value_and_grad(loss)(1.5, lambda scale, at: jnp.sum(skin.hessian_diag(scale, at)))
    np.testing.assert_allclose(got, jax.value_and_grad(loss)(1.5, by_jax), rtol=1e-5)


def test_the_plan_says_how():
    """And that there is no mixed derivative."""
    lines = str(lazy_derivatives(mixed).hessian_diag.plan(WIDE))
    assert "forward over forward" in lines
    assert "no mixed derivatives" in " ".join(lines.split())


def test_more_than_one_number_is_an_error():
    with pytest.raises(DerivativeError, match="`hessian_diag` is of one real number"):
        optimize(lambda x: x**2).hessian_diag(WIDE)
