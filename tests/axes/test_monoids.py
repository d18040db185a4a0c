"""What adds up, in every dtype that JAX has: padded and in chunks, against `jax.jit` at exact size;
long sums against NumPy's float64.
"""

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from jitney._axes import Refused, demand, plan_passes, run_chunked, run_padded, trace
from jitney._axes.rules.order import ordered_keys

N, HIGH, CHUNK = 6, 8, 2
LOW = [
    "bfloat16",
    "float16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
]
FLOATS = [*LOW, "float8_e5m2fnuz", "float4_e2m1fn", "float32"]
INTS = ["int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
RNG = np.random.default_rng(0)


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def traced(fn, dtype, low, high):
    ranges = {"d0": (low, high)}
    flat = trace(
        lambda x: jax.tree.leaves(fn(x)),
        lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), dtype)],
        ranges,
    )
    return flat.jaxpr, ranges


def padded(fn, dtype):
    """The function of arrays of N elements, each run with other data behind them."""
    jaxpr, ranges = traced(fn, dtype, N - 1, HIGH)
    demand(jaxpr, ranges)
    run = jax.jit(lambda n, x: run_padded(jaxpr, [x], {"d0": HIGH}, {"d0": n}))

    def cut(x):
        filler = np.resize(x[::-1], HIGH - N).astype(dtype)
        return [
            y[:N] if y.shape[:1] == (HIGH,) else y
            for y in run(np.int32(N), np.concatenate([x, filler]))
        ]

    return cut


def chunked(fn, dtype, n=N, chunk=CHUNK):
    jaxpr, ranges = traced(fn, dtype, n, n)
    passes = plan_passes(jaxpr, "d0", ranges)
    return jax.jit(lambda x: run_chunked(passes, [x], n, chunk))


def whole(fn):
    return jax.jit(lambda x: jax.tree.leaves(fn(x)))


def bits(x):
    """The bits of an array; all NaNs are one."""
    x = np.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            x = np.where(np.isnan(x), np.asarray(np.nan).astype(x.dtype), x)
    return x.dtype, x.tobytes()


def any_bits(dtype):
    """Arrays of all kinds of elements: every bit pattern of a byte, extremes alone, NaNs of both
    signs, infinities, zeros.
    """
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return [
            RNG.integers(int(info.min), int(info.max) + 1, N).astype(dtype),
            *(np.full(N, end, dtype) for end in (info.min, info.max)),
        ]
    if dtype == np.bool_:
        return [np.zeros(N, bool), np.ones(N, bool), np.arange(N) % 2 == 0]
    info = ml_dtypes.finfo(dtype)
    odd = np.asarray(
        [float(info.min), float(info.max), -np.inf, np.inf, np.nan, -np.nan, 0.0, -0.0, 1, -2],
        np.float64,
    )
    with np.errstate(all="ignore"):
        odd = odd.astype(dtype)
    drawn = [RNG.choice(odd, N) for _ in range(8)]
    return [*drawn, *(np.full(N, end, dtype) for end in odd)]


def extremes(x):
    by, row = jnp.arange(x.shape[0]) % 2, x[:, None] if x.ndim == 1 else x
    return (
        lax.reduce_max(row, axes=(0,)),
        lax.reduce_min(row, axes=(0,)),
        lax.cummax(x),
        lax.cummin(x),
        lax.cummax(x, reverse=True),
        lax.cummin(x, reverse=True),
        lax.argmax(x, 0, np.int32),
        lax.argmin(x, 0, np.int32),
        lax.full((2,), lax.reduce_max(x, axes=(0,))).at[by].min(x),
        lax.full((2,), lax.reduce_min(x, axes=(0,))).at[by].max(x),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*FLOATS, *INTS])
def test_extremes_of_every_dtype(name):
    """To the bit, also in types without infinity, of NaNs, infinities, zeros of both signs, and the
    outermost number alone.
    """
    dtype = dtype_of(name)
    exact, ways = whole(extremes), [how(extremes, dtype) for how in (padded, chunked)]
    for x in any_bits(dtype):
        want = [*map(bits, exact(x))]
        for run in ways:
            assert [*map(bits, run(x))] == want


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", [*LOW, "float8_e5m2fnuz", "float8_e8m0fnu", "float32", *INTS[2:], "bool"]
)
def test_largest_of_every_dtype(name):
    """Padding, and what no chunk has filled yet, comes behind NaNs of either sign with any digits,
    as it does in `top_k`.
    """
    dtype = dtype_of(name)

    def body(x):
        return (
            *lax.top_k(x, 3),
            jnp.sort(x),
            *lax.top_k(x[:, None] * 1 if dtype == np.int32 else x, 1),
        )

    ways, want = [how(body, dtype) for how in (padded, chunked)], whole(body)
    more = (
        [RNG.integers(0, 256, N * dtype.itemsize, np.uint8).view(dtype) for _ in range(24)]
        if dtype != np.bool_
        else []
    )
    negative = [np.full(N * dtype.itemsize, 255, np.uint8).view(dtype)] if dtype != np.bool_ else []
    for x in [*more, *negative, *(any_bits(dtype) if name != "float8_e8m0fnu" else [])]:
        for run in ways:
            assert [*map(bits, run(x))] == [*map(bits, want(x))]


@pytest.mark.core("float8_e5m2")
@pytest.mark.parametrize("name", [*LOW, "float8_e5m2fnuz", "float32"])
def test_the_largest_are_found_in_chunks_beside_nan_of_either_sign(name):
    """A NaN with its sign set is the last in the order of `top_k`, from chunk to chunk too; what no
    chunk has filled is behind it.
    """
    dtype = dtype_of(name)
    odd = np.array([1, np.nan, -np.nan, 3, -np.inf, -np.nan, 2], np.float32).astype(dtype)
    run, want = (
        chunked(lambda x: lax.top_k(x, 5), dtype, len(odd)),
        whole(lambda x: lax.top_k(x, 5)),
    )
    for x in (odd, odd[::-1].copy(), np.arange(7).astype(dtype)):
        assert [*map(bits, run(x))] == [*map(bits, want(x))]


@pytest.mark.core("float32")
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_the_keys_of_top_k_on_a_gpu_have_its_order(name):
    """That of CPUs, for any bits: of zeros and NaNs of both signs too."""
    dtype = dtype_of(name)
    unsigned = f"u{dtype.itemsize}"
    bits_of = np.random.default_rng(0).integers(0, 2 ** (8 * dtype.itemsize), 3000, dtype=unsigned)
    odd = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf] * 2, np.float32).astype(dtype)
    x = np.concatenate([bits_of.view(dtype), odd])
    _, want = lax.top_k(x, x.size)
    keys = ordered_keys(jnp.asarray(x))
    np.testing.assert_array_equal(lax.top_k(keys, x.size)[1], want)


def test_padding_of_top_k_is_no_nan_on_a_gpu():
    """Its kernel compares by `>`, so that a NaN spoils the numbers beside it."""
    jaxpr, _ = traced(lambda x: lax.top_k(x, 2), np.dtype(np.float32), N - 1, HIGH)
    made = jax.export.export(
        jax.jit(lambda n, x: run_padded(jaxpr, [x], {"d0": HIGH}, {"d0": n})), platforms=("cuda",)
    )(np.int32(N), np.ones(HIGH, np.float32))
    text = made.mlir_module()
    assert "tensor<8xui32>" in text
    assert "0xFFFFFFFF" not in text


@pytest.mark.rest
def test_the_gradient_of_the_largest_of_a_low_type():
    """It goes to where they are, as at exact size."""
    x = jnp.array([1, 5, 2, 7, 3, 0], jnp.bfloat16)
    jaxpr, _ = traced(lambda x: lax.top_k(x, 2)[0], x.dtype, N - 1, N)
    got = jax.grad(lambda x: run_padded(jaxpr, [x], {"d0": N}, {"d0": jnp.int32(N)})[0].sum())(x)
    np.testing.assert_array_equal(got, np.array([0, 1, 0, 1, 0, 0], jnp.bfloat16))


def totals(x):
    return (
        lax.reduce_sum(x, axes=(0,)),
        lax.reduce_prod(x, axes=(0,)),
        lax.cumsum(x),
        lax.cumprod(x),
        lax.cumsum(x, reverse=True),
        x @ x,
        jnp.zeros(2, x.dtype).at[jnp.arange(x.shape[0]) % 2].add(x),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", INTS[2:])
def test_sums_of_every_integer_wrap(name):
    """As they do in one piece, to the bit."""
    dtype = dtype_of(name)
    exact, ways = whole(totals), [how(totals, dtype) for how in (padded, chunked)]
    for x in any_bits(dtype):
        want = [*map(bits, exact(x))]
        for run in ways:
            assert [*map(bits, run(x))] == want


def test_a_part_of_an_axis_that_is_added_to_keeps_the_sign_of_zero():
    """What is added behind the true part changes no bit: minus zero stays minus zero, which plus
    zero would not leave.
    """
    half = lambda x: x.at[: x.shape[0] // 2].add(x[: x.shape[0] // 2])
    got = padded(half, np.dtype(np.float32))(np.full(N, -0.0, np.float32))
    assert [*map(bits, got)] == [bits(np.full(N, -0.0, np.float32))]


def test_a_sum_of_bfloat16_counts_further_than_bfloat16_does():
    """A thousand ones, one in each chunk: in bfloat16 itself 256 + 1 is 256."""
    run = chunked(lambda x: lax.reduce_sum(x, axes=(0,)), np.dtype(ml_dtypes.bfloat16), 1024, 1)
    assert float(run(np.ones(1024, ml_dtypes.bfloat16))[0]) == 1024


def sums(x):
    one, first = jnp.ones((), x.dtype), jnp.zeros(x.shape[0], np.int32)
    return (
        lax.reduce_sum(x, axes=(0,)),
        x @ jnp.full_like(x, one),
        lax.cumsum(x),
        lax.cumsum(x, reverse=True),
        jnp.zeros(1, x.dtype).at[first].add(x),
        jnp.zeros(1, x.dtype).at[first].subtract(x),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", [1, 300])
@pytest.mark.parametrize("name", LOW)
def test_low_types_accumulate_in_float32(name, chunk):
    """Thousands of equal numbers, of which a low type stops counting: as NumPy has it in float64,
    rounded once.
    """
    dtype, n = dtype_of(name), 512 if name == "float8_e3m4" else 4096
    x = np.full(
        n, min(1.0, 2.0 ** np.floor(np.log2(float(ml_dtypes.finfo(dtype).max) / n)))
    ).astype(dtype)
    total = x.astype(np.float64).cumsum()
    assert total[-1] > 0
    want = [total[-1], total[-1], total, total[::-1], total[-1:], -total[-1:]]
    for got, exact in zip(chunked(sums, dtype, n, chunk)(x), want, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.asarray(exact).astype(dtype))


@pytest.mark.parametrize("name", LOW[:2])
def test_products_and_logarithms_of_sums_accumulate_in_float32(name):
    """A product whose steps all round the same way, and a log-sum-exp of many equal numbers."""
    dtype = dtype_of(name)

    def body(x):
        return lax.reduce_prod(x, axes=(0,)), lax.cumprod(x)[:], lax.cumlogsumexp(x * 0)

    n = 512
    x = np.full(n, 1 + 2.0**-7, dtype)
    powers = np.cumprod(x.astype(np.float64))
    product, products, logs = (np.asarray(y, np.float64) for y in chunked(body, dtype, n, 1)(x))
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(product, powers[-1], rtol=eps)
    np.testing.assert_allclose(products, powers, rtol=eps)
    np.testing.assert_allclose(logs, np.log(np.arange(1, n + 1)), rtol=eps, atol=eps)


@pytest.mark.parametrize("name", ["complex64", "float8_e8m0fnu"])
@pytest.mark.parametrize("fn", [lambda x: lax.reduce_max(x, axes=(0,)), lax.cummin])
def test_extremes_without_an_order_are_refused(name, fn):
    """XLA drops or keeps the NaN of a complex number by the order it goes in, and has no first
    value in float8_e8m0fnu.
    """
    for way in (padded, chunked):
        with pytest.raises(Refused, match="whose NaNs XLA drops or keeps"):
            way(fn, dtype_of(name))


def test_a_matrix_that_is_padded_along_both_axes_is_masked_along_both():
    """The sum and the largest of 5 x 3 numbers in an array of 8 x 4 and any padding, against NumPy;
    the derivative of the sum of squares against twice the numbers.
    """
    ranges = {"d0": (5, 8), "d1": (3, 4)}
    flat = trace(
        lambda x: [jnp.sum(x), jnp.max(x), jax.grad(lambda x: jnp.sum(x**2))(x)],
        lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"], sizes["d1"]), np.float32)],
        ranges,
    )
    demand(flat.jaxpr, ranges)
    x = np.full((8, 4), np.nan, np.float32)
    x[5:, :3], x[:5, 3:] = np.inf, 99
    x[:5, :3] = RNG.normal(size=(5, 3))
    total, largest, slope = run_padded(
        flat.jaxpr, [x], {"d0": 8, "d1": 4}, {"d0": np.int32(5), "d1": np.int32(3)}
    )
    np.testing.assert_allclose(total, x[:5, :3].astype(float).sum(), rtol=1e-5)
    assert largest == x[:5, :3].max()
    np.testing.assert_array_equal(slope[:5, :3], 2 * x[:5, :3])
