"""Operations that run at once where their axis is cut, as plain JAX does them: factorisations,
windows, convolutions, reshapes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize

N = 11
Matrix = Float[Array, "n 3"]
Vector = Float[Array, "n"]


def by_qr(a, b):
    q, upper = jnp.linalg.qr(2 * a)
    return jax.scipy.linalg.solve_triangular(upper, q.T @ b)


def by_svd(a, b):
    u, s, v = jnp.linalg.svd(jnp.sin(a), full_matrices=False)
    return v.T @ ((u.T @ b) / s)


def by_lstsq(a, b):
    return jnp.linalg.lstsq(a, b)[0]


def tridiagonal(a, b):
    solved = jax.lax.linalg.tridiagonal_solve(a[:, 0], 4 + b, a[:, 1], b[:, None])
    return jnp.cumsum(solved)


def lu_of_rows(a, b):
    return jax.lax.linalg.lu(a + b[:, None])[0]


def convolved(a, b):
    return jnp.convolve(2 * b, a[:3, 0], "same") ** 2


def convolved_with_itself(a, b):
    return jnp.convolve(jnp.sin(b), a[:, 1], "full")


def averages(a, b):
    return jax.lax.reduce_window(jnp.sin(b), 0.0, jax.lax.add, (2,), (2,), "VALID") ** 2


def maxima(a, b):
    window = (3, 1), (1, 1), "SAME"
    return jax.lax.reduce_window(jnp.sin(a) * b[:, None], -jnp.inf, jax.lax.max, *window)


def of_all_before(a, b):
    return jax.lax.reduce_window(b, 0.0, jax.lax.add, (b.shape[0],), (1,), "SAME")


def flattened(a, b):
    return (jnp.sin(a).T * b).reshape(-1) * 2


BODIES = (
    by_qr,
    by_svd,
    by_lstsq,
    tridiagonal,
    convolved,
    convolved_with_itself,
    averages,
    maxima,
    of_all_before,
    flattened,
)


def data():
    rng = np.random.default_rng(3)
    return (
        rng.normal(size=(N, 3)).astype(np.float32),
        rng.normal(size=N).astype(np.float32),
    )


@pytest.mark.rest
@pytest.mark.parametrize("body", BODIES)
def test_the_result_and_gradient_are_those_of_plain_jax(body):
    """In chunks of 4, with a rest."""

    def loss(a: Matrix, b: Vector) -> Float[Array, ""]:
        return (body(a, b) ** 2).sum()

    def values(a: Matrix, b: Vector):
        return body(a, b)

    a, b = data()
    got, want = optimize(chunk={"n": 4})(values)(a, b), jax.jit(values)(a, b)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    value, slopes = optimize(chunk={"n": 4})(loss).value_and_grad(a, b)
    want, along = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(a, b)
    np.testing.assert_allclose(value, want, rtol=1e-5)
    for name, each in zip("ab", along, strict=True):
        scale = np.abs(each).max()
        np.testing.assert_allclose(slopes[name], each, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.rest
def test_lu_of_a_tall_matrix_is_that_of_plain_jax():
    """To the bits. (JAX's derivative of it makes a square matrix of the axis, which is refused.)"""

    def f(a: Matrix, b: Vector):
        return lu_of_rows(a, b)

    a, b = data()
    np.testing.assert_array_equal(optimize(chunk={"n": 4})(f)(a, b), jax.jit(f)(a, b))


@pytest.mark.rest
def test_the_plan_says_what_is_there_as_a_whole():
    """11 rows of 3 numbers twice: the matrix, which is made, and its orthogonal factor."""

    def f(a: Matrix, b: Vector):
        return by_qr(a, b)

    said = " ".join(str(optimize(chunk={"n": 4})(f).plan(*data())).split())
    assert "are there as a whole, for `geqrf`" in said or "as a whole, for `qr`" in said
