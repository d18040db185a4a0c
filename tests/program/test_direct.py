"""Calls that give each parameter one array find their program by the types of the call."""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney import optimize
from jitney.errors import ContractError
from tests._examples import examples


def pair(v):
    return np.full(2, v, np.float32)


KINDS = st.lists(st.sampled_from([jnp.float32, pair, float]), min_size=3, max_size=3)


def plain(a, b, *, c):
    return a * 100 + b * 10 + c


PROGRAM = optimize(plain)


@given(st.lists(st.tuples(st.integers(0, 2), st.permutations("abc"), KINDS), max_size=12))
@examples(
    {"calls": []},
    {"calls": [(2, "abc", [jnp.float32] * 3), (2, "abc", [jnp.float32] * 3)]},
    {
        "calls": [
            (0, "cba", [jnp.float32, pair, float]),
            (0, "bac", [jnp.float32, pair, float]),
            (1, "cab", [jnp.float32, pair, float]),
        ]
    },
    # there and back
    {
        "calls": [
            (2, "abc", [float] * 3),
            (2, "abc", [pair] * 3),
            (2, "abc", [float] * 3),
            (0, "cab", [pair] * 3),
        ]
    },
    # each kind at each place
    {"calls": [(1, "acb", kinds) for kinds in itertools.permutations([jnp.float32, pair, float])]},
    {"calls": [(count, "bca", [pair, pair, jnp.float32]) for count in (0, 2, 1, 0)]},
)
@settings(max_examples=40, deadline=None)
def test_any_way_of_writing_a_call_gives_the_same(calls):
    """Positions, keywords in any order, and kinds of values, one after the other."""
    for count, order, kinds in calls:
        values = {
            name: kind(i + 1.0) for i, (name, kind) in enumerate(zip("abc", kinds, strict=True))
        }
        first = [values[name] for name in "abc"[:count]]
        rest = {name: values[name] for name in order if name not in "abc"[:count]}
        np.testing.assert_allclose(PROGRAM(*first, **rest), 123)


def test_what_is_left_out_is_its_default():
    """Before and after a call that gives it."""
    program = optimize(lambda x, y=2.0: x * y)
    x = jnp.arange(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(program(x), x * 2)
        np.testing.assert_array_equal(program(x, x), x * x)
        np.testing.assert_array_equal(program(x=x), x * 2)
        np.testing.assert_array_equal(program(y=x, x=x + 1), (x + 1) * x)


def test_a_bound_program_is_called_as_one():
    """With as many arrays as the one it was made of takes, and with fewer."""
    x, y = jnp.arange(3.0), jnp.full(3, 5.0)
    free = optimize(lambda a, b: a - b)
    bound = optimize(functools.partial(free.__wrapped__, y))
    for _ in range(2):
        np.testing.assert_array_equal(free(x, y), x - y)
        np.testing.assert_array_equal(bound(x), y - x)


def test_a_call_that_does_not_fit_is_refused_as_the_first_one_is():
    """One argument too many, one too few, and one given twice."""
    program = optimize(lambda x, y: x + y)
    x = jnp.arange(3.0)
    program(x, x), program(x, y=x)
    for args, kwargs in (((x,), {}), ((x, x, x), {}), ((x, x), {"y": x}), ((x,), {"z": x})):
        with pytest.raises(ContractError):
            program(*args, **kwargs)


def test_what_is_forgotten_is_traced_anew():
    """After `clear_cache`."""
    program = optimize(lambda x: x + 1)
    x = jnp.arange(3.0)
    program(x), program(x)
    program.clear_cache()
    program(x)
    assert program.stats.traces == 2


def test_as_many_arrays_as_one_likes():
    """`*args` are no parameters of one array each."""
    program = optimize(lambda x, *rest: x + sum(rest))
    x = jnp.arange(3.0)
    for count in (1, 2, 3, 2, 1):
        np.testing.assert_array_equal(program(*[x] * count), count * x)
