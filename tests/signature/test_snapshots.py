"""A copy of a static value is that value, and no later change reaches it."""

import collections
import copy
import functools
import math

import numpy as np
from hypothesis import given, settings

from jitney._values.copies import snapshot
from jitney._values.static_values import static_key
from tests._arrays import array
from tests._examples import examples
from tests.signature._static_values import (
    VALUES,
    Colour,
    Frozen,
    Loose,
    Pair,
    change,
    shown,
    values,
    with_unit,
)

X = array(np.arange(3.0))
MANY = settings(max_examples=max(200, settings.default.max_examples))


@MANY
@given(VALUES)
@examples(*({"value": value} for value in values()))
def test_any_snapshot_is_the_same_value(value):
    """In words and in key."""
    twin = snapshot(value)
    assert shown(twin) == shown(value)
    assert static_key(twin) == static_key(value)


@MANY
@given(VALUES)
@examples(*({"value": value} for value in values()))  # changed in place, so made anew
def test_no_change_in_place_reaches_a_key_or_a_snapshot(value):
    """Lists, dicts, sets, arrays and records, at any depth, changed after the call."""
    key, twin, words = static_key(value), snapshot(value), shown(value)
    fresh = copy.deepcopy(value)
    change(value)
    assert shown(twin) == words
    assert key == static_key(twin) == static_key(fresh)
    assert (static_key(value) == key) == (shown(value) == words)


def test_a_snapshot_keeps_what_cannot_change():
    """No copy of strings, functions, JAX arrays, frozen values and tuples of them: `is` still works
    in a body.
    """
    marker = object()
    for value in (
        "text",
        math.sin,
        X,
        marker,
        (1, marker),
        Frozen(marker),
        frozenset({1}),
        Colour.RED,
        Pair(1, "a"),
    ):
        assert snapshot(value) is value


def test_a_snapshot_of_a_subclass_is_of_that_subclass():
    """Whatever its constructor asks for, and with what it holds besides."""

    class Point(tuple):
        def __new__(cls, x, y):
            return super().__new__(cls, (x, y))

    class Bag(dict):
        def __init__(self, name):
            super().__init__()
            self.name = name

    bag = Bag("mine")
    bag["k"] = [1]
    point = Point([1], 2)
    point.name = "p"
    counted = collections.defaultdict(list, a=[1])
    for value in (
        bag,
        point,
        counted,
        Pair([1], 2),
        with_unit([1.0], "m"),
        functools.partial(max, [1]),
    ):
        twin = snapshot(value)
        assert twin is not value
        assert type(twin) is type(value)
        assert static_key(twin) == static_key(value)
        assert vars(twin) == vars(value) if hasattr(value, "__dict__") else True
    assert snapshot(counted).default_factory is list


def test_what_is_one_object_is_one_in_the_copy():
    """Parts that are the same, and containers that contain themselves."""
    row = [1.0]
    twins = snapshot([row, (row,), {"row": row}])
    assert twins[0] is twins[1][0] is twins[2]["row"] is not row
    ring: list = [row]
    ring.append({"ring": ring})
    twin = snapshot(ring)
    assert twin is twin[1]["ring"] is not ring


def test_a_record_may_contain_itself():
    """Its copy contains the copy; one that holds nothing else that changes is copied all the
    same.
    """
    record = Loose([1.0])
    record.n.append(record)
    twin = snapshot(record)
    assert twin is not record
    assert twin.n[1] is twin
    assert twin.n[0] == 1.0
