"""Parts of buffers of a fixed length that are as long as a padded or cut axis: `pos[:n]`."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import PaddingWarning
from tests._tracing import count_traces

Rows = Float[Array, "n d"]
Buffer = Float[Array, "longest d"]
LENGTH = 12  # of the buffer: the bucket is 9 to 16
POS = np.random.default_rng(0).normal(size=(LENGTH, 3)).astype(np.float32)


def rows(n, dtype=np.float32):
    return np.random.default_rng(n).normal(size=(n, 3)).astype(dtype)


def embed(x: Rows, pos: Buffer) -> Rows:
    return jnp.sin(x * pos[: x.shape[0]])


def at_a_place(x: Rows, pos: Buffer) -> Rows:
    return jnp.sin(x * jax.lax.dynamic_slice_in_dim(pos, 0, x.shape[0]))


def checked(x: Rows, pos: Buffer) -> Rows:
    assert x.shape[0] <= pos.shape[0], "too long"
    return jnp.sin(x * pos[: x.shape[0]])


def written(x: Rows, buffer: Buffer) -> Buffer:
    return jnp.asarray(buffer).at[: x.shape[0]].set(jnp.sin(x))


def loss(x: Rows, pos: Buffer) -> Float[Array, ""]:
    return jnp.sum(embed(x, pos) ** 2)


def gradients(x: Rows, pos: Buffer) -> tuple[Rows, Buffer]:
    return jax.grad(loss, (0, 1))(x, pos)


BODIES = [embed, at_a_place, checked, written, gradients]


def agrees(f, body, x, pos):
    for got, want in zip(jax.tree.leaves(f(x, pos)), jax.tree.leaves(body(x, pos)), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.core("embed")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_bucket_ends_with_the_buffer(body):
    """9 to 12 of 9 to 16 are one program; where the buffer ends, plain JAX's error is raised."""
    f = optimize(pad={"n": "pow2"})(body)
    for n in (LENGTH, 10, 9, 11):
        agrees(f, body, rows(n), POS)
    assert f.stats.sizes["n"] == {9: 1, 10: 1, 11: 1, 12: 1}
    assert "n from 9 to 12" in str(f.plan(rows(10), POS))
    with pytest.raises(Exception) as plain:
        jax.jit(body)(rows(LENGTH + 1), POS)
    with pytest.warns(PaddingWarning, match="padded up to n = 12"), pytest.raises(plain.type):
        f(rows(LENGTH + 1), POS)


def test_a_call_that_is_too_long_takes_no_bucket_from_others():
    """It comes first, and those that fit share a program all the same."""
    body = count_traces(embed)
    f = optimize(pad={"n": "pow2"})(body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PaddingWarning)
        with pytest.raises(TypeError, match="incompatible shapes"):
            f(rows(LENGTH + 1), POS)
    agrees(f, embed, rows(10), POS)
    before = f.stats.compiles
    agrees(f, embed, rows(LENGTH), POS)
    assert f.stats.compiles == before


def test_sizes_above_run_at_exact_size():
    """With a warning that says up to where calls are padded."""

    def either(x: Rows, pos: Buffer) -> Float[Array, ""]:
        if x.shape[0] > pos.shape[0]:
            return jnp.sum(x)
        return jnp.sum(x * pos[: x.shape[0]])

    f = optimize(pad={"n": "pow2"})(either)
    with pytest.warns(PaddingWarning, match="it is padded up to n = 12"):
        agrees(f, either, rows(14), POS)
    agrees(f, either, rows(10), POS)
    assert f.stats.sizes["n"] == {10: 1}


def test_buffers_of_two_lengths():
    """The shorter one ends the bucket."""

    def both(x: Rows, pos: Buffer, other: Float[Array, "m d"]) -> Rows:
        return x * pos[: x.shape[0]] + other[: x.shape[0]]

    f = optimize(pad={"n": "pow2"})(both)
    other = rows(14)
    for n in (LENGTH, 9):
        want = both(rows(n), POS, other)
        np.testing.assert_allclose(f(rows(n), POS, other), want, rtol=1e-5)
    assert f.stats.sizes["n"] == {9: 1, 12: 1}


def test_calls_with_other_buffers_have_buckets_of_their_own():
    """One of 11 rows does not shorten what one of 16 serves."""
    f = optimize(pad={"n": "pow2"})(embed)
    agrees(f, embed, rows(10), POS[:11])
    agrees(f, embed, rows(10), rows(16))
    agrees(f, embed, rows(15), rows(16))
    assert f.stats.sizes["n"] == {10: 2, 15: 1}


def test_what_stands_behind_reaches_nothing():
    """NaN in the buffer behind the true size; its gradient is zero there."""
    pos = np.full((16, 3), np.nan, np.float32)
    pos[:10] = POS[:10]
    f = optimize(pad={"n": "pow2"})(gradients)
    x = rows(10)
    of_x, of_pos = f(x, pos)
    want_x, want_pos = gradients(x, pos[:10])
    np.testing.assert_allclose(of_x, want_x, rtol=1e-6)
    np.testing.assert_allclose(of_pos[:10], want_pos, rtol=1e-6)
    assert np.array_equal(of_pos[10:], np.zeros((6, 3)))


@pytest.mark.rest
def test_under_an_outer_gradient():
    """Of the padded program, for the buffer too."""
    f = optimize(pad={"n": "pow2"})(loss)
    for n in (10, LENGTH):
        got = jax.grad(f, (0, 1))(rows(n), POS)
        for a, b in zip(got, gradients(rows(n), POS), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_field_of_a_module():
    """Learned positions of a model."""

    class Model(eqx.Module):
        pos: Array

        @optimize(pad={"n": "pow2"})
        def __call__(self, x: Rows) -> Rows:
            return x * self.pos[None, : x.shape[0]][0]

    model = Model(jnp.asarray(POS))
    for n in (5, 10, LENGTH):
        np.testing.assert_allclose(model(rows(n)), rows(n) * POS[:n], rtol=1e-6)
    assert type(model).__call__.stats.padding["n"] > 0


def test_ahead():
    """A program that is compiled ahead is that of the shorter bucket."""
    f = optimize(pad={"n": "pow2"})(embed)
    f.compile(rows(10), POS)
    before = f.stats.compiles
    agrees(f, embed, rows(11), POS)
    assert f.stats.compiles == before


@pytest.mark.rest
def test_in_float64():
    """As in float32."""
    with jax.enable_x64(True):
        f = optimize(pad={"n": "pow2"})(gradients)
        for n in (10, LENGTH):
            agrees(f, gradients, rows(n, np.float64), POS.astype(np.float64))


def test_facts():
    """Each row alone; the buffer is read at places."""
    facts = jitney.analysis.axes(embed, rows(10), POS)
    assert facts["n"].kind == "pointwise"
    assert facts["longest"].kind == "gathered"


@pytest.mark.core("embed")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_in_chunks_and_streamed(body):
    """A chunk has its own rows of the buffer, and adds to its own."""
    buffer = rows(40)
    x = rows(37)
    agrees(optimize(chunk={"n": 8})(body), body, x, buffer)
    agrees(
        lambda *args: optimize(body).stream(*args, chunk={"n": 8}, progress=False).result,
        body,
        x,
        buffer,
    )


def test_a_chunk_holds_no_part_of_the_buffer():
    """The buffer is read where it lies, in one pass."""
    f = optimize(chunk={"n": 8})(loss)
    plan = str(f.plan(rows(37), rows(40)))
    assert "1 over the data, 8 of n at a time" in plan
    assert "as a whole" not in plan
