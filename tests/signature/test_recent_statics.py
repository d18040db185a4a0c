"""A static value that is known has the key that would be made of it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney._values.copies import snapshot
from jitney._values.recent_statics import RecentStatics, is_alike
from jitney._values.static_values import Opaque, static_key
from tests._arrays import array

from .._examples import examples
from ._static_values import VALUES, change, neighbours, values

MANY = settings(max_examples=max(200, settings.default.max_examples))
X = array(np.ones(2))


@pytest.mark.rest
@MANY
@given(VALUES, VALUES)
@examples(*({"a": a, "b": b} for a, b in neighbours()))
def test_any_two_values_that_are_alike_have_one_key(a, b):
    """As they come, and each beside a copy of itself."""
    assert_one_key_if_alike(a, b)


def test_each_two_values_of_the_table_that_are_alike_have_one_key():
    """The property above, for all pairs of the values that are written by hand."""
    for a, b in itertools.product(values(), values()):
        assert_one_key_if_alike(a, b)


def assert_one_key_if_alike(a, b):
    for one, other in (
        (a, b),
        (a, snapshot(a)),
        ([a, b], [b, a]),
        ((a,), (b,)),
        ({"k": a}, {"k": b}),
        ({"k": a, "l": 1}, {"l": 1, "k": a}),
    ):
        if is_alike(one, other):
            assert static_key(one) == static_key(other)


@MANY
@given(VALUES)
@examples(*({"value": value} for value in values()))  # changed in place, so made anew
def test_no_change_in_place_is_overlooked(value):
    """What is known is a copy."""
    known = RecentStatics()
    known.opaque(value), known.opaque([value])
    if change(value):
        assert known.opaque(value).key == Opaque(value).key
        assert known.opaque([value]).key == Opaque([value]).key


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1], [True]),
        ([1], [1.0]),
        ([0.0], [-0.0]),
        ([float("nan")], [float("nan")]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1], (1,)),
        (np.zeros(1), -np.zeros(1)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(1, "<f4"), np.zeros(1, "<i4")),
        ([[]], [()]),
        (np.zeros(1), np.zeros(1, ">f8")),
    ],
)
def test_what_a_body_can_tell_apart_is_not_alike(a, b):
    """Nor is NaN, of which the key is made."""
    assert not is_alike(a, b)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.0, "x"],
        {"a": (1, [2]), "b": None},
        (0.0, -0.0),
        np.arange(6.0).reshape(2, 3).T,
        [np.arange(3)],
        {},
    ],
)
def test_what_is_the_same_anew_is_alike(value):
    """So that its key need not be made."""
    assert is_alike(snapshot(value), value)


def test_a_list_changed_between_calls_is_another_program():
    """And one changed back is the first."""
    program = optimize(
        lambda x, factors, *, more: x * sum(factors) + more["b"], static=("factors", "more")
    )
    factors, more = [1.0, 2.0], {"b": 1.0}
    for _ in range(3):
        np.testing.assert_array_equal(program(X, factors, more=more), [4, 4])
        factors[0] = 5.0
        np.testing.assert_array_equal(program(X, factors, more=more), [8, 8])
        more["b"] = 2.0
        np.testing.assert_array_equal(program(X, factors, more=more), [9, 9])
        factors[0], more["b"] = 1.0, 1.0
    assert program.stats.traces == 3


def test_an_array_changed_between_calls_is_another_program():
    """In place, small and too large to be kept."""
    for size in (3, 200_000):
        program = optimize(lambda x, table: x + table.sum(), static="table")
        table = np.zeros(size, np.float32)
        for n in (1.0, 0.0, 2.0):
            table[0] = n
            for _ in range(2):
                np.testing.assert_array_equal(program(X, table), 1 + n * X)
