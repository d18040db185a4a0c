"""Coloured Jacobians and Hessians of padded programs: one program for a bucket, and the numbers of
dense ones at each true size.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float

from jitney import JitneyWarning, lazy_derivatives, optimize
from jitney.errors import AxisError

SIZES = (20, 17, 32)


def heat(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.pad(x, 1)[2:] - 2 * x + jnp.pad(x, 1)[:-2] + 0.1 * jnp.exp(x)


def ring(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.roll(x, 1) * x + jnp.roll(x, -1)


def arrow(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.concatenate([jnp.sum(x**2)[None], x[1:] * x[0]])


def grid(x: Float[Array, "n 4"]) -> Float[Array, "n 4"]:
    y = jnp.pad(x, 1)
    return y[2:, 1:-1] + y[:-2, 1:-1] + y[1:-1, 2:] + y[1:-1, :-2] - 4 * x**2


def behind(x: Float[Array, "3 n"]) -> Float[Array, "3 n"]:
    return jax.nn.softmax(x**2, axis=0)


def reduced(x: Float[Array, "n 20"]) -> Float[Array, "n"]:
    return jnp.sum(x**2, axis=1)


def decided(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """By floats that one program may round up and another down; and by a number of the size."""
    n = x.shape[0]
    return jnp.where(jnp.arange(n, dtype=jnp.float32) * 0.1 < 0.3, jnp.roll(x, 1), x**2) * (
        1 - n / (n + 1)
    )


CASES = {
    "heat": (heat, ("n",)),
    "ring": (ring, ("n",)),
    "arrow": (arrow, ("n",)),
    "grid": (grid, ("n", 4)),
    "axis behind": (behind, (3, "n")),
    "reduced": (reduced, ("n", 20)),
    "decided by floats": (decided, ("n",)),
}


def at(dims, n, seed=0):
    shape = [n if dim == "n" else dim for dim in dims]
    return jnp.asarray(np.random.default_rng([seed, n]).normal(size=shape), jnp.float32)


def padded(fn, what="jacobian", **options):
    return getattr(
        lazy_derivatives(**{"wrt": "x", "mode": "coloured", **options})(
            optimize(pad={"n": "pow2"})(fn)
        ),
        what,
    )


@pytest.mark.rest
@pytest.mark.parametrize("case", CASES)
def test_one_program_has_the_coloured_jacobians_of_a_bucket(case):
    """At each true size it gives what JAX's dense Jacobian gives there, and what ours gives without
    padding, to the bit.
    """
    fn, dims = CASES[case]
    jacobian, exact = (
        padded(fn),
        lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian,
    )
    assert "coloured: " in str(jacobian.plan(at(dims, SIZES[0])))
    for n in SIZES:
        x = at(dims, n)
        got = jacobian(x)
        np.testing.assert_allclose(got, jax.jacfwd(fn)(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(got, exact(x))
    assert jacobian.stats.compiles + jacobian.stats.persistent_hits <= 1


@pytest.mark.rest
@pytest.mark.parametrize(
    ("n", "how"), [(100, "forward: dense passes"), (300, "coloured: 3 forward passes at each size")]
)
def test_structure_is_read_at_each_size_where_that_pays(n, how):
    """A trace of each size costs more than a hundred dense passes; the plan says what is done under
    padding.
    """
    jacobian = padded(heat, mode="auto")
    assert how in " ".join(str(jacobian.plan(sizes={"n": n})).split())
    np.testing.assert_allclose(
        jacobian(at("n", n)), jax.jacfwd(heat)(at("n", n)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.rest
def test_hessians_of_a_bucket_are_coloured():
    """By forward passes over the backward one."""

    def energy(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum((x[1:] - x[:-1]) ** 4)

    hessian = padded(energy, "hessian")
    assert "coloured over reverse: 3 forward passes at each size" in str(hessian.plan(at("n", 20)))
    for n in SIZES[:2]:
        np.testing.assert_allclose(
            hessian(at("n", n)), jax.hessian(energy)(at("n", n)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.rest
def test_several_arguments_and_results_have_blocks():
    """Along the axis or not, numbers among them."""

    def fn(x: Float[Array, "n"], z: Float[Array, "2"]) -> dict:
        return {"a": x**2 * z[0], "b": jnp.sum(x), "c": jnp.diff(x)}

    jacobian = padded(fn, wrt=("x", "z"))
    for n in SIZES[:2]:
        x, z = at("n", n), at((2,), n)
        want = jax.jacfwd(fn, (0, 1))(x, z)
        got = jacobian(x, z)
        for name, block in want.items():
            np.testing.assert_allclose(got["x"][name], block[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(got["z"][name], block[1], rtol=1e-5, atol=1e-6)
    assert "coloured" in str(jacobian.plan(x, z))


def test_derivatives_that_are_nan_spread_as_without_padding():
    """To the elements that share their pass and to the zeros of their row, and not from what is
    behind the true size.
    """

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sqrt(x) + jnp.roll(x, 1)

    jacobian, exact = (
        padded(fn),
        lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian,
    )
    for n in SIZES[:2]:
        np.testing.assert_array_equal(jacobian(at("n", n)), exact(at("n", n)))


@pytest.mark.rest
def test_a_size_of_another_structure_has_its_own_derivative():
    """At 19 each row depends on all of x, elsewhere on its own element alone."""

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.where(jnp.asarray(x.shape[0]) == 19, jnp.tanh(x) * jnp.sum(x), x**2)

    jacobian = padded(fn)
    for size in (20, 19, 18, 19):
        x = at("n", size)
        np.testing.assert_allclose(jacobian(x), jax.jacfwd(fn)(x), rtol=1e-5, atol=1e-6)


def test_a_body_that_fails_at_other_sizes_of_its_bucket_runs_exact():
    """How many passes there are is read at the largest sizes, where such a body raises: a warning
    with its line, and the right numbers.
    """

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x**2 * jnp.arange(20.0)

    with pytest.warns(
        JitneyWarning, match=r"fn\) cannot be traced at size 32: mul got incompatible shapes"
    ):
        got = padded(fn)(at("n", 20))
    np.testing.assert_allclose(got, np.diag(2 * np.asarray(at("n", 20)) * np.arange(20)), rtol=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("mode", ["auto", "reverse"])
def test_two_padded_axes_of_which_either_may_be_the_longer(mode):
    """Which dense passes are cheaper is not the same at all sizes: it is asked for, and padded once
    it is said.
    """

    def fn(x: Float[Array, "n k"]) -> Float[Array, "n"]:
        return jnp.tanh(x).sum(1) ** 2

    x = at("nn", 5)[:, :3]
    jacobian = lazy_derivatives(wrt="x", mode=mode)(
        optimize(pad={"n": "pow2", "k": "pow2"})(fn)
    ).jacobian
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = jacobian(x)
    assert ['say mode="forward" or mode="reverse"' in str(warning.message) for warning in told] == [
        True
    ] * (mode == "auto")
    np.testing.assert_allclose(got, jax.jacfwd(fn)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.rest
def test_sparse_arrays_are_not_padded():
    """How many elements they store is not a size; they are sparse at exact size, with a warning,
    and the plan says why.
    """
    jacobian = padded(heat, sparse=True)
    with pytest.warns(JitneyWarning, match="makes a sparse Jacobian"):
        got = jacobian(at("n", 20))
    assert isinstance(got, BCOO)
    np.testing.assert_allclose(got.todense(), jax.jacfwd(heat)(at("n", 20)), rtol=1e-5, atol=1e-6)
    assert "at exact size: makes a sparse Jacobian" in str(jacobian.plan(sizes={"n": 20}))


@pytest.mark.rest
def test_an_outer_transform_takes_dense_passes():
    """Each size is not traced there, so no structure is known."""
    jacobian = padded(heat)
    got = jax.grad(lambda x: jnp.sum(jacobian(x) ** 2))(at("n", 20))
    want = jax.grad(lambda x: jnp.sum(jax.jacfwd(heat)(x) ** 2))(at("n", 20))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.rest
@settings(max_examples=4, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.sampled_from(["roll", "shift"])), min_size=1, max_size=3
    ),
    st.integers(17, 32),
)
@example(steps=[(0, "roll")], n=17)
@example(steps=[(-3, "shift"), (3, "shift")], n=32)
@example(steps=[(1, "roll"), (-2, "shift"), (3, "roll")], n=25)
def test_random_stencils_at_random_sizes(steps, n):
    """Products with neighbours, in a ring or with zeros beyond the ends."""

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        out = jnp.sin(x)
        for by, how in steps:
            out = (
                out
                * (
                    jnp.roll(x, by)
                    if how == "roll"
                    else jnp.pad(x, 3)[3 + by : x.shape[0] + 3 + by]
                )
                + x
            )
        return out

    jacobian = padded(fn)
    for size in (24, n):
        np.testing.assert_allclose(
            jacobian(at("n", size)), jax.jacfwd(fn)(at("n", size)), rtol=1e-4, atol=1e-4
        )


def test_what_a_jacobian_cannot_do_in_chunks_names_the_function():
    """The Jacobian has the cut axis twice; what is said of it points at no line of ours."""

    def fn(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.sin(x) * x

    with pytest.raises(AxisError) as raised:
        lazy_derivatives(wrt="x")(optimize(chunk={"n": 8})(fn)).jacobian(at("n", 20))
    assert "test_padded_jacobians.py" in str(raised.value)
    assert "derive.py" not in str(raised.value)
