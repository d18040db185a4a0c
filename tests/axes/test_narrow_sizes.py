"""Positions of narrow types that count from the end of an axis, where the first call of a bucket is
at a size that the type holds. Reference: `jax.jit` at each size.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int, Shaped

import jitney
from jitney.errors import AxisError

SIZES = (10, 100, 127, 128, 129, 200, 255, 256, 300, 511)


def last(x: Shaped[Array, "n"], i: Int[Array, ""]):
    del i
    return x[np.int8(-1)]


def last_of_uint8(x: Shaped[Array, "n"], i: Int[Array, ""]):
    del i
    return jnp.flip(x)[np.uint8(3)]


def traced(x: Shaped[Array, "n"], i: Int[Array, ""]):
    return x[i]


def taken(x: Shaped[Array, "n"], i: Int[Array, ""]):
    return jnp.take(x, i, mode="clip"), x.at[i].add(1)


def tail(x: Shaped[Array, "n"], i: Int[Array, ""]):
    del i
    return jnp.sum(x[np.int8(-3) :])


def rolled(x: Shaped[Array, "n"], i: Int[Array, ""]):
    return jnp.sum(jnp.roll(x, -3) * x), jax.lax.dynamic_index_in_dim(x, i)


@pytest.mark.parametrize("fn", [last, last_of_uint8, traced, taken, tail, rolled])
@pytest.mark.parametrize("options", [{"pad": {"n": [512]}}, {"chunk": {"n": 50}}], ids=str)
@pytest.mark.core("{'pad': {'n': [512]}}-last")
def test_each_size_is_as_plain_jax_has_it(fn, options):
    """Or is refused; where plain JAX says that the number does not fit, so does jitney."""
    program, plain = jitney.optimize(fn, **options), jax.jit(fn)
    i = np.int8(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.JitneyWarning)
        for n in SIZES:
            x = np.arange(n, dtype=np.int32)
            try:
                want = plain(x, i)
            except OverflowError:
                with pytest.raises(OverflowError, match="out of bounds for int8"):
                    program(x, i)
                continue
            try:
                got = program(x, i)
            except AxisError:
                assert "chunk" in options
                continue
            jax.tree.map(np.testing.assert_array_equal, got, want)


def test_sizes_that_fit_share_a_program():
    """The first trace finds where the bucket ends; sizes above are refused with their line."""
    program = jitney.optimize(last, pad={"n": [512]})
    i = np.int8(0)
    for n in (10, 20, 127):
        assert int(program(np.arange(n, dtype=np.int32), i)) == n - 1
    assert program.stats.traces == 2
    with pytest.warns(jitney.JitneyWarning, match="counts positions in int8"):
        program(np.arange(200, dtype=np.int32), i)
