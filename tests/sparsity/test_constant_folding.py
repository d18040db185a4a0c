"""Jacobians of programs whose indices, masks and factors are made of literals: values are JAX's, in
the types of the program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jitney import lazy_derivatives
from jitney._sparsity.dependence import dependence
from jitney._sparsity.fold_decisions import fold_decisions
from jitney._sparsity.pattern import Pattern
from tests._arrays import array
from tests._examples import examples

N = 24
V = array(np.random.default_rng(0).normal(size=N) + 0.1)


def whole():
    return jnp.arange(N, dtype=jnp.int32)


def real():
    return jnp.arange(N, dtype=jnp.float32)


def as_int(x, dtype=np.int32):
    return lax.convert_element_type(x, dtype)


def coloured(fn, x=V):
    return np.asarray(lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian(x))


def places(fn, x=V):
    """How many elements the pattern of a function has, of the program as it is run."""
    program = fold_decisions(jax.make_jaxpr(lambda x: fn(x))(x), [x])
    forward = jax.make_jaxpr(
        lambda x, t: jax.jvp(jax.extend.core.jaxpr_as_fun(program), (x,), (t,))[1]
    )(x, x)
    (found,) = dependence(forward, [None, Pattern.identity(0, x.size, x.size)])
    return found.count


INDICES = {
    "float32 products": lambda: as_int(jnp.square(real() * 0.3) * 100) % N,
    "float32 products, then tens": lambda: as_int(real() * 0.57 * 10) % N,
    "beyond int32": lambda: as_int(real() * 3e9) // 2**27,
    "infinity": lambda: as_int(jnp.ones(N) / (real() * 0)) // 2**27,
    "NaN": lambda: as_int(jnp.zeros(N) / (real() * 0)),
    "negative to unsigned": lambda: as_int(as_int(real() * -1.0, np.uint8)) % N,
    "beyond uint8": lambda: as_int(as_int(real() * 100, np.uint8)) % N,
    "unsigned quotient": lambda: as_int(whole().astype(jnp.uint8) // np.uint8(2)),
    "unsigned quotient by zero": lambda: (
        as_int(lax.div(whole().astype(jnp.uint8), jnp.zeros(N, jnp.uint8))) % N
    ),
    "quotient by zero": lambda: lax.div(whole(), jnp.zeros(N, jnp.int32)) + 3,
    "least int by -1": lambda: (
        lax.div(jnp.full(N, -(2**31), jnp.int32), jnp.full(N, -1, jnp.int32)) // 2**28 + 9
    ),
    "remainder of negatives": lambda: lax.rem(-whole(), jnp.full(N, 5, jnp.int32)) + 10,
    "remainder by zero": lambda: lax.rem(whole(), jnp.zeros(N, jnp.int32)),
    "unsigned wraps": lambda: as_int(np.uint8(3) - whole().astype(jnp.uint8)) % N,
    "narrow product wraps": lambda: as_int(whole().astype(jnp.int8) * np.int8(100)) % N,
    "shifts beyond the width": lambda: lax.shift_left(whole(), whole() * 2) % N,
    "logical shift": lambda: (
        as_int(lax.shift_right_logical(-whole() - 1, jnp.full(N, 27, jnp.int32))) % N
    ),
    "arithmetic shift": lambda: (
        lax.shift_right_arithmetic(-whole() * 8, jnp.full(N, 2, jnp.int32)) % N
    ),
    "bits": lambda: lax.population_count(whole()) ^ np.int32(1),
    "bfloat16": lambda: (
        as_int(jnp.arange(N).astype(jnp.bfloat16) * np.asarray(100.3, jnp.bfloat16)) % N
    ),
    "float16": lambda: as_int(jnp.arange(N).astype(jnp.float16) / np.float16(3) * np.float16(3)),
    "sorted": lambda: jnp.argsort(-((real() - 9.3) ** 2)).astype(jnp.int32),
    "sums": lambda: jnp.cumsum(whole().astype(jnp.uint8), dtype=jnp.uint8).astype(jnp.int32) % N,
}


@pytest.mark.core("sums", "negative to unsigned", "remainder of negatives")
@pytest.mark.parametrize("case", INDICES)
def test_indices_are_those_of_jax(case):
    """What a gather reads, against JAX's own Jacobian; each row has one element, so the positions
    are known.
    """

    def fn(x):
        return x[INDICES[case]()] * 2

    np.testing.assert_array_equal(coloured(fn), jax.jit(jax.jacfwd(fn))(V))
    assert places(fn) == N


DTYPES = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["drop", "clip", "fill"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_arrays_of_every_type_read_and_write_where_jax_does(dtype, mode):
    """Around both ends of the type and of an array that is longer than narrow types count."""
    ends = np.iinfo(dtype)
    at = np.unique(
        np.asarray(
            [0, 1, 7, ends.max - 1, ends.max, ends.min, max(ends.min, -1), max(ends.min, -300)]
        ).astype(dtype)
    )
    x = jnp.asarray(
        np.random.default_rng(1).normal(size=100 if dtype is np.int8 else 300), jnp.float32
    )

    def fn(x):
        index = jnp.asarray(at)
        return (
            jnp.take(x, index, mode="fill" if mode == "drop" else mode, fill_value=0)
            + x.at[index].add(x[:1] * 2, mode=mode)[0]
        )

    np.testing.assert_array_equal(coloured(fn, x), jax.jit(jax.jacfwd(fn))(x))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
def test_slices_at_positions_of_every_type(dtype):
    """Both ends of signed types, which are clamped; of unsigned ones what lies inside, since XLA
    takes larger constants for negative.
    """
    for start in (
        (90, 0) if np.iinfo(dtype).min == 0 else (90, np.iinfo(dtype).max, np.iinfo(dtype).min)
    ):

        def fn(x, start=start):
            return lax.dynamic_slice(x, (dtype(start),), (5,)) * 2, lax.dynamic_update_slice(
                x, x[:5] * 3, (dtype(start),)
            )

        x = jnp.asarray(np.random.default_rng(1).normal(size=100), jnp.float32)
        got = lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian(x)
        jax.tree.map(np.testing.assert_array_equal, got, jax.jit(jax.jacfwd(fn))(x))


def test_unsigned_64_bit_positions_do_not_wrap():
    """2**64 - 1 is beyond the end, not before the start."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(1).normal(size=9))
        at = np.asarray([2, 2**64 - 1, 2**63], np.uint64)

        def fn(x):
            return jnp.take(x, jnp.asarray(at), mode="clip")

        np.testing.assert_array_equal(coloured(fn, x), jax.jit(jax.jacfwd(fn))(x))


def test_float64_programs_are_computed_in_float64():
    """Known floats in a scope with x64."""
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(1).normal(size=N))

        def fn(x):
            return x[(jnp.square(jnp.arange(N, dtype=jnp.float64) * 0.3) * 100).astype(int) % N]

        np.testing.assert_array_equal(coloured(fn, x), jax.jit(jax.jacfwd(fn))(x))


MASKS = {
    "comparison": lambda: (
        jnp.square(real() * 0.1) * 100 == jnp.round(jnp.square(real() * 0.1) * 100)
    ),
    "whole part": lambda: jnp.floor(real() * 0.29 * 10) % 2 == 0,
    "finite": lambda: jnp.isfinite(1 / (real() - 5)),
    "truth": lambda: (jnp.square(real() * 0.7) * 100 - 196).astype(bool),
    "small integers": lambda: (whole().astype(jnp.int8) * np.int8(11)) > 0,
}
MOST = {"while": N * N, "cond": 2 * N}
INSIDE = {
    "alone": lambda body: body,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scan": lambda body: lambda x: lax.scan(lambda c, _: (body(c), None), x, length=1)[0],
    "while": lambda body: (
        lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, body(c[1])), (0, x))[1]
    ),
    "cond": lambda body: lambda x: lax.cond(x[0] > 0, body, lambda x: x * 2, x),
    "vmap": lambda body: lambda x: jax.vmap(body)(x[None])[0],
}


@pytest.mark.sweep
@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("case", MASKS)
def test_masks_of_floats_are_followed_exactly(case, inside):
    """Against JAX, in calls, loops and branches too. A known mask takes one of two elements in each
    row; a loop may go on.
    """

    def body(x):
        return jnp.where(MASKS[case](), x * 3, jnp.roll(x, 1) * 5)

    fn = INSIDE[inside](body)
    np.testing.assert_array_equal(coloured(fn), jax.jit(jax.jacfwd(fn))(V))
    assert places(fn) <= MOST.get(inside, N)


def test_what_compilers_round_apart_is_as_it_is_compiled():
    """XLA may make `0.7 * 10` first, so that a compiled index is another one (jax 0.10); the
    pattern and the program have the same.
    """

    def index():
        return as_int(real() * 0.7 * 10) % N

    def fn(x):
        return x[index()] * 2

    np.testing.assert_array_equal(coloured(fn), jax.jit(jax.jacfwd(fn))(V))
    assert places(fn) == N


def nonfinite(fn):
    """A Jacobian by one direction after the other, none of which is compiled into a choice."""
    return np.stack([jax.jvp(fn, (V,), (jnp.zeros(N).at[i].set(1.0),))[1] for i in range(N)], 1)


ODD = {
    "division by zero": lambda x: x / jnp.where(whole() == 3, 0.0, 2.0),
    "times infinity": lambda x: x * jnp.where(whole() == 3, jnp.inf, 2.0),
    "times NaN": lambda x: x * jnp.where(whole() == 3, jnp.nan, 2.0),
    "root of zero": lambda x: jnp.sqrt(jnp.where(whole() == 3, x - x, x**2)),
    "zero times an infinite derivative": lambda x: (
        jnp.where(whole() == 3, 0.0, 2.0) * jnp.sqrt(x - x)
    ),
    "matrix of infinities": lambda x: jnp.where(jnp.eye(N) == 1, jnp.inf, 0.0) @ x,
    "mask of an infinity in a band": lambda x: (
        jnp.asarray(np.arange(N) < 12, jnp.float32) * ((x + jnp.roll(x, 1)) / (real() - 15))
    ),
    "mask of an infinity": lambda x: (
        jnp.asarray(np.arange(N) < 12, jnp.float32) * (x / jnp.where(whole() == 15, 0.0, 1.0))
    ),
}


@pytest.mark.core("root of zero")
@pytest.mark.parametrize("case", ODD)
def test_infinite_derivatives_are_never_zero(case):
    """0 times infinity is NaN in a plain Jacobian, and no zero in a coloured one; what is finite is
    equal.
    """
    got, want = coloured(ODD[case]), nonfinite(ODD[case])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.rest
def test_infinite_derivatives_are_never_zero_in_reverse():
    """There it is a column that one infinite derivative makes NaN."""

    def fn(x):
        return (x / jnp.where(whole() == 3, 0.0, 2.0)).reshape(4, 6).sum(0)

    with jax.disable_jit():
        want = jax.jacrev(fn)(V)
    got = coloured(fn)
    assert np.isnan(got[:, 3]).sum() == np.isnan(want[:, 3]).sum() == 5
    np.testing.assert_array_equal(np.delete(got, 3, 1), np.delete(np.asarray(want), 3, 1))


def test_known_values_are_computed_in_an_outer_trace():
    """Under `jax.jit` and `jax.vmap`, and with `jax.debug_nans`, which is not about what is
    known.
    """

    def fn(x):
        return jnp.where(
            jnp.isnan((real() - 5) / (real() - 5)), 0.0, x[INDICES["float32 products"]()]
        )

    jacobian = lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x)).jacobian
    want = np.asarray(jax.jit(jax.jacfwd(fn))(V))
    np.testing.assert_array_equal(jax.jit(jacobian)(V), want)
    np.testing.assert_array_equal(jax.vmap(jacobian)(V[None])[0], want)
    with jax.debug_nans(True):
        np.testing.assert_array_equal(
            lazy_derivatives(wrt="x", mode="coloured")(lambda x: fn(x) * 1.0).jacobian(V), want
        )


STEPS = {
    "add": lambda a, b: a + b,
    "times": lambda a, b: a * b,
    "quotient": lax.div,
    "remainder": lax.rem,
    "left": lax.shift_left,
    "right": lax.shift_right_logical,
    "largest": jnp.maximum,
    "different": lambda a, b: a ^ b,
    "choose": lambda a, b: jnp.where(a < b, a, b * b),
    "by float32": lambda a, b: as_int(a.astype(jnp.float32) * np.float32(0.37), b.dtype),
    "by float16": lambda a, b: as_int(a.astype(jnp.float16) + b.astype(jnp.float16), b.dtype),
    "by bfloat16": lambda a, b: as_int(jnp.sqrt(a.astype(jnp.bfloat16)), b.dtype),
    "by infinity": lambda a, b: as_int(a.astype(jnp.float32) / b.astype(jnp.float32), b.dtype),
    "narrow": lambda a, b: a.astype(jnp.int8).astype(b.dtype),
    "unsigned": lambda a, b: a.astype(jnp.uint16).astype(b.dtype),
    "sum": lambda a, b: jnp.cumsum(a, dtype=a.dtype),
    "order": lambda a, b: jnp.argsort(a).astype(b.dtype),
}
USES = {
    "read": lambda x, i: x[i],
    "fill": lambda x, i: jnp.take(x, i, mode="fill", fill_value=0),
    "clip": lambda x, i: jnp.take(x, i, mode="clip"),
    "add": lambda x, i: x.at[i].add(x * 2, mode="drop"),
    "slice": lambda x, i: lax.dynamic_slice(x, (i[1],), (4,)) * x[:4],
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:4] ** 2, (i[2],)),
    "mask": lambda x, i: jnp.where(i > 3, x, jnp.roll(x, 1)),
    "factor": lambda x, i: x * (i % np.asarray(3, i.dtype)).astype(x.dtype),
    "matrix": lambda x, i: (jnp.eye(x.size) * i.astype(x.dtype)) @ x,
    "groups": lambda x, i: jax.ops.segment_sum(x, i, num_segments=x.size),
}


@pytest.mark.rest
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(-5, 300)), min_size=1, max_size=4
    ),
    st.sampled_from(sorted(USES)),
    st.sampled_from([5, 12]),
)
@examples(
    # it wraps around
    {
        "dtype": np.uint8,
        "steps": [("add", 250), ("times", 3), ("right", 1)],
        "use": "read",
        "size": 12,
    },
    # the sign is shifted in
    {"dtype": np.int8, "steps": [("left", 5), ("quotient", -3)], "use": "fill", "size": 5},
    {
        "dtype": np.int16,
        "steps": [("remainder", 0), ("add", -5), ("narrow", 0)],
        "use": "clip",
        "size": 5,
    },
    {
        "dtype": np.uint32,
        "steps": [("add", -5), ("unsigned", 0), ("different", 7)],
        "use": "add",
        "size": 12,
    },
    {
        "dtype": np.int32,
        "steps": [("by float32", 0), ("by bfloat16", 0), ("order", 0)],
        "use": "slice",
        "size": 12,
    },
    {"dtype": np.uint16, "steps": [("by float16", 300), ("sum", 0)], "use": "update", "size": 5},
    {"dtype": np.int32, "steps": [("by infinity", 0)], "use": "mask", "size": 12},  # and a NaN
    {
        "dtype": np.int16,
        "steps": [("choose", 3), ("largest", -5), ("left", 15)],
        "use": "factor",
        "size": 12,
    },
    {"dtype": np.int8, "steps": [("right", 300)], "use": "matrix", "size": 5},  # beyond the width
    {
        "dtype": np.uint8,
        "steps": [("quotient", 3), ("remainder", 300)],
        "use": "groups",
        "size": 12,
    },
)
def test_any_known_values(dtype, steps, use, size):
    """Random arithmetic of literals: what is not JAX's Jacobian is wrong."""

    def fn(x):
        known = jnp.arange(size, dtype=jnp.int32).astype(dtype)
        for name, constant in steps:
            known = STEPS[name](known, jnp.full(size, np.asarray(constant).astype(dtype)))
        return USES[use](x, known)

    x = V[:size]
    np.testing.assert_allclose(coloured(fn, x), jax.jit(jax.jacfwd(fn))(x), rtol=1e-5, atol=1e-6)
