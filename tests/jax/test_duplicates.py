"""Equal steps of a program are merged, and nothing else is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._jax.programs.duplicates import merge_duplicates
from jitney._jax.programs.ssa import flatten_program, run_steps, values_at

F = np.float32
X = np.linspace(0.1, 2.0, 7, dtype=F)


def merged(f, *args):
    """The names of the steps that remain, and the results of these on the arguments."""
    jaxpr = jax.make_jaxpr(f)(*args)
    flat = flatten_program(jaxpr)
    steps, gives = merge_duplicates(flat.steps, flat.gives)
    values = dict(zip(flat.takes, (*jaxpr.consts, *jax.tree.leaves(args)), strict=True))
    run_steps(steps, values)
    return [step.name for step in steps], values_at(gives, values)


def test_equal_steps_become_one_and_so_does_what_is_computed_from_them():
    """Two powers, and their sines: one of each."""

    def f(x, a):
        return jnp.sin(x**a) + jnp.sin(x**a)

    names, (out,) = merged(f, X, F(1.5))
    assert names == ["pow", "sin", "add"]
    np.testing.assert_allclose(out, 2 * np.sin(X**1.5), rtol=1e-6)


def test_a_result_that_was_merged_is_read_from_the_first():
    names, out = merged(lambda x: (jnp.cos(x), jnp.cos(x)), X)
    assert names == ["cos"]
    np.testing.assert_array_equal(out[0], out[1])


def test_steps_of_equal_calls_are_merged():
    """A function under `jit` that is called twice is inlined twice."""
    inner = jax.jit(lambda x: jnp.exp(x) * 2)
    names, _ = merged(lambda x: inner(x) - inner(x), X)
    assert names == ["exp", "mul", "sub"]


@pytest.mark.parametrize(
    ("f", "count"),
    [
        (lambda x: (x + 0.0, x + -0.0), 2),
        (lambda x: (x * 2, x * 3), 2),
        (lambda x: (x - 1, 1 - x), 2),
        (lambda x: (jnp.cumsum(x), jnp.cumsum(x[::-1])[::-1]), 4),
        (lambda x: (x.astype(jnp.int32), x.astype(jnp.int8)), 2),
        (lambda x: jax.lax.optimization_barrier((x, *jax.lax.optimization_barrier((x,)))), 2),
        (lambda x: (jnp.full((2,), 1, jnp.int32), jnp.full((2,), True)), 2),
        (lambda x: (jnp.full((2,), 1.0), jnp.full((2,), 1.0, jnp.float16)), 2),
    ],
    ids=[
        "zeros of two signs",
        "other constants",
        "other order",
        "other direction",
        "other dtypes",
        "barriers",
        "one and true",
        "literals of other dtypes",
    ],
)
def test_what_differs_stays(f, count):
    names, out = merged(f, X)
    assert len([name for name in names if name != "rev"]) + names.count("rev") == count
    for mine, theirs in zip(out, jax.jit(f)(X), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))


def test_calls_of_python_stay_two():
    """A callback may count its calls."""

    def f(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        one = jax.pure_callback(np.sin, shape, x)
        return one + jax.pure_callback(np.sin, shape, x)

    names, _ = merged(f, X)
    assert names.count("pure_callback") == 2


def test_draws_of_a_generator_with_a_state_stay_two():
    names, _ = merged(lambda x: [jax.lax.rng_uniform(x, 2 * x, (3,)) for _ in range(2)], F(1))
    assert names.count("rng_uniform") == 2


def test_other_settings_stay_apart():
    """The same random bits, asked for under two settings of Threefry."""
    key = jax.random.key(0)

    def f(key):
        with jax.threefry_partitionable(True):
            one = jax.random.bits(key, (4,))
        with jax.threefry_partitionable(False):
            return one, jax.random.bits(key, (4,))

    names, (one, other) = merged(f, key)
    assert names.count("random_bits") == 2
    assert not np.array_equal(one, other)
