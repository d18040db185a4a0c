"""Lengths that are new in a known bucket: what the contract says of them, and their results."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import jitney
from jitney.errors import ContractError

Vector = Float[Array, "n"]


def weighted(scale: Float[Array, ""], x: Float[Array, "n 2"], w: Vector, at: Int[Array, "k"]):
    """A sum, and arrays along the axis and twice as long."""
    z = scale * x * w[:, None]
    return jnp.sum(z) + jnp.sum(w[at]), z, jnp.concatenate([w, w])


def rows(lengths, counts, seed):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=(n, 2)).astype(np.float32) for n in lengths]
    w = [rng.normal(size=n).astype(np.float32) for n in lengths]
    return (
        x,
        w,
        [rng.integers(0, n, k).astype(np.int32) for n, k in zip(lengths, counts, strict=True)],
    )


@pytest.mark.core
def test_new_lengths_of_known_buckets_give_what_rows_alone_give():
    """Two axes, results of one and of two lengths of a row, sizes 0 and 1 among them."""
    f = jitney.optimize(vmap="row", pad={"n": "pow2", "k": "pow2"})(weighted)
    scale = np.float32(1.5)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        lengths, counts = rng.integers(1, 17, 12), rng.integers(0, 9, 12)
        x, w, at = rows(lengths, counts, seed)
        sums, each, twice = f(scale, x, w, at)
        for i in range(12):
            z = scale * x[i].astype(np.float64) * w[i][:, None]
            np.testing.assert_allclose(sums[i], z.sum() + w[i][at[i]].sum(), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(each[i], z, rtol=1e-6)
            np.testing.assert_array_equal(twice[i], np.concatenate([w[i], w[i]]))


@pytest.mark.core
def test_new_lengths_that_disagree_are_refused():
    """The arrays of a row agree on their axis in each call, not in the first one alone."""
    f = jitney.optimize(vmap="row", pad={"n": "pow2", "k": "pow2"})(weighted)
    x, w, at = rows([5, 6, 7], [3, 4, 3], 0)
    f(np.float32(1), x, w, at)
    longer, weights, again = rows([6, 8, 7], [4, 3, 3], 1)
    with pytest.raises(ContractError, match="row 1: axis 'n' has two sizes, 8 from 'x' and 7"):
        f(np.float32(1), longer, [weights[0], weights[2], weights[2]], again)


def wide(x: Float[Array, "n 2"], y: Float[Array, "n+1"], z: Float[Array, "#n"]):
    return jnp.sum(x) * jnp.sum(y) + jnp.sum(z)


def test_expressions_and_fixed_sizes_are_checked_for_new_lengths():
    """An axis of 2, one that is one longer, and one that may be 1."""
    f = jitney.optimize(vmap="row", pad={"n": "pow2"})(wide)

    def call(n, beside, width=2, last=None):
        x, y = np.ones((n, width), np.float32), np.ones(beside, np.float32)
        return f([x, x], [y, y], [np.ones(last or n, np.float32)] * 2)

    np.testing.assert_allclose(call(5, 6), [65, 65])
    np.testing.assert_allclose(call(6, 7), [90, 90])
    np.testing.assert_allclose(call(7, 8, last=1), [113, 113])
    for n, beside, width, last in ((7, 7, 2, 7), (8, 9, 3, 8), (8, 9, 2, 7)):
        with pytest.raises(ContractError):
            call(n, beside, width, last)


def shared(x: Vector, y: Vector):
    return jnp.sum(x * y)


def test_a_new_length_fits_what_all_rows_share():
    """An array along the padded axis that all rows share bounds it to one size."""
    f = jitney.optimize(vmap={"row": {"x": 0}}, pad={"n": "pow2"})(shared)
    y = np.arange(5, dtype=np.float32)
    np.testing.assert_allclose(f([y, y], y), [30, 30])
    with pytest.raises(ContractError, match="two sizes"):
        f([np.ones(6, np.float32)] * 2, y)
