"""Rows in padded arrays: `lengths=` of a call, and results of `ragged="padded"`. References: calls
of each row, NumPy.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import AxisError, ContractError, OptionError
from jitney.types import PaddedRows
from tests._switched import environment

RNG = np.random.default_rng(3)
SIZES = np.array([3, 8, 1, 20, 5, 0, 3])
Y = [RNG.normal(size=n).astype(np.float32) for n in SIZES]
BEHIND = np.full((7, 25), np.nan, np.float32)
for place, row in zip(BEHIND, Y, strict=True):
    place[: len(row)] = row


def both(y: Float[Array, "n"]):
    return jnp.cumsum(y), jnp.sum(y), jnp.diff(y, prepend=0, append=1), jnp.outer(y, y)


def plain(y):
    return (
        np.cumsum(y),
        y.sum(),
        np.diff(y, prepend=np.float32(0), append=np.float32(1)),
        np.outer(y, y),
    )


def mapped(fn=both, **options):
    return optimize(**{"vmap": "row", "pad": {"n": "pow2"}, **options})(fn)


def holds(rows, want):
    """Rows are those, and zeros stand behind them."""
    assert isinstance(rows, PaddedRows)
    assert len(rows) == len(want)
    for i, (got, one) in enumerate(zip(rows, want, strict=True)):
        assert got.shape == rows.shape(i) == one.shape
        np.testing.assert_allclose(got, one, rtol=1e-5, atol=1e-5)
        whole = np.asarray(rows.values[i]).copy()
        whole[tuple(map(slice, one.shape))] = 0
        assert not whole.any()


WANT = [*zip(*map(plain, Y), strict=True)]


@pytest.mark.core("list-jax")
@pytest.mark.parametrize("made", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
@pytest.mark.parametrize("ragged", ["list", "padded"])
def test_lengths_of_a_call_say_how_long_rows_are(made, ragged):
    """What stands behind a row is never looked at, and results are as those of a list."""
    sums, total, steps, outer = mapped(ragged=ragged)(made(BEHIND), lengths={"n": SIZES})
    np.testing.assert_allclose(total, WANT[1], rtol=1e-5, atol=1e-5)
    for got, want in ((sums, WANT[0]), (steps, WANT[2]), (outer, WANT[3])):
        if ragged == "padded":
            holds(got, want)
        else:
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_padded_results_are_one_array_and_lengths():
    """Sizes by the position of an axis; `lengths` where there is one."""
    sums, _, steps, outer = mapped(ragged="padded")(Y)
    holds(sums, WANT[0])
    holds(steps, WANT[2])
    holds(outer, WANT[3])
    assert sums.values.shape == (7, 20)
    assert steps.lengths.tolist() == (SIZES + 1).tolist()
    assert [*outer.sizes] == [0, 1]
    with pytest.raises(ValueError, match="too many values"):
        assert outer.lengths


@pytest.mark.core("sizes0", "sizes1")
@pytest.mark.parametrize("sizes", [(1, 1), (0,), (4, 4), (7,)])
def test_the_form_of_a_padded_result_hangs_on_no_length(sizes):
    given = [Y[3][:n] for n in sizes]
    sums, _, steps, _ = mapped(ragged="padded")(given)
    holds(sums, [*map(np.cumsum, given)])
    assert steps.lengths.tolist() == [n + 1 for n in sizes]


@pytest.mark.rest
def test_padded_results_are_rows_of_the_next_function():
    """With other arrays beside them, and with gradients."""

    def scaled(y: Float[Array, "n"], s: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(y**2) * s

    sums = mapped(ragged="padded")(Y)[0]
    scales = np.arange(7, dtype=np.float32)
    got = mapped(scaled)(sums, scales)
    want = [np.sum(np.cumsum(y) ** 2) * s for y, s in zip(Y, scales, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-4)
    by_values = jax.grad(
        lambda values: jnp.sum(mapped(scaled)(PaddedRows(values, sums.sizes), scales))
    )(sums.values)
    behind = np.arange(20) >= SIZES[:, None]
    assert not np.asarray(by_values)[behind].any()
    np.testing.assert_allclose(by_values, 2 * sums.values * scales[:, None], rtol=1e-5)


@pytest.mark.rest
def test_a_gradient_goes_through_padded_arrays():
    """Of shared parameters, and of the arrays: zero behind each row."""

    def loss(w: Float[Array, ""], y: Float[Array, "n"]):
        return jnp.cumsum(w * y**2)

    f = mapped(loss, ragged="padded")
    lengths = {"n": SIZES}
    by_w, by_y = jax.grad(lambda w, y: jnp.sum(f(w, y, lengths=lengths).values), argnums=(0, 1))(
        jnp.float32(2), jnp.asarray(BEHIND)
    )
    np.testing.assert_allclose(by_w, sum(np.cumsum(y**2).sum() for y in Y), rtol=1e-5)
    for got, y in zip(by_y, Y, strict=True):
        n = len(y)
        np.testing.assert_allclose(got[:n], 4 * y * np.arange(n, 0, -1), rtol=1e-4, atol=1e-5)
        assert not np.asarray(got[n:]).any()


class Curve(eqx.Module):
    t: Float[Array, "n"]
    y: Float[Array, "2 n+1"]


def test_fields_and_expressions_of_an_axis_are_cut():
    """An axis may be the second one, be named by fields, and be longer by one."""

    def area(curve: Curve):
        return jnp.sum(curve.t) + jnp.sum(curve.y), curve.y * 2

    t, y = BEHIND[:, :8], np.stack([BEHIND[:, :9]] * 2, axis=1)
    sizes = np.minimum(SIZES - 1, 7).clip(0)
    total, twice = optimize(vmap={"row": {"curve": 0}}, pad={"n": [4, 8]})(area)(
        Curve(t, y), lengths={"n": sizes}
    )
    for i, n in enumerate(sizes):
        own = y[i][:, : n + 1]
        if np.isnan(own).any():
            continue
        np.testing.assert_allclose(total[i], t[i][:n].sum() + own.sum(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(twice[i], 2 * own)


def test_several_axes_have_lengths():
    @optimize(vmap="row", pad={"n": "pow2", "m": "pow2"}, ragged="padded")
    def f(x: Float[Array, "n m"], y: Float[Array, "m"]):
        return x @ y, jnp.sum(x)

    x, y = RNG.normal(size=(4, 9, 6)), RNG.normal(size=(4, 6))
    n, m = np.array([9, 2, 5, 1]), np.array([3, 6, 1, 2])
    x, y = x.astype(np.float32), y.astype(np.float32)
    product, total = f(x, y, lengths={"n": n, "m": m})
    want = [x[i, :a, :b] @ y[i, :b] for i, (a, b) in enumerate(zip(n, m, strict=True))]
    holds(product, want)
    np.testing.assert_allclose(
        total, [x[i, :a, :b].sum() for i, (a, b) in enumerate(zip(n, m, strict=True))], rtol=1e-4
    )


def test_derivatives_and_plans_take_lengths():
    f = mapped(lambda_of_squares)
    got = f.grad(BEHIND, lengths={"n": SIZES}, wrt="y")
    for a, y in zip(got, Y, strict=True):
        np.testing.assert_allclose(a, 2 * y, rtol=1e-6)
    assert "7 rows of 'row'" in str(f.plan(BEHIND, lengths={"n": SIZES}))


def lambda_of_squares(y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(y**2)


def test_lengths_of_a_function_of_its_own_are_its_own():
    """A parameter of that name is no keyword of the call."""

    def f(y: Float[Array, "n"], lengths: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(y) * lengths

    got = mapped(f)(Y, lengths=jnp.float32(2))
    np.testing.assert_allclose(got, [2 * y.sum() for y in Y], rtol=1e-5, atol=1e-5)


@pytest.mark.rest
def test_nothing_is_compiled_where_jit_is_off():
    """The form of the results is the same."""
    with jax.disable_jit():
        sums, *_ = mapped(ragged="padded")(Y[:3])
    holds(sums, WANT[0][:3])
    with environment(JITNEY_DISABLE="eager"):
        sums, *_ = mapped(ragged="padded")(BEHIND, lengths={"n": SIZES})
    holds(sums, WANT[0])


def test_padded_rows_are_a_pytree():
    rows = PaddedRows(jnp.ones((2, 3)), {0: np.array([1, 3])})
    again = jax.tree.map(lambda x: x, rows)
    assert [row.shape for row in again] == [(1,), (3,)]
    assert "2 rows in float32(3,)" in repr(again)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: mapped()(BEHIND, lengths={"m": SIZES}),
            ContractError,
            "`lengths` names 'm', which is not an axis of `pad`",
        ),
        (lambda: mapped()(BEHIND, lengths=SIZES), ContractError, "does not say which axis"),
        (
            lambda: mapped()(BEHIND, lengths={"n": SIZES[:3]}),
            ContractError,
            "3 lengths of 'n' are given for 7 rows",
        ),
        (
            lambda: mapped()(BEHIND, lengths={"n": SIZES + 6}),
            ContractError,
            "'y' has rows of 25, and a length is 26",
        ),
        (
            lambda: mapped()(BEHIND, lengths={"n": SIZES * 1.0}),
            ContractError,
            r"lengths of 'n' are float64 of \(7,\)",
        ),
        (
            lambda: mapped()(BEHIND, lengths={"n": (k for k in SIZES)}),
            ContractError,
            "lengths of 'n' are a generator",
        ),
        (
            lambda: mapped()(BEHIND, lengths={"n": SIZES - 1}),
            ContractError,
            "a length of 'n' is -1",
        ),
        (lambda: mapped()(Y, lengths={"n": SIZES}), ContractError, "rows of their own lengths"),
        (
            lambda: mapped()(BEHIND[0], lengths={"n": SIZES}),
            ContractError,
            "no argument has an axis 'row'",
        ),
        (
            lambda: mapped()(BEHIND[:0], lengths={"n": SIZES[:0]}),
            ContractError,
            "'y' has no rows",
        ),
        (
            lambda: jax.jit(lambda n: mapped()(BEHIND, lengths={"n": n})[1])(SIZES),
            ContractError,
            "the lengths of 'n' are traced",
        ),
        (
            lambda: jax.jit(mapped())(PaddedRows(BEHIND, {0: SIZES})),
            AxisError,
            "inside an outer `jit`",
        ),
        (
            lambda: optimize(ragged="padded")(both),
            OptionError,
            'ragged="padded" has no rows',
        ),
        (lambda: mapped(ragged="flat"), OptionError, "ragged='flat' is not a choice"),
    ],
    ids=[
        "name",
        "no axis",
        "count",
        "too long",
        "floats",
        "a generator",
        "negative",
        "a list",
        "no rows",
        "none",
        "traced",
        "traced rows",
        "no vmap",
        "choice",
    ],
)
def test_what_cannot_be_is_a_sentence(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert re.search(message, str(raised.value), re.DOTALL)


@pytest.mark.rest
def test_a_list_beside_padded_arrays_agrees_row_by_row():
    """One argument is a list, another a padded array with lengths."""

    def f(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x * y)

    rows = jitney.ragged(BEHIND, lengths=SIZES)
    np.testing.assert_allclose(mapped(f)(rows, Y), [np.sum(y * y) for y in Y], rtol=1e-5, atol=1e-6)
