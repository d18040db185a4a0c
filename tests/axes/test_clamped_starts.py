"""Positions out of bounds of a slice whose start is a number at exact size and an argument in a
padded program. Reference: JAX operation by operation, since XLA's own fold of a slice of a slice
does not clamp.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

import jitney

Vector = Float[Array, "n"]
Position = Int[Array, ""]


def half(x):
    return lax.dynamic_slice(
        x,
        (len(x) // 4,),
        (len(x) // 2,),
    )


def six(x):
    return lax.dynamic_slice(
        x,
        (len(x) // 4,),
        (6,),
    )


READERS = {
    "set": lambda a, i: a.at[i].set(1.0),
    "add": lambda a, i: a.at[i].add(1.0),
    "max": lambda a, i: a.at[i].max(1e6),
    "element": lambda a, i: lax.dynamic_index_in_dim(
        a,
        i,
    ),
    "clipped": lambda a, i: a.at[i].get(mode="clip"),
    "filled": lambda a, i: a.at[i].get(
        mode="fill",
        fill_value=-7.0,
    ),
    "window": lambda a, i: lax.dynamic_slice(
        a,
        (i,),
        (2,),
    ),
    "update": lambda a, i: lax.dynamic_update_slice(
        a,
        jnp.ones(2, a.dtype),
        (i,),
    ),
    "slice of a slice": lambda a, i: lax.dynamic_slice(
        lax.dynamic_slice(
            a,
            (i,),
            (4,),
        ),
        (i + 1,),
        (2,),
    ),
}


@pytest.mark.parametrize("slice_of", [half, six])
@pytest.mark.parametrize("name", READERS)
@pytest.mark.core("set-half")
def test_a_position_out_of_bounds_of_a_slice_is_clamped_or_dropped(
    name,
    slice_of,
):
    def fn(
        x: Vector,
        i: Position,
    ):
        return READERS[name](
            slice_of(x),
            i,
        )

    program = jitney.optimize(pad={"n": "pow2"})(fn)
    for n in (32, 29):
        x = np.arange(
            1000,
            1000 + n,
            dtype=np.float32,
        )
        for i in (3, n // 2, 100, 2**31 - 1, -100):
            with jax.disable_jit():
                want = fn(
                    jnp.asarray(x),
                    jnp.asarray(i, jnp.int32),
                )
            got = program(
                x,
                np.int32(i),
            )
            np.testing.assert_array_equal(got, want, err_msg=f"{n} {i}")
    assert program.stats.compiles == 1


def test_a_position_that_is_a_number_is_dropped_too():
    """The hunt found it: the operand and the position are numbers at exact size."""

    def fn(x: Vector):
        return half(x).at[np.uint8(100)].set(1)

    x = np.arange(
        32,
        dtype=np.float32,
    )
    np.testing.assert_array_equal(
        jitney.optimize(pad={"n": "pow2"})(fn)(x),
        np.arange(8, 24),
    )


def test_starts_of_64_bits_without_a_sign():
    """NumPy's integers hold no bound of theirs."""

    def fn(x: Vector, i: Shaped[Array, ""]):
        return lax.dynamic_slice(six(x), (i,), (2,))

    with jax.enable_x64(True):
        x = np.arange(24.0)
        got = jitney.optimize(pad={"n": "pow2"})(fn)(x, np.uint64(2**63))
    np.testing.assert_array_equal(got, x[10:12])
