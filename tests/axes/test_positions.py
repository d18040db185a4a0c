"""Positions of every integer type in arrays that are longer than the type counts, against `jax.jit`
at exact size.

The reference has the same positions in int32. XLA itself counts in the type of the positions in a
scatter, and drops what is written behind element 43 of 300 by int8; JAX wraps 64-bit positions
where it fills. What is documented is what is computed here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jitney._axes import Refused, demand, plan_passes, run_chunked, run_padded, trace

N, HIGH = 300, 512
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
MODES = ["clip", "fill", "promise_in_bounds"]
NUMBERS = lax.GatherDimensionNumbers(
    offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,)
)
INTO = lax.ScatterDimensionNumbers(
    update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)


def at(dtype):
    """Positions at the ends of the type, of int8, and of the array; beyond it too, where the type
    has such numbers.
    """
    info = np.iinfo(dtype)
    found = [
        0,
        5,
        43,
        100,
        126,
        127,
        128,
        200,
        254,
        255,
        256,
        299,
        300,
        511,
        512,
        -1,
        -5,
        -100,
        -300,
        info.min,
        info.max,
    ]
    return np.array([i for i in found if info.min <= i <= info.max], dtype)


def read(x, i):
    """Every way to read: one position, several, a window; under `vmap` and `map` too."""

    def windows(k):
        return lax.dynamic_slice(x, (k,), (3,))

    # JAX adds the size to negative starts in their own type while it traces, at exact size too
    front = lax.max(i, jnp.zeros_like(i))
    gathers = [lax.gather(x, i[:, None], NUMBERS, (1,), mode=mode) for mode in ("clip", "fill")]
    return [
        *gathers,
        jax.vmap(windows)(front),
        lax.map(windows, front),
        lax.map(lambda k: lax.dynamic_index_in_dim(x, k, keepdims=False), front),
    ]


def inside(x, i):
    """What is promised to be inside."""
    return [
        lax.gather(x, i[:, None], NUMBERS, (1,), mode="promise_in_bounds"),
        lax.scatter(x, i[:1, None], x[:1], INTO),
    ]


def write(x, i):
    """Every way to write; those out of the array are dropped or clipped."""
    updates = jnp.arange(1.0, 1 + i.shape[0], dtype=x.dtype)
    kinds = (lax.scatter_add, lax.scatter_min, lax.scatter_max, lax.scatter_mul)
    found = [
        kind(x, i[:, None], updates, INTO, mode=mode) for kind in kinds for mode in ("clip", "fill")
    ]
    one = [
        lax.map(lambda k, mode=mode: lax.scatter(x, k[None], x[7], INTO, mode=mode).sum(), i)
        for mode in ("clip", "fill")
    ]
    return [
        *found,
        *one,
        lax.map(
            lambda k: lax.dynamic_update_slice(x, jnp.zeros(3, x.dtype), (k,)),
            lax.max(i, jnp.zeros_like(i)),
        ),
    ]


def known(i):
    """The same positions in int32; what is beyond it is beyond the array."""
    info = np.iinfo(np.int32)
    return np.array([min(max(int(k), info.min), info.max) for k in i], np.int32)


def padded(fn, avals, arrays, n=N, high=HIGH, behind=np.nan):
    """The results of a function at the true size, with NaN (or what is given) behind it; arguments
    that have the axis come as `None` in their shape.
    """
    ranges = {"d0": (n - 40, high)}
    jaxpr = trace(
        lambda *given: jax.tree.leaves(fn(*given)), lambda sizes: avals(sizes["d0"]), ranges
    ).jaxpr
    demand(jaxpr, ranges)
    wide = [
        np.concatenate(
            [x, np.full((high - n, *x.shape[1:]), behind if x.dtype.kind == "f" else 1, x.dtype)]
        )
        if aval.shape != x.shape
        else x
        for x, aval in zip(arrays, avals(high), strict=True)
    ]
    return jax.jit(lambda n, *given: run_padded(jaxpr, given, {"d0": high}, {"d0": n}))(
        np.int32(n), *wide
    )


def cut(x, want):
    return np.asarray(x)[tuple(slice(0, size) for size in want.shape)]


@pytest.mark.core("int8-*", "uint16-write")
@pytest.mark.parametrize("fn", [read, write, inside], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_of_every_type(fn, dtype):
    """At its ends, where they were once taken for ends of the array, and beyond the array."""
    x, i = np.arange(1.0, N + 1, dtype=np.float32), at(dtype)
    i = i[(i >= 0) & (i < N)] if fn is inside else i

    def avals(n):
        return [jax.ShapeDtypeStruct((n,), x.dtype), jax.ShapeDtypeStruct(i.shape, i.dtype)]

    for got, want in zip(padded(fn, avals, [x, i]), jax.jit(fn)(x, known(i)), strict=True):
        np.testing.assert_array_equal(cut(got, want), want)


def test_what_is_read_beyond_the_end_is_filled_in_and_not_what_stands_there():
    """JAX fills in NaN; here a number stands behind the true size, from its first element on."""
    x, i = (
        np.arange(1.0, N + 1, dtype=np.float32),
        np.array([0, N - 1, N, N + 1, HIGH - 1, HIGH], np.int32),
    )

    def avals(n):
        return [jax.ShapeDtypeStruct((n,), x.dtype), jax.ShapeDtypeStruct(i.shape, i.dtype)]

    (got,) = padded(lambda x, i: jnp.take(x, i, mode="fill"), avals, [x, i], behind=5.0)
    np.testing.assert_array_equal(got, np.array([1, N, np.nan, np.nan, np.nan, np.nan], np.float32))


@pytest.mark.core("int8", "uint16")
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_positions_as_rows_into_as_many(dtype):
    """Padding is written nowhere: the mark of no place was once a place of a narrow type."""
    x = np.arange(1.0, N + 1, dtype=np.float32)
    i = np.resize(at(dtype), N).astype(dtype)

    def body(x, i):
        gathered = lax.gather(x, i[:, None], NUMBERS, (1,), mode="clip")
        return (
            gathered,
            lax.scatter_add(x, i[:, None], x, INTO, mode="fill"),
            lax.scatter_add(x, i[:, None], x, INTO, mode="clip"),
        )

    def avals(n):
        return [jax.ShapeDtypeStruct((n,), x.dtype), jax.ShapeDtypeStruct((n,), i.dtype)]

    for got, want in zip(padded(body, avals, [x, i]), jax.jit(body)(x, known(i)), strict=True):
        np.testing.assert_array_equal(cut(got, want), want)


@pytest.mark.rest
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_positions_of_64_bits(dtype):
    """Those beyond 32 bits are beyond the array, at either end."""
    x = np.arange(1.0, N + 1, dtype=np.float32)
    info = np.iinfo(dtype)
    i = np.array(
        [
            0,
            299,
            300,
            2**31 - 1,
            2**31,
            2**32,
            2**32 + 5,
            info.max,
            info.min,
            *([-1, -(2**32) + 5] if info.min else []),
        ],
        dtype,
    )

    def avals(n):
        return [jax.ShapeDtypeStruct((n,), x.dtype), jax.ShapeDtypeStruct(i.shape, i.dtype)]

    with jax.enable_x64(True):
        for fn in (read, write):
            for got, want in zip(padded(fn, avals, [x, i]), jax.jit(fn)(x, known(i)), strict=True):
                np.testing.assert_array_equal(cut(got, want), want)


@pytest.mark.core("-15", "-3")
@pytest.mark.parametrize("start", [-25, -15, -10, -3, 0, 4, 9, 25])
def test_a_start_along_another_axis_is_counted_from_the_end_once(start):
    """A start that is still before the array then is clamped, as at exact size."""
    x = np.arange(60.0 * 10, dtype=np.float32).reshape(60, 10)

    def body(x, k):
        return lax.dynamic_slice(x, (1, k), (2, 3)), lax.dynamic_update_slice(
            x, jnp.zeros((2, 3), x.dtype), (1, k)
        )

    def avals(n):
        return [jax.ShapeDtypeStruct((n, 10), x.dtype), jax.ShapeDtypeStruct((), np.int32)]

    for got, want in zip(
        padded(body, avals, [x, np.int32(start)], 60, 64),
        jax.jit(body)(x, np.int32(start)),
        strict=True,
    ):
        np.testing.assert_array_equal(cut(got, want), want)


@pytest.mark.core("float16")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "uint8", "int16"])
def test_positions_in_chunks_are_those_of_the_whole(dtype):
    """Rounded once where the type does not have the number, and wrapped as the whole is."""
    n, chunk = 5000, 999

    def body(x):
        return [lax.iota(jnp.dtype(dtype), x.shape[0]), x]

    ranges = {"d0": (n, n)}
    jaxpr = trace(
        body, lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], ranges
    ).jaxpr
    passes = plan_passes(jaxpr, "d0", ranges)
    x = np.zeros(n, np.float32)
    got, _ = jax.jit(lambda x: run_chunked(passes, [x], n, chunk))(x)
    np.testing.assert_array_equal(got, jax.jit(body)(x)[0])


@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_places_in_a_type_that_cannot_count_the_axis_are_refused(name):
    """XLA compares wrapped places among equal elements: neither padding nor chunks can know which
    is first.
    """
    find = lambda x: [getattr(jax.lax, name)(x, 0, np.dtype(np.uint8))]
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.uint8)]
    demand(trace(find, avals, {"d0": (129, 256)}).jaxpr, {"d0": (129, 256)})
    with pytest.raises(Refused, match="cannot count them"):
        demand(trace(find, avals, {"d0": (257, 512)}).jaxpr, {"d0": (257, 512)})
