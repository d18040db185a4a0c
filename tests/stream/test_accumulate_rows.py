"""Gradients that are summed over rows of unlike lengths. Reference: NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, BFloat16, Float

import jitney
from jitney._axes.rule import POINTWISE, Rule
from jitney._axes.rules import RULES
from jitney.errors import ContractError, OptionError, VerificationError
from tests._monitor import listening
from tests._switched import environment

RNG = np.random.default_rng(2)
SIZES = (3, 8, 1, 20, 5, 0, 3, *[7] * 30, *range(2, 40))
ROWS = [RNG.normal(size=(n, 3)).astype(np.float32) for n in SIZES]
SCALES = RNG.normal(size=len(ROWS)).astype(np.float32)
W = {"w": np.float32([1, -2, 0.5]), "b": np.float32(0.3)}


def loss(params: dict, x: Float[Array, "n 3"], s: Float[Array, ""]) -> Float[Array, ""]:
    return s * jnp.sum(jnp.tanh(x @ params["w"] + params["b"])) / (1 + x.shape[0])


def summed(fn=loss, microbatch=16, **keywords):
    program = jitney.optimize(fn, vmap="row", pad={"n": "pow2"}, **keywords)
    return jitney.accumulate(program, axis="row", microbatch=microbatch, wrt="params")


def plain(rows=ROWS, scales=SCALES):
    value, by_w, by_b = 0.0, np.zeros(3), 0.0
    for x, s in zip(rows, scales, strict=True):
        height = np.tanh(x.astype(np.float64) @ W["w"] + W["b"])
        slope = s * (1 - height**2) / (1 + len(x))
        value += s * height.sum() / (1 + len(x))
        by_w, by_b = by_w + slope @ x, by_b + slope.sum()
    return value, {"b": by_b, "w": by_w}


def close(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4)


few_or_all = pytest.mark.parametrize("count", [36, len(ROWS)], ids=["few", "all"])


@pytest.mark.core("16-few")
@few_or_all
@pytest.mark.parametrize("microbatch", [1, 16, 1000])
def test_value_and_gradient_are_sums_over_rows(microbatch, count):
    """Whatever the number of rows in a program is; rows that fill a block count once."""
    rows, scales = ROWS[:count], SCALES[:count]
    close(summed(microbatch=microbatch)(W, rows, scales), plain(rows, scales))


@pytest.mark.core("few")
@few_or_all
def test_padded_arrays_and_equal_rows_are_summed_too(count):
    rows, scales, lengths = ROWS[:count], SCALES[:count], np.array(SIZES[:count])
    table = np.full((count, 40, 3), np.nan, np.float32)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    close(summed()(W, table, scales, lengths={"n": lengths}), plain(rows, scales))
    equal = [row for row in ROWS if len(row) == 7]
    close(summed()(W, np.stack(equal), SCALES[: len(equal)]), plain(equal, SCALES[: len(equal)]))


@pytest.mark.core("few")
@few_or_all
def test_a_fresh_mixture_compiles_nothing(count):
    f = summed()
    f(W, ROWS[:count], SCALES[:count])
    order = RNG.permutation(count)
    with listening() as seen:
        got = f(W, [ROWS[i] for i in order], SCALES[order])
    assert seen.count("compile") == 0
    close(got, plain(ROWS[:count], SCALES[:count]))


@pytest.mark.rest
@pytest.mark.parametrize(
    "scope", [jax.disable_jit, lambda: environment(JITNEY_DISABLE="eager")], ids=["jit", "jitney"]
)
def test_nothing_is_compiled_where_it_is_switched_off(scope):
    """It is the sum over rows there too, of a list and of an array of equal rows."""
    equal = [row for row in ROWS if len(row) == 7]
    with scope():
        close(summed()(W, ROWS[:4], SCALES[:4]), plain(ROWS[:4], SCALES[:4]))
        close(
            summed()(W, np.stack(equal), SCALES[: len(equal)]), plain(equal, SCALES[: len(equal)])
        )


@pytest.mark.rest
def test_rows_that_are_summed_are_verified(monkeypatch):
    close(summed(verify=True)(W, ROWS[:6], SCALES[:6]), plain(ROWS[:6], SCALES[:6]))
    monkeypatch.setitem(RULES, "reduce_sum", Rule(RULES["reduce_sum"].uses, POINTWISE.pad))

    def squares(params: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return params * jnp.sum((x + 1) ** 2)

    with pytest.raises(VerificationError, match="Under pad over 'n'"):
        summed(squares, verify=True)(np.float32(1), [np.ones(5, np.float32)])


def test_sums_of_a_low_type_are_accumulated_in_a_wider_one():
    """A thousand rows of one, a row in each program: 256 + 1 is 256 in bfloat16."""

    def mean(params: BFloat16[Array, ""], x: BFloat16[Array, "n"]) -> BFloat16[Array, ""]:
        return params * jnp.max(x)

    one = np.ones((), jnp.bfloat16)
    value, slope = summed(mean, microbatch=1)(one, [np.ones(2, jnp.bfloat16)] * 1000)
    assert value.dtype == slope.dtype == jnp.bfloat16
    assert float(value) == float(slope) == 1000


def test_what_is_no_sum_over_rows_is_a_sentence():
    program = jitney.optimize(loss, vmap="row", pad={"n": "pow2"})
    every = jitney.accumulate(program, axis="row", microbatch=4)
    with pytest.raises(ContractError, match="summed over rows, and 'x' has another array in each"):
        every(W, ROWS, SCALES)
    with pytest.raises(OptionError, match="has_aux=True does not go with rows"):
        jitney.accumulate(program, axis="row", microbatch=4, has_aux=True)
