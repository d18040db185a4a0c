"""`max_compiles`: what happens past it."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import JitneyWarning, optimize
from jitney.errors import CompileError


def limited(limit, **options):
    @optimize(max_compiles=limit, **options)
    def energy(x: Float[Array, "n"]):
        return jnp.sum(x**2)

    return energy


ONES = [np.ones(n, np.float32) for n in range(9)]


def test_past_the_limit_one_warning_has_the_history():
    """The cause of each trace, with old and new; the calls run as they would."""
    f = limited(2)
    f(ONES[3]), f(ONES[4]), f(ONES[3])
    with pytest.warns(JitneyWarning) as caught:
        results = [f(ONES[5]), f(ONES[6])]
    assert results == [5, 6]
    (warning,) = caught
    text = str(warning.message)
    assert "1: first call" in text
    assert "2: 'x' float32[3] -> float32[4]" in text
    assert "3: 'x' float32[4] -> float32[5]" in text
    assert 'pad={"n": "pow2"}' in text
    assert warning.filename == __file__


def test_a_limit_may_be_an_error():
    """For each new program past it; those that are there go on."""
    f = limited("raise:2")
    f(ONES[3]), f(ONES[4])
    for _ in range(2):
        with pytest.raises(CompileError, match="max_compiles=2"):
            f(ONES[5])
    assert (f(ONES[3]), f(ONES[4])) == (3, 4)


def test_past_the_limit_calls_may_run_eagerly():
    """Those that have no program, and those only."""
    f = limited("eager:1")
    f(ONES[3])
    assert [f(ONES[n]) for n in (4, 5, 3, 4)] == [4, 5, 3, 4]
    assert (f.stats.eager, f.stats.compiles + f.stats.persistent_hits) == (3, 1)


def test_what_is_padded_stays_below_the_limit():
    """The sizes of a bucket are one program."""
    f = limited("raise:1", pad={"n": "pow2"})
    assert [f(ONES[n]) for n in (5, 6, 7, 8)] == [5, 6, 7, 8]


def test_ahead_of_time_the_limit_holds_too():
    """`compile` past it says so, whatever calls do."""
    f = limited("eager:1")
    f.compile(ONES[3])
    with pytest.raises(CompileError):
        f.compile(ONES[4])


def test_a_derivative_has_a_limit_of_its_own():
    """It is another program."""
    f = limited("raise:1")
    f(ONES[3])
    np.testing.assert_array_equal(f.grad(ONES[3], wrt="x"), 2 * ONES[3])
    with pytest.raises(CompileError, match=r"\.grad"):
        f.grad(ONES[4], wrt="x")


def test_inside_an_outer_jit_it_holds_as_well():
    """Each shape is traced there too; nothing is compiled of it, so nothing is counted."""
    f = limited("raise:1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [jax.jit(f)(ONES[n]) for n in (3, 4)] == [3, 4]


def test_the_plan_says_how_much_is_left():
    """And what happens past it."""
    f = limited("eager:3")
    f(ONES[3])
    assert "1 of 3 programs compiled; past it: eager" in str(f.plan(ONES[3]))
