"""Symmetric colouring of Hessians: each element at its own place or at its mirror image, and only
where the symmetry is known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jitney import lazy_derivatives
from jitney._sparsity.colours.colouring import has_symmetric_hessian, star_scheme
from jitney._sparsity.pattern import Pattern
from tests._examples import examples


def arrow(x):
    return jnp.sum(x[1:] ** 2 * x[0]) + jnp.sum(jnp.sin(x))


def grid(x):
    u = x.reshape(8, 8)
    return (
        jnp.sum((u[1:] - u[:-1]) ** 4) + jnp.sum((u[:, 1:] - u[:, :-1]) ** 4) + jnp.sum(jnp.exp(u))
    )


def band(x):
    return jnp.sum(x[2:] * x[1:-1] ** 2 * x[:-2])


@jax.custom_jvp
def half(x):
    """The values are those of the sum of x[i] x[i + 1]; what its rule says has no symmetric
    Hessian.
    """
    return jnp.sum(x[1:] * x[:-1])


@half.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return half(x), jnp.sum(t[1:] * x[:-1])


def point(size):
    return jnp.asarray(np.random.default_rng(size).normal(size=size), jnp.float32)


@pytest.mark.core("arrow-2")
@pytest.mark.parametrize(("fn", "passes"), [(arrow, 2), (grid, 6), (band, 5)])
def test_hessians_are_those_of_jax(fn, passes):
    """An arrow takes 2 passes where columns take all 64, a grid 6 instead of 7, and a band what its
    columns take.
    """
    x = point(64)
    hessian = lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).hessian
    np.testing.assert_allclose(hessian(x), jax.hessian(fn)(x), rtol=1e-4, atol=1e-4)
    assert f"coloured over reverse: {passes} forward passes" in str(hessian.plan(x))


def test_sparse_hessians_store_what_the_structure_has():
    """And not the mirror images besides."""
    x = point(64)
    got = lazy_derivatives(wrt="x", sparse=True)(lambda x: arrow(x)).hessian(x)
    assert got.nse == 64 + 2 * 63
    np.testing.assert_allclose(got.todense(), jax.hessian(arrow)(x), rtol=1e-4, atol=1e-4)


@pytest.mark.rest
def test_a_rule_of_ones_own_keeps_columns_apart():
    """Its second derivatives need not be symmetric, and are what the rule says."""
    x = point(24)
    got = lazy_derivatives(wrt="x", mode="coloured")(lambda x: half(x)).hessian(x)
    want = jax.hessian(half)(x)
    assert not np.allclose(want, want.T)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    "fn",
    [
        half,
        jax.nn.relu,
        lambda x: jnp.sum(x**x),
        lambda x: jax.lax.cond(x[0] > 0, half, arrow, x),
        lambda x: jax.jit(half)(x),
    ],
    ids=["rule", "rule in JAX", "power", "branch", "call"],
)
def test_symmetry_is_not_known_of_rules_and_of_what_is_odd_at_a_point(fn):
    """Wherever in the program they stand."""
    assert not has_symmetric_hessian(jax.make_jaxpr(fn)(point(6)))


MATRICES = st.tuples(
    st.integers(1, 14), st.integers(0, 2**31), st.sampled_from([0.1, 0.3, 0.6])
).map(lambda t: np.random.default_rng(t[1]).random((t[0], t[0])) < t[2])


PLACES = np.arange(9)
STRUCTURES = {
    "one zero": np.zeros((1, 1), bool),
    "one": np.ones((1, 1), bool),
    "zeros": np.zeros((5, 5), bool),
    "diagonal": np.eye(6, dtype=bool),
    "ones": np.ones((5, 5), bool),
    "a pair": PLACES[:3, None] - PLACES[:3] == 2,  # and no diagonal
    "arrow": (PLACES[:, None] == PLACES) | (PLACES == 0),
    "path": PLACES[:, None] - PLACES == 1,
    "ring": (PLACES[:, None] - PLACES) % 9 == 1,
    "band": abs(PLACES[:, None] - PLACES) <= 2,
    "grid": (abs(PLACES[:, None] // 3 - PLACES // 3) + abs(PLACES[:, None] % 3 - PLACES % 3)) <= 1,
    "two sides": (PLACES[:, None] < 4) & (PLACES >= 4),
}


@settings(max_examples=200, deadline=None)
@given(MATRICES)
@examples(*({"half": half} for half in STRUCTURES.values()))
def test_every_element_is_alone_in_its_pass(half):
    """Of a random symmetric matrix, by what the passes give of it: sums over the columns of a
    colour.
    """
    pattern = half | half.T
    matrix = np.where(pattern, 1.0 + np.arange(pattern.size).reshape(pattern.shape), 0.0)
    matrix = matrix + matrix.T
    rows, columns = np.nonzero(pattern)
    scheme = star_scheme(Pattern.of_pairs(rows, columns, *pattern.shape), np.inf)
    assert scheme is not None
    passes = matrix @ (scheme.colours[:, None] == np.arange(scheme.count))
    got = np.where(
        scheme.mirrored,
        passes[columns, scheme.colours[rows]],
        passes[rows, scheme.colours[columns]],
    )
    np.testing.assert_array_equal(got, matrix[rows, columns])
    assert scheme.count <= len(matrix)


@pytest.mark.rest
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**31), st.integers(4, 24))
@example(seed=0, count=4)
@example(seed=2, count=24)
def test_hessians_of_random_sparse_functions(seed, count):
    """Sums of products of pairs of elements, a hub among them."""
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 16, (2, count))
    a[: count // 3] = 3

    def fn(x):
        return jnp.sum(jnp.sin(x[a]) * x[b] ** 2)

    x = point(16)
    got = lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).hessian(x)
    np.testing.assert_allclose(got, jax.hessian(fn)(x), rtol=1e-4, atol=1e-4)
