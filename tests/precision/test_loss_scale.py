"""`jitney.LossScale`: gradients in float16 that neither vanish nor overflow, and the steps it
costs.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jitney
from jitney import JitneyWarning, LossScale, optimize
from jitney.errors import OptionError, TraceError
from tests._arrays import array


def history(scale, finite):
    """(factor, skipped) after each step."""

    def step(scale, ok):
        scale = scale.adjust(ok)
        return scale, (scale.factor, scale.skipped)

    return [np.asarray(x).tolist() for x in lax.scan(step, scale, jnp.asarray(finite))[1]]


def test_the_factor_falls_at_once_and_rises_after_a_row_of_finite_steps():
    """Halved by each step that is not finite, doubled after three that are, within its bounds;
    skipped steps are counted.
    """
    scale = LossScale(8.0, period=3, least=2.0, most=16.0)
    factors, skipped = history(
        scale,
        [
            False,
            False,
            False,
            True,
            True,
            False,
            True,
            True,
            True,
            True,
            True,
            True,
            True,
            True,
            True,
            True,
        ],
    )
    assert factors == [4, 2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16]
    assert skipped == [1, 2, 3, 3, 3, 4, *[4] * 10]
    assert history(LossScale(16.0, period=1, most=16.0), [True, True])[0] == [16, 16]


def after(scale, finite):
    """A scale after these steps, in one program."""
    return jax.jit(
        lambda scale, finite: lax.scan(lambda scale, ok: (scale.adjust(ok), None), scale, finite)[0]
    )(scale, jnp.asarray(finite))


BAD, GOOD = [False], [True]


@pytest.mark.core("finite0-0", "finite2-40", "finite3-0")
@pytest.mark.parametrize(
    ("finite", "stuck"),
    [
        (BAD * 3, 0),
        (BAD * 4, 1),
        (BAD * 43, 40),
        (BAD * 43 + GOOD, 0),
        (BAD * 43 + GOOD + BAD, 1),
        (GOOD * 50, 0),
    ],
)
def test_steps_that_are_skipped_at_the_least_factor_are_counted(finite, stuck):
    """From 8, three steps lower the factor to 1; those behind them are lost, until one is
    finite.
    """
    assert int(after(LossScale(8.0), finite).stuck) == stuck


def test_a_finite_step_starts_a_new_streak():
    """Whatever was skipped before it."""
    assert int(after(LossScale(1.0), BAD * 5 + GOOD * 2).streak) == 2


def test_a_run_that_stands_still_says_so():
    """Where somebody looks, with what to do; a step less is no news."""
    assert not after(LossScale(1.0), BAD * 39).check()
    with pytest.warns(
        JitneyWarning,
        match="the last 40 steps or more were skipped, all at the least factor, 1.*\n.*\nFix: ",
    ) as told:
        assert after(LossScale(1.0), BAD * 40).check()
    assert [each.filename for each in told] == [__file__]


def test_one_of_many_that_stands_still_says_so():
    """An ensemble has a scale each."""
    many = jax.vmap(after, in_axes=(None, 0))(LossScale(1.0), jnp.asarray([GOOD * 3, BAD * 3]))
    with pytest.warns(JitneyWarning, match="the last 3 steps"):
        assert many.check(3)


def test_a_loop_outside_of_jit_says_so_by_itself():
    """Each `adjust` has the count of the step before."""
    scale = LossScale(1.0)
    for _ in range(40):
        scale = jax.block_until_ready(scale.adjust(jnp.asarray(False)))
    with pytest.warns(JitneyWarning, match="the last 40 steps"):
        scale.adjust(jnp.asarray(False))


def test_a_check_needs_a_value():
    """Which a traced step has not."""
    with pytest.raises(TraceError, match="call it on what the step returned"):
        jax.jit(lambda scale: scale.check())(LossScale())


def test_scaling_is_undone_to_the_bit_and_keeps_types():
    """By powers of two; low gradients come back in float32; what is not a float passes."""
    scale = LossScale(1024.0)
    tree = {"a": jnp.float32(0.1), "h": jnp.float16(0.1), "i": jnp.arange(2), "f": "text"}
    scaled = scale.scale({"a": tree["a"], "h": tree["h"], "i": tree["i"]})
    assert [str(leaf.dtype) for leaf in scaled.values()] == ["float32", "float16", "int32"]
    assert float(scaled["a"]) == 1024 * float(tree["a"])
    back = scale.unscale(scaled)
    assert back["h"].dtype == jnp.float32
    assert [float(back["a"]), float(back["h"])] == [float(tree["a"]), float(tree["h"])]


W = array(np.full((4, 4), 0.5))
X = array(np.ones((2, 4)))


@optimize(precision="fp16")
def tiny(w, x):
    """Its cotangents are 1e-9, which is 0 in float16."""
    return jnp.sum(x @ w) * 1e-9


def test_a_gradient_that_vanishes_in_float16_is_there_with_a_scaled_loss():
    """d/dw of 1e-9 * sum(x w) is 2e-9 everywhere."""
    assert not jax.grad(tiny)(W, X).any()
    scale = LossScale(2.0**15)
    grad = scale.unscale(jax.grad(lambda w: scale.scale(tiny(w, X)))(W))
    np.testing.assert_allclose(grad, np.full((4, 4), 2e-9), rtol=2e-3)


def test_a_step_that_overflows_is_skipped_and_the_next_one_is_not():
    """A factor that is too large for float16 makes infinities; the parameters stay, and the count
    says so.
    """

    @optimize(donate=("w", "scale"))
    def step(w, scale, x):
        grads = scale.unscale(jax.grad(lambda w: scale.scale(jnp.float32(1e8) * tiny(w, x)))(w))
        finite = scale.all_finite(grads)
        return scale.select(finite, w - grads, w), scale.adjust(finite), finite

    w, scale, done = W, LossScale(2.0**20), []
    for _ in range(6):
        w, scale, finite = step(w + 0, scale, X)
        done.append(bool(finite))
    skips = done.index(True)
    assert 0 < skips < 6
    assert done == [False] * skips + [True] * (6 - skips)
    assert (int(scale.skipped), float(scale.factor)) == (skips, 2.0 ** (20 - skips))
    np.testing.assert_allclose(w, 0.5 - (6 - skips) * np.full((4, 4), 0.2), rtol=1e-2)
    assert step.stats.compiles == 1


def test_finite_and_select_know_what_is_no_array():
    """Functions and integers in a module are no numbers; the rest is chosen as a whole."""

    class Model(eqx.Module):
        w: jax.Array
        activation: Any

    model, bad = Model(jnp.ones(2), jnp.tanh), Model(jnp.array([jnp.nan, 0.0]), jnp.tanh)
    assert LossScale.all_finite(model)
    assert not LossScale.all_finite(bad)
    assert LossScale.all_finite({"n": 3, "f": None})
    chosen = LossScale.select(LossScale.all_finite(bad), bad, model)
    assert eqx.tree_equal(chosen, model)
    assert chosen.activation is bad.activation


@pytest.mark.parametrize(
    "bad", [{"initial": 0.0}, {"initial": 4.0, "most": 2.0}, {"growth": 1.0}, {"period": 0}]
)
def test_numbers_that_contradict_each_other_are_refused(bad):
    """When the scale is made."""
    with pytest.raises(OptionError, match="least <= initial <= most"):
        jitney.LossScale(**bad)


@pytest.mark.core("float16", "complex64", "float8_e5m2")
@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "bfloat16",
        "float32",
        "float8_e4m3fn",
        "float8_e5m2",
        "complex64",
        "float",
        "complex",
    ],
)
def test_every_kind_of_gradient_is_unscaled(dtype):
    """What `all_finite` looks at, `scale` and `unscale` take too: complex numbers, narrow floats,
    and numbers of Python.
    """
    scale = jitney.LossScale(4.0)
    value = {"float": 8.0, "complex": 8.0 + 4.0j}.get(dtype) or jnp.asarray(
        [8 + 4j, 2] if dtype == "complex64" else [8, 2], dtype
    )
    grads = scale.unscale({"g": value})["g"]
    np.testing.assert_array_equal(np.asarray(grads), np.asarray(value).astype(np.complex64) / 4)
    scaled = scale.scale(value)
    np.testing.assert_array_equal(
        np.asarray(scaled).astype(np.complex64), np.asarray(value).astype(np.complex64) * 4
    )
    assert bool(scale.all_finite(value))
    assert not bool(
        scale.all_finite(
            {
                "g": value * np.nan
                if isinstance(value, (float, complex))
                else value.at[0].set(np.nan)
            }
        )
    )


def test_an_infinite_part_of_a_complex_gradient_stays_one():
    """The other part is a number still."""
    grads = jitney.LossScale(4.0).unscale(jnp.asarray([complex(np.inf, 4)], jnp.complex64))
    np.testing.assert_array_equal(np.asarray([grads.real, grads.imag]), [[np.inf], [1]])


def test_what_is_no_gradient_stays():
    """Integers, keys, and what stands for the derivative of an integer."""
    tree = {
        "i": jnp.arange(3),
        "b": True,
        "zero": np.zeros(2, jax.dtypes.float0),
        "key": jax.random.key(0),
        "none": None,
        "text": "a",
    }
    out = jitney.LossScale(4.0).unscale(tree)
    assert all(out[name] is tree[name] for name in tree)
    assert bool(jitney.LossScale.all_finite(tree))
