"""A NaN stays in maxima and minima where XLA's library for large arrays drops it: from 4,096
elements on, which a padded array has at sizes where the exact one has a few. Reference: NumPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Shaped

import jitney
from jitney._axes.carriers.extremes import ArgExtreme
from jitney._axes.monoids import MONOIDS

BUCKET = {"n": [5000]}


def has_nan(x):
    return np.isnan(np.asarray(x, np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_extremes_along_a_padded_axis_keep_a_nan(dtype):
    @jitney.optimize(pad=BUCKET)
    def f(x: Shaped[Array, "n"]):
        return jnp.max(x), jnp.min(x)

    with jax.enable_x64(dtype == "float64"):
        x = jnp.arange(3, dtype=dtype)
        assert [float(end) for end in f(x)] == [2.0, 0.0]
        for at in range(3):
            assert all(map(has_nan, f(x.at[at].set(jnp.nan))))
    assert f.stats.compiles == 1


@pytest.mark.parametrize("of_all", [jnp.max, jnp.min])
def test_an_extreme_along_another_axis_of_a_padded_array_keeps_a_nan(of_all):
    @jitney.optimize(pad=BUCKET)
    def f(x: Float[Array, "n four"]):
        return of_all(x, axis=1)

    x = jnp.ones((3, 4)).at[1, 2].set(jnp.nan)
    np.testing.assert_array_equal(has_nan(f(x)), [False, True, False])


@pytest.mark.parametrize("padded", [True, False])
def test_an_extreme_over_mapped_elements_keeps_a_nan(padded):
    def f(x: Float[Array, "n"]):
        return jax.vmap(lambda y: lax.pmax(y, "rows"), axis_name="rows")(x)

    f = jitney.optimize(pad=BUCKET)(f) if padded else jitney.optimize(f)
    assert has_nan(f(jnp.ones(3).at[1].set(jnp.nan))).all()


def test_lax_reduce_to_a_maximum_keeps_a_nan():
    @jitney.optimize(pad=BUCKET)
    def f(x: Float[Array, "n"]):
        return lax.reduce(x, np.float32(0.5), lax.max, (0,))

    assert has_nan(f(jnp.ones(3).at[1].set(jnp.nan)))
    assert f(jnp.zeros(3)) == 0.5


def test_an_extreme_in_a_loop_over_padded_rows_keeps_a_nan():
    @jitney.optimize(pad=BUCKET)
    def f(x: Float[Array, "n"]):
        return lax.scan(lambda most, k: (jnp.maximum(most, jnp.max(x * k)), None), 0.0, jnp.ones(2))

    assert has_nan(f(jnp.ones(3).at[1].set(jnp.nan))[0])


def test_rows_of_a_vmapped_padded_function_keep_their_own_nans():
    @jitney.optimize(pad={"n": [8]})
    def f(x: Float[Array, "n"]):
        return jnp.max(x)

    rows = jnp.ones((600, 3)).at[5, 1].set(jnp.nan)
    np.testing.assert_array_equal(np.flatnonzero(has_nan(jax.vmap(f)(rows))), [5])


def test_argmax_in_chunks_finds_the_first_nan_of_long_rows():
    @jitney.optimize(chunk={"n": 1})
    def f(x: Float[Array, "n 5000"]):
        return jnp.argmax(x, axis=0)

    x = np.ones((3, 5000), np.float32)
    x[1, 7] = x[2, 7] = np.nan
    np.testing.assert_array_equal(f(jnp.asarray(x)), np.argmax(x, axis=0))


def test_merged_extremes_of_devices_find_the_first_nan_of_long_rows():
    index, best = np.array([[1] * 5000, [3] * 5000]), np.ones((2, 5000), np.float32)
    best[1, 7] = np.nan
    merged, extreme = jax.jit(ArgExtreme(MONOIDS["max"]).merge)([jnp.asarray(index), best])
    expected = np.ones(5000, int)
    expected[7] = 3
    np.testing.assert_array_equal(merged, expected)
    np.testing.assert_array_equal(np.flatnonzero(has_nan(extreme)), [7])
