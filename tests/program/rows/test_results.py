"""Results of rows whose axes hang on the bucket, on other axes, or on what Python saw. References:
calls of each row.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney.errors import AxisError, ContractError
from jitney.types import PaddedRows

RNG = np.random.default_rng(3)


def mapped(body, **options):
    return jitney.optimize(vmap="row", pad={"t": "pow2"}, **options)(body)


def rows(*sizes, shape=()):
    return [RNG.normal(size=(*shape, n)).astype(np.float32) for n in sizes]


def is_each(got, body, given):
    assert len(got) == len(given)
    for row, alone in zip(got, map(body, given), strict=True):
        assert row.shape == alone.shape
        np.testing.assert_allclose(row, alone, rtol=1e-5)


def head(x: Float[Array, "t"]):
    return x[:8] * 2


def tail(x: Float[Array, "t"]):
    return x[8:] * 2


def total(x: Float[Array, "c t"]):
    return jnp.sum(x, axis=1)


def first(x: Float[Array, "*a t"]):
    return jnp.sum(x, axis=0)


@pytest.mark.core(
    "head-sizes0-before2-list", "tail-sizes3-before2-padded", "tail-sizes0-before0-list"
)
@pytest.mark.parametrize("ragged", ["list", "padded"])
@pytest.mark.parametrize("before", [(20, 30), (3, 4), (20, 3)])
@pytest.mark.parametrize("sizes", [(20, 5, 12), (5, 6), (12, 13), (1, 20, 0)])
@pytest.mark.parametrize("body", [head, tail])
def test_an_axis_that_not_all_buckets_pad_is_cut(body, sizes, before, ragged):
    f = mapped(body, ragged=ragged)
    f(rows(*before))
    given = rows(*sizes)
    is_each(f(given), body, given)


@pytest.mark.rest
def test_results_may_differ_along_an_axis_without_padding():
    given = [*rows(5, 9, shape=(3,)), *rows(5, shape=(2,))]
    is_each(mapped(total)(given), total, given)


def test_rows_of_another_number_of_axes_have_results_of_their_own():
    f = mapped(first)
    f(rows(3, 4))
    given = rows(3, 4, shape=(2,))
    is_each(f(given), first, given)


@pytest.mark.rest
def test_arguments_may_change_their_numbers_of_axes():
    def both(x: Float[Array, "*a t"], y: Float[Array, "*b t"]):
        return x * 2, jnp.sum(y)

    flat = rows(1, 3, 4)
    square = [np.outer(row, row) for row in flat]
    f = mapped(both)
    f(flat, square)
    is_each(f(square, flat)[0], lambda x: x * 2, square)


def number(x: Float[Array, "t"]):
    return (0.0 if x.shape[0] == 0 else 1.0), jnp.sum(x)


def names(x: Float[Array, "t"]):
    return {"none": x} if x.shape[0] == 0 else {"some": x}


def dtypes(x: Float[Array, "t"]):
    return jnp.array(0) if x.shape[0] == 0 else jnp.sum(x)


@pytest.mark.parametrize("body", [number, names, dtypes])
def test_results_that_cannot_be_put_together_are_refused(body):
    given = rows(3, 0, 5)
    with pytest.raises(ContractError, match=r"results? of"):
        mapped(body)(given)
    with pytest.raises(ContractError, match=r"results? of"):
        mapped(body).stream(given, chunk={"row": 1}, progress=False)


def test_a_value_that_is_no_array_is_the_same_in_all_buckets():
    def named(x: Float[Array, "t"]):
        return "sum", jnp.sum(x)

    assert mapped(named)(rows(3, 20, 1))[0] == "sum"


@pytest.mark.parametrize(
    "sizes",
    [{0: [5, 2]}, {0: [-1, 2]}, {0: [1, 2, 3]}, {1: [1, 2]}, {0: [1.0, 2.0]}],
)
def test_padded_rows_have_sizes_that_fit(sizes):
    padded = PaddedRows(
        np.ones((2, 3), np.float32),
        {axis: np.array(each) for axis, each in sizes.items()},
    )
    with pytest.raises(ContractError, match="the sizes of its rows along axis"):
        mapped(head)(padded)


def test_a_map_over_the_tree_of_padded_rows_changes_no_number_in_silence():
    f = mapped(head, ragged="padded")
    doubled = jax.tree.map(lambda leaf: leaf * 2, f(rows(3, 5)))
    with pytest.raises(ContractError, match="changes them too"):
        f(doubled)


def test_padded_rows_end():
    padded = mapped(head, ragged="padded")(rows(3, 5))
    np.testing.assert_array_equal(padded[-1], padded[1])
    with pytest.raises(IndexError, match="row 2 of 2 rows"):
        padded[2]


@pytest.mark.rest
def test_rows_of_one_length_choose_no_buckets():
    def summed(x: Float[Array, "t"]):
        return jnp.sum(x)

    f = jitney.optimize(vmap="row", pad={"t": "auto"}, chunk={"row": 4})(summed)
    f(np.ones((6, 100), np.float32))
    given = rows(33, 33, 70)
    is_each(f(given), summed, given)
    assert "t=2-33" in str(f.plan(given))


@pytest.mark.parametrize("given", [[[1], [2, 3]], np.array([2**63 + 1, 2], np.uint64)])
def test_lengths_that_are_no_sizes_are_refused(given):
    with pytest.raises(ContractError, match="length"):
        mapped(head)(np.ones((2, 4), np.float32), lengths={"t": given})
    with pytest.raises(ContractError, match="length"):
        jitney.ragged(np.ones((2, 4), np.float32), lengths=given)


@pytest.mark.core("sizes1", "sizes2")
@pytest.mark.parametrize("sizes", [(3, 5), (0, 5, 1), (0, 0)])
def test_keys_are_padded_with_those_of_zeros(sizes):
    """The sizes say where each row ends; a stream joins them alike."""

    def halves(key: jax.Array, x: Float[Array, "t"]):
        return jax.vmap(lambda y: jax.random.fold_in(key, y.astype(jnp.int32)))(x)

    given = [np.arange(n, dtype=np.float32) for n in sizes]
    key = jax.random.key(0)
    wanted = [jax.random.key_data(jax.jit(halves)(key, x)) for x in given]
    f = mapped(halves, ragged="padded")
    streamed = f.stream(key, given, chunk={"row": 1}, progress=False).result
    for out in (f(key, given), streamed):
        assert isinstance(out, PaddedRows)
        for row, want in zip(out, wanted, strict=True):
            np.testing.assert_array_equal(jax.random.key_data(row), want)


@pytest.mark.rest
def test_a_call_that_does_not_fit_chooses_no_buckets():
    def both(x: Float[Array, "t"], y: Float[Array, "t"]):
        return jnp.sum(x * y)

    f = jitney.optimize(vmap="row", pad={"t": "auto"})(both)
    with pytest.raises(ContractError, match="axis 't' has two sizes"):
        f(rows(500, 400), rows(500, 4))
    given = rows(5, 6)
    np.testing.assert_allclose(f(given, given), [np.sum(x * x) for x in given], rtol=1e-5)
    assert "t=6-6" in str(f.plan(given, given))


@pytest.mark.parametrize("before", [(20, 30), (3, 30), (1, 1)])
def test_the_form_of_a_result_hangs_on_no_call_before(before):
    """`x[:8]` is an array where all rows are longer, a list for rows at exact size, as if they were
    of the nearest length that is padded.
    """
    f = mapped(head)
    f(rows(*before))
    forms = [type(f(rows(*sizes))) for sizes in ((20, 30), (3, 30), (1, 1), (0, 0))]
    assert [form is list for form in forms] == [False, True, True, True]


def from_five(x: Float[Array, "t"]):
    if x.shape[0] != 1 and x.shape[0] < 5:
        raise ValueError("at least 5")
    return x * 2


def test_rows_above_the_buckets_have_the_form_of_the_largest():
    """The body raises at 2, and is not traced there."""
    f = jitney.optimize(vmap="row", pad={"t": (64, 128)})(from_five)
    given = rows(150, 150)
    assert isinstance(f(given), list)
    is_each(f(given), from_five, given)


def test_a_form_that_no_trace_shows_is_a_sentence():
    """Rows of 1 run, and the body raises at 2, the nearest length that is padded."""
    f = mapped(from_five)
    with pytest.raises(AxisError, match=r"at t=2 it raises ValueError: at least 5\."):
        f(rows(1, 1))
    (alone,) = rows(1)
    np.testing.assert_array_equal(f(alone), alone * 2)


def weighted(w: Float[Array, "t"], x: Float[Array, "t"]):
    return jnp.sum(w * x)


@pytest.mark.rest
def test_what_rows_share_may_have_the_padded_axis():
    """Rows of the length of the shared array, which is filled as they are; and its gradient."""
    f, given = mapped(weighted), rows(5, 5)
    w = np.arange(5, dtype=np.float32)
    np.testing.assert_allclose(f(w, given), [np.sum(w * x) for x in given], rtol=1e-5)
    slope = jax.grad(lambda w: jnp.sum(f(w, given)))(w)
    np.testing.assert_allclose(slope, np.sum(given, axis=0), rtol=1e-5)


def wide_dot(x: Float[Array, "t"]):
    with jax.enable_x64(True):
        return jnp.linspace(0.0, 1.0, x.shape[0]) @ x.astype(jnp.float64)


def test_a_body_of_64_bits_in_a_program_of_32_is_refused():
    """JAX would truncate the product where it maps it."""
    given = rows(5, 7)
    f = jitney.optimize(vmap="row", pad={"t": "pow2"})(wide_dot)
    with pytest.raises(AxisError, match=r"test_results.py:\d+ \(wide_dot\) computes in 64 bits"):
        f(given)
    expected = [np.linspace(0, 1, len(x)) @ x.astype(np.float64) for x in given]
    with jax.enable_x64(True):
        np.testing.assert_allclose(f(given), expected, rtol=1e-12)


def either(x: Float[Array, "t"], w: Float[Array, "t"] | None = None):
    return jnp.sum(x) if w is None else jnp.sum(x * w)


def test_rows_of_an_optional_argument_are_rows():
    """A list for `Float[Array, "t"] | None`, and none."""
    given = rows(5, 7)
    f = jitney.optimize(vmap="row", pad={"t": "pow2"})(either)
    np.testing.assert_allclose(f(given), [np.sum(x) for x in given], rtol=1e-5)
    np.testing.assert_allclose(f(given, given), [np.sum(x * x) for x in given], rtol=1e-5)


def scaled(x: Float[Array, "t"], a: Float[Array, ""]):
    return jnp.sum(x) * a


def test_scalars_of_numpy_are_rows():
    given = rows(5, 7)
    f = jitney.optimize(vmap="row", pad={"t": "pow2"})(scaled)
    out = f(given, [np.float32(2), np.asarray(3, np.float32)])
    np.testing.assert_allclose(out, [2 * np.sum(given[0]), 3 * np.sum(given[1])], rtol=1e-5)


def of_pair(pair: tuple[Float[Array, "t"], Float[Array, ""]], more: dict[str, Float[Array, "t"]]):
    return jnp.sum(pair[0] * more["b"] - more["a"]) * pair[1]


def test_rows_stand_in_the_items_of_a_container():
    """In a tuple beside an array of one number for each, and in a dict."""
    x, a, b = (rows(5, 12, 7) for _ in range(3))
    scale = np.array([1, 2, 3], np.float32)
    f = mapped(of_pair)
    want = [np.sum(x * b - a) * k for x, k, a, b in zip(x, scale, a, b, strict=True)]
    np.testing.assert_allclose(f((x, scale), {"b": b, "a": a}), want, rtol=1e-4)
    with pytest.raises(ContractError, match=r"3 from 'pair\[0\]' and 2 from \"more\['b'\]\""):
        f((x, scale), {"b": b[:2], "a": a})


def curve(w: Float[Array, "2"], x: Float[Array, "t"]) -> tuple[Float[Array, "t"], Float[Array, ""]]:
    return w[0] * jnp.sin(x * w[1]), jnp.sum(x**2)


@pytest.mark.parametrize("ragged", ["list", "padded"])
def test_a_cotangent_has_the_form_of_the_result(ragged):
    """A tuple of rows, as the call returned them, and of an array. The reference is NumPy."""
    w, x = np.array([1, 2], np.float32), rows(5, 12, 7)
    f = mapped(curve, ragged=ragged)
    out = f(w, x)
    (got, _), slopes = f.vjp(w, x, wrt=("w", "x"), cotangent=out)
    assert type(got) is type(out[0])
    for i, row in enumerate(x):
        sine, cosine = np.sin(row * w[1]), np.cos(row * w[1])
        along, total = w[0] * sine, np.sum(row**2)
        by_w = [along @ sine, along @ (w[0] * row * cosine)]
        by_x = along * w[0] * w[1] * cosine + total * 2 * row
        np.testing.assert_allclose(slopes["w"][i], by_w, rtol=1e-4)
        found = slopes["x"][i]
        np.testing.assert_allclose(np.asarray(found)[: len(row)], by_x, rtol=1e-4)
