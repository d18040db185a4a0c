"""The table of kinds and the folds over it, on values of every kind at random.

`python -m tests.signature._drawn_values` compares two versions on 10,000 of them.
"""

import functools
import random

import numpy as np
import pytest

from jitney import optimize
from jitney._values.copies import snapshot
from jitney._values.kinds import KINDS, attributes_beside, kind_of
from jitney._values.mutable_objects import state
from jitney._values.static_values import static_key
from jitney.errors import StaticError
from tests.signature._drawn_values import Plain, described, drawn, many

X = np.ones(3, np.float32)
VALUES = many(400)


def key_of(value):
    try:
        return static_key(value)
    except StaticError:
        return None


def test_the_values_are_of_every_kind():
    """Each line of the table is met, and so are values of no kind."""
    met = {kind_of(value).name for value in many(2000)}
    assert {kind.name for kind in KINDS} - met <= {"method-wrapper"}
    assert {"record", "object"} <= met


def test_any_value_is_built_again_from_its_parts():
    """Of the same class, with the same parts in the same order."""
    for value in VALUES:
        kind = kind_of(value)
        if kind.new is None or attributes_beside(value, kind) or type(value).__name__ == "Row":
            continue
        twin = kind.build(type(value), kind.parts(value), kind.options(value))
        assert described(twin) == described(value)


def test_any_two_values_of_one_key_look_the_same():
    """In the words of a walk of its own (`described`), which knows no table."""
    words = {}
    for value in VALUES:
        key = key_of(value)
        if key is not None:
            assert words.setdefault(key, described(value)) == described(value)


def test_any_value_drawn_again_has_the_same_key_and_hash():
    """Objects that are equal to nothing but themselves are shared by all values."""
    for i in range(200):
        value, twin = drawn(random.Random(i)), drawn(random.Random(i))
        key, again = key_of(value), key_of(twin)
        assert (key is None) == (again is None)
        if "iterator" not in described(value) and "append" not in described(value):
            assert key == again
            assert hash(key) == hash(again)


def test_any_copy_looks_like_its_value_and_has_its_key():
    """Attributes, options and the order of parts included."""
    for value in VALUES:
        twin = snapshot(value)
        assert described(twin) == described(value)
        assert key_of(twin) == key_of(value)


def test_any_state_is_the_same_while_nothing_changes():
    """Of the value itself, twice."""
    for value in VALUES:
        assert state(value) == state(value)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda it: slice(it),
        lambda it: (slice(None, it),),
        lambda it: _with_attribute(functools.partial(max, 1), it),
    ],
    ids=["slice", "slice in a tuple", "attribute of a partial"],
)
def test_an_object_in_a_part_that_is_rarely_looked_at_is_followed(wrap):
    """A body that reads it sees a change of it, as it does through a list."""
    it = Plain(2.0)
    f = optimize(static="where")(lambda x, where: x * it.held)
    where = wrap(it)
    np.testing.assert_array_equal(f(X, where), 2 * X)
    it.held = 5.0
    np.testing.assert_array_equal(f(X, where), 5 * X)


def _with_attribute(value, it):
    value.note = it
    return value
