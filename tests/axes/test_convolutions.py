"""Convolutions under `pad` where values are infinite: zeros that stand behind the true size of a
kernel meet no value of the array. Reference: plain JAX at each size.

Kernels are finite here: XLA multiplies its own zeros in front and behind by an infinite kernel, or
leaves them out, as it likes (docs/options/pad.md).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

import jitney

LONGEST = 16


def padded(fn):
    return jitney.optimize(fn, pad={"n": [LONGEST]})


def infinite_at(x, *places):
    out = np.array(x)
    for at, value in zip(places, (np.inf, np.nan, -np.inf), strict=False):
        out[..., at] = value
    return out


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(
    n=st.integers(1, LONGEST),
    length=st.integers(1, 20),
    stride=st.integers(1, 3),
    apart=st.integers(1, 3),
    dilation=st.integers(1, 3),
    low=st.integers(0, 3),
    more=st.integers(0, 3),
    at=st.integers(0, 19),
)
@example(n=3, length=8, stride=1, apart=1, dilation=1, low=0, more=0, at=2)
@example(n=2, length=5, stride=2, apart=2, dilation=3, low=1, more=2, at=4)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_kernel_with_the_axis_reads_its_true_windows(
    n, length, stride, apart, dilation, low, more, at
):
    def fn(k: Float[Array, "n"], x: Float[Array, "m"]):
        high = (k.shape[0] - 1) * dilation - low + more
        return jax.lax.conv_general_dilated(
            x[None, None],
            k[None, None],
            (stride,),
            ((low, high),),
            lhs_dilation=(apart,),
            rhs_dilation=(dilation,),
        )

    k, x = numbers(n, n), infinite_at(numbers(length, length), at % length)
    got = padded(fn)(k, x)
    np.testing.assert_allclose(got, jax.jit(fn)(k, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_a_kernel_of_the_axis_begins_as_many_elements_before_the_array(stride, dilation):
    """Values, and infinities of the array where plain JAX has them."""

    def fn(x: Float[Array, "n"], k: Float[Array, "n"]):
        low = (x.shape[0] - 1) * dilation
        return jax.lax.conv_general_dilated(
            x[None, None], k[None, None], (stride,), ((low, low),), rhs_dilation=(dilation,)
        )

    program, plain = padded(fn), jax.jit(fn)
    for n in (1, 4, 9, 13, LONGEST):
        k = numbers(n, n)
        for at in ((), (-1,), (0,), (n // 2, 0)):
            x = infinite_at(numbers(n + 1, n), *at)
            np.testing.assert_allclose(program(x, k), plain(x, k), rtol=1e-4, atol=1e-5)


def test_a_kernel_with_an_axis_of_its_own_begins_by_its_size():
    """Two axes are padded; and the gradient for the kernel has the infinities of plain JAX."""

    def fn(k: Float[Array, "m"], x: Float[Array, "n"]):
        low = k.shape[0] - 1
        out = jax.lax.conv_general_dilated(x[None, None], k[None, None], (1,), ((low, low),))
        return jnp.sum(out[..., : x.shape[0]] ** 2)

    program = jitney.optimize(fn, pad={"n": [LONGEST], "m": [8]})
    for n, m in ((9, 3), (LONGEST, 8), (5, 7), (11, 1)):
        for at in ((), (-1,), (-2, 0)):
            k, x = numbers(m, m), infinite_at(numbers(n, n), *at)
            np.testing.assert_allclose(program(k, x), jax.jit(fn)(k, x), rtol=1e-4)
            plain = jax.jit(jax.grad(fn))(k, x)
            np.testing.assert_allclose(jax.grad(program)(k, x), plain, rtol=1e-4, atol=1e-4)


OF_THE_DATA = {
    "correlate": (jnp.correlate, np.correlate),
    "convolve": (jnp.convolve, np.convolve),
}


@pytest.mark.parametrize("mode", ["full", "valid"])
@pytest.mark.parametrize("name", OF_THE_DATA)
def test_data_are_convolved_with_themselves(name, mode):
    """Against NumPy in float64; the derivative along a direction is a difference of values."""
    ours, theirs = OF_THE_DATA[name]

    def loss(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(ours(x, y, mode) ** 3)

    def reference(x, y):
        return np.sum(theirs(x, y, mode) ** 3)

    program = padded(loss)
    for n in (3, 6, 11):
        x, y, along = (numbers(n + seed, n).astype(float) for seed in range(3))
        h = 1e-5 * along
        slope = (reference(x + h, y) - reference(x - h, y)) / 2e-5
        data = np.float32(x), np.float32(y)
        value, gradient = program.value_and_grad(*data, wrt="x")
        for each in (gradient, jax.grad(program)(*data)):
            np.testing.assert_allclose(each @ along, slope, rtol=1e-3, atol=0.1)
        np.testing.assert_allclose(value, reference(x, y), rtol=1e-3, atol=0.01)


def one(x, k, **options):
    return jax.lax.conv_general_dilated(x, k, (1,), ((2, 2),), **options)


def transposed(x, k):
    return jax.lax.conv_transpose(x, k, (2,), "SAME", dimension_numbers=("NCH", "IOH", "NCH"))


def last_axis(x, k):
    return jax.lax.conv_general_dilated(
        x.transpose(0, 2, 1), k, (1,), "SAME", dimension_numbers=("NWC", "OIW", "NWC")
    ).transpose(0, 2, 1)


CONVOLUTIONS = {
    "one": (one, (4, 3, 5)),
    "groups": (lambda x, k: one(x, k, feature_group_count=3), (6, 1, 5)),
    "groups of the batch": (lambda x, k: one(x, k, batch_group_count=2), (4, 3, 5)),
    "holes": (lambda x, k: one(x, k, rhs_dilation=(2,)), (4, 3, 3)),
    "transposed": (transposed, (3, 4, 5)),
    "other order of axes": (last_axis, (4, 3, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.core("one", "groups of the batch")
def test_the_gradient_for_a_kernel_has_the_infinities_of_plain_jax(name):
    """Of the last elements, which the first weights of the kernel do not meet."""
    convolve, shape = CONVOLUTIONS[name]

    def fn(x: Float[Array, "2 3 n"], k: Float[Array, "o i w"]):
        return jax.grad(lambda k: jnp.sum(convolve(x, k)[..., :4] ** 2))(k)

    program, plain, k = padded(fn), jax.jit(fn), numbers(0, *shape)
    for n in (9, 12, LONGEST):
        for at in ((), (-1,), (-2, 6), (0,)):
            x = infinite_at(numbers(n, 2, 3, n), *at)
            np.testing.assert_allclose(program(x, k), plain(x, k), rtol=1e-4, atol=1e-4)


def test_the_gradient_of_images_has_the_infinities_of_plain_jax():
    """Both axes of an image are padded: each weight is a window of its own."""

    def fn(x: Float[Array, "2 n n"], k: Float[Array, "4 2 3 3"]):
        return jax.grad(lambda k: jnp.sum(jax.lax.conv(x[None], k, (1, 1), "SAME")[..., :4, :3]))(k)

    program, plain, k = padded(fn), jax.jit(fn), numbers(0, 4, 2, 3, 3)
    for n in (7, 11, LONGEST):
        for at in (None, (0, -1, -1), (1, -1, 2), (0, 3, -1)):
            x = numbers(n, 2, n, n)
            if at:
                x[at] = np.inf
            np.testing.assert_allclose(program(x, k), plain(x, k), rtol=1e-4, atol=1e-4)


def test_a_window_that_may_be_shorter_reads_its_true_elements():
    """Its length is taken for one that grows slowly, and so the padded kernel ends in a zero."""

    def smoothed(x: Float[Array, "n"]):
        return jnp.convolve(x, np.ones(min(3, len(x)), np.float32), "same")

    program, plain = jitney.optimize(smoothed, pad={"n": "aligned"}), jax.jit(smoothed)
    for n in (37, 90, 60):
        for at in ((), (-1,), (-2, 6), (16,)):
            x = infinite_at(numbers(n, n), *at)
            np.testing.assert_allclose(program(x), plain(x), rtol=1e-4, atol=1e-5)


def test_a_kernel_over_more_windows_than_are_cut_out_is_refused():
    def fn(k: Float[Array, "n"], x: Float[Array, "m"]):
        return jax.lax.conv_general_dilated(
            x[None, None], k[None, None], (1,), ((0, k.shape[0] - 1),)
        )

    program = jitney.optimize(fn, pad={"n": [2_000]})
    with pytest.warns(
        jitney.errors.PaddingWarning, match="convolves other values with a kernel of its"
    ):
        program(numbers(0, 5), numbers(1, 1_100))


def of_first(convolve):
    def loss(k: Float[Array, "o i w"], x: Float[Array, "2 3 n"]) -> Float[Array, ""]:
        return jnp.sum(convolve(x, k)[..., :4] ** 2)

    return loss


def in_a_loop(x, k):
    def turn(total, scale):
        return total + one(x, scale * k), None

    scales = jnp.arange(1.0, 4.0, dtype=jnp.float32)
    return jax.lax.scan(turn, jnp.zeros((2, 4, x.shape[2]), jnp.float32), scales)[0]


def in_a_branch(x, k):
    return jax.lax.cond(k[0, 0, 0] < 9, lambda: one(x, k), lambda: one(x, -k))


@pytest.mark.parametrize("name", [*CONVOLUTIONS, "loop", "branch"])
@pytest.mark.core("one", "loop")
def test_the_derivative_of_a_padded_program_has_the_infinities_of_plain_jax(name):
    """JAX goes through the padded convolution backwards."""
    others = {"loop": (in_a_loop, (4, 3, 5)), "branch": (in_a_branch, (4, 3, 5))}
    convolve, shape = {**CONVOLUTIONS, **others}[name]
    loss = of_first(convolve)
    program, plain, k = jax.grad(padded(loss)), jax.jit(jax.grad(loss)), numbers(0, *shape)
    for n in (9, 12, LONGEST):
        for at in ((), (-1,), (-2, 6), (0,)):
            x = infinite_at(numbers(n, 2, 3, n), *at)
            np.testing.assert_allclose(program(k, x), plain(k, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", [0, 1])
def test_forward_derivatives_have_the_infinities_of_plain_jax(which):
    loss = of_first(lambda x, k: one(x, k))
    arrays = [numbers(0, 4, 3, 5), infinite_at(numbers(1, 2, 3, 12), -1)]
    moved = numbers(2, *arrays[which].shape)

    def along(fn):
        def of_one(value):
            return fn(*(value if i == which else x for i, x in enumerate(arrays)))

        return jax.jvp(of_one, (arrays[which],), (moved,))

    for got, want in zip(along(padded(loss)), along(loss), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


def dilated(x, k, stride):
    return jax.lax.conv_general_dilated(x[None, None], k[None, None], (stride,), ((0, 0),))[0, 0]


KERNELS = {
    "loop": lambda k: jax.lax.map(lambda q: q * 2, k),
    "loop in a call": jax.jit(lambda k: jax.lax.map(lambda q: q * 2, k)),
    "branch": lambda k: jax.lax.cond(k[0] > 0, lambda k: k * 2, lambda k: k, k),
    "solve": lambda k: jnp.linalg.solve(2 * jnp.eye(2, dtype=k.dtype), k),
    "scatter": lambda k: jnp.zeros(2, k.dtype).at[jnp.arange(2)].add(k),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.core("loop in a call")
def test_a_kernel_may_come_out_of_an_operation_of_its_own(name):
    """Its tangent is not told from other results there."""

    def loss(k: Float[Array, "2"], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(dilated(x, KERNELS[name](k), 3))

    program, plain, k = jax.grad(padded(loss)), jax.jit(jax.grad(loss)), numbers(0, 2)
    for n in (4, 7):
        x = infinite_at(numbers(n, n), -1)
        np.testing.assert_allclose(program(k, x), plain(k, x), rtol=1e-4)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.core("0-1")
def test_the_gradient_for_an_array_has_the_infinities_of_an_infinite_kernel(place, stride):
    def loss(x: Float[Array, "n"], k: Float[Array, "2"]) -> Float[Array, ""]:
        return jnp.sum(dilated(x, k, stride))

    program, plain = jax.grad(padded(loss)), jax.jit(jax.grad(loss))
    k = infinite_at(numbers(0, 2), place)
    for n in (2, 3, 4, 7):
        x = numbers(n, n)
        np.testing.assert_allclose(program(x, k), plain(x, k), rtol=1e-4)


def test_values_out_of_a_branch_meet_a_kernel_with_the_axis():
    def loss(k: Float[Array, "n"], x: Float[Array, "6"]) -> Float[Array, ""]:
        x = jax.lax.cond(x[0] > 0, lambda x: x * 2, lambda x: x, x)
        padding = ((0, k.shape[0] - 1),)
        out = jax.lax.conv_general_dilated(x[None, None], k[None, None], (1,), padding)
        return jnp.sum(out * jnp.arange(6, dtype=jnp.float32))

    k, x = numbers(0, 3), np.abs(numbers(1, 6))
    got = jax.grad(padded(loss), (0, 1))(k, x)
    for one_of, want in zip(got, jax.grad(loss, (0, 1))(k, x), strict=True):
        np.testing.assert_allclose(one_of, want, rtol=1e-4)
