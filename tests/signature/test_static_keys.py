"""Static values are keyed by everything that a body could see of them."""

import collections
import copy
import dataclasses
import functools
import itertools
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import jitney
from jitney._values.static_values import Opaque, keyer_of, static_key
from jitney.errors import StaticError
from tests._arrays import array, random_key, weak
from tests._examples import examples
from tests.signature._static_values import (
    VALUES,
    Colour,
    Frozen,
    Loose,
    Metres,
    Pair,
    Scale,
    neighbours,
    shown,
    values,
    with_unit,
)

MANY = settings(max_examples=max(200, settings.default.max_examples))


@MANY
@given(VALUES)
@examples(*({"value": value} for value in values()))
def test_any_value_and_an_equal_one_share_a_key(value):
    """A deep copy has the same key, and the same hash of it."""
    twin = copy.deepcopy(value)
    assert static_key(value) == static_key(twin)
    assert hash(static_key(value)) == hash(static_key(twin))


@MANY
@given(VALUES, VALUES)
@examples(*({"a": a, "b": b} for a, b in neighbours()))
def test_any_two_values_share_a_key_just_if_they_look_the_same(a, b):
    """Types, signs of zero, NaN, order of dicts, dtypes and shapes of arrays: whatever shows in
    words shows in the key.
    """
    assert (static_key(a) == static_key(b)) == (shown(a) == shown(b))


def test_each_two_values_of_the_table_share_a_key_just_if_they_look_the_same():
    """The property above, for all pairs of the values that are written by hand."""
    keys = [(static_key(value), shown(value)) for value in values()]
    anew = [(static_key(value), shown(value)) for value in values()]
    pairs = itertools.product(keys, anew)
    assert [(a, b) for (key, a), (other, b) in pairs if (key == other) != (a == b)] == []


@dataclasses.dataclass(init=False)
class SetRecord(set):
    n: int = 0


DIFFERENT = {
    "numbers of three types": (
        1,
        True,
        1.0,
        1 + 0j,
        np.int32(1),
        np.int64(1),
        np.float32(1),
        np.float64(1),
        np.bool_(True),
    ),
    "signs of zero": (0.0, -0.0),
    "signs of complex zero": (0j, complex(-0.0, 0.0), complex(0.0, -0.0)),
    "signs of a subclass of float": (Metres(0.0), Metres(-0.0), 0.0),
    "infinities and NaN": (math.inf, -math.inf, math.nan),
    "empty things": ([], (), {}, set(), frozenset(), "", b"", None, 0, False, np.zeros(0)),
    "empty arrays": tuple(
        np.zeros(shape, dtype) for shape in ((0,), (0, 2), (2, 0)) for dtype in ("float32", "int32")
    ),
    "orders": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [1, 2], [2, 1]),
    "keys of dicts": ({1: "x"}, {True: "x"}, {1.0: "x"}),
    "modules": (
        Scale(1),
        Scale(True),
        Scale(1.0),
        Scale(1, "other"),
        Scale(array(np.ones(1))),
        Scale(np.ones(1)),
    ),
    "frozen dataclasses": (Frozen(1), Frozen(True), Frozen(1.0), Frozen((1,)), Frozen((1.0,))),
    "items of sets": ({1}, {True}, {1.0}, frozenset({1})),
    "named tuples": (Pair(1, 2), (1, 2), Pair(1, 2.0)),
    "what makes missing items": (collections.defaultdict(int), collections.defaultdict(list), {}),
    "units of arrays": (with_unit([1.0], "m"), with_unit([1.0], "km"), np.ones(1)),
    "masks of arrays": (
        np.ma.array([1, 2], mask=[True, False]),
        np.ma.array([1, 2], mask=[False, True]),
    ),
    "records that are sets": tuple(SetRecord(members) for members in ({1}, {2}, {1.0})),
    "names of fields": tuple(
        np.array([(1, None)], dtype=[(name, "O"), ("b", "O")]) for name in "ac"
    ),
    "weak types": (weak(1.0), array(1.0), np.float32(1.0)),
    "keys of random numbers": (random_key(0), random_key(1), array([0, 0], np.uint32)),
    "slices": (slice(0, 1), slice(False, True), slice(0, 1, 1), slice(1)),
    "partials": (
        functools.partial(max, 1),
        functools.partial(max, 1.0),
        functools.partial(min, 1),
        functools.partial(max, key=1),
    ),
    "methods": (Loose(1).__eq__, Loose(2).__eq__, Loose(1).__repr__),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_values_that_a_body_can_tell_apart_have_different_keys(name):
    """Each of these differs from all others of its line, alone and inside a list."""
    for wrap in (lambda value: value, lambda value: [value], lambda value: {"k": (value,)}):
        assert len({static_key(wrap(value)) for value in DIFFERENT[name]}) == len(DIFFERENT[name])


@pytest.mark.parametrize(
    "make",
    [
        lambda: math.nan,
        lambda: float("nan"),
        lambda: [float("nan"), {"a": np.array([math.nan])}],
        lambda: np.float32("nan"),
        lambda: Loose([1, {"k": {1, 2}}]),
        lambda: Frozen([np.arange(3)]),
        lambda: functools.partial(np.add, np.ones(2)),
        lambda: Loose(1).__eq__,
        lambda: slice(0, 3),
        lambda: types.MappingProxyType({"a": [1]}),
        lambda: jnp.arange(3),
        lambda: jax.random.key(3),
        lambda: {3, "a", (1, 2)},
        lambda: np.array([1, "a", None], dtype=object),
    ],
)
def test_values_made_anew_have_one_key(make):
    """Equal by value, different by identity; NaN too."""
    assert static_key(make()) == static_key(make())


def test_a_field_that_is_not_compared_is_not_in_the_key():
    """`field(compare=False)` says that it does not matter."""
    assert static_key(Frozen(1, note="a")) == static_key(Frozen(1, note="b"))


def test_a_class_with_its_own_hash_is_what_its_equality_says():
    """Its value need not be made of parts at all."""

    class Name:
        def __init__(self, text):
            self.text = text

        def __hash__(self):
            return hash(self.text.lower())

        def __eq__(self, other):
            return self.text.lower() == other.text.lower()

    assert static_key(Name("a")) == static_key(Name("A")) != static_key(Name("b"))


def test_a_dataclass_by_identity_is_itself():
    """`eq=False`: two of equal fields are two."""

    @dataclasses.dataclass(eq=False)
    class Handle:
        n: int

    one = Handle(1)
    assert static_key(one) == static_key(one) != static_key(Handle(1))


class Unkeyed:
    """A class of the user's, which can get a hash."""

    __hash__ = None


def test_a_value_without_a_key_is_refused():
    """The type is named, and what to do about it; also where it hides inside. A class of Python's
    own cannot be changed.
    """
    for value, fix in (
        (Unkeyed(), "give the type `__hash__` and `__eq__`"),
        ([Unkeyed()], "give the type `__hash__` and `__eq__`"),
        ([bytearray(b"a")], "pass `list(...)` of it"),
        ({}.keys(), "pass `list(...)` of it"),
        ({}.values(), "pass `list(...)` of it"),
        ([collections.OrderedDict().values()], "pass `list(...)` of it"),
        (collections.UserDict(a=1), "pass `dict(...)` of it"),
        (Loose({"k": types.SimpleNamespace(n=1)}), "pass `vars(...)` of it"),
    ):
        with pytest.raises(StaticError, match="has no key") as caught:
            static_key(value)
        assert fix in str(caught.value)


@pytest.mark.filterwarnings("ignore:Python iterable type")  # JAX's own, in time an error
def test_the_values_of_a_dict_are_refused():
    """A view has the hash of its identity, and other numbers when its dict changes."""
    for view in ({"a": 1.0}.values(), collections.OrderedDict(a=1.0).values()):
        with pytest.raises(StaticError, match=r"pass `list\(...\)` of it"):
            jitney.optimize(lambda view, x: sum(view) * x)(view, jnp.ones(()))


def test_a_value_that_contains_itself_is_refused():
    """An endless key would never be done."""
    endless: list = []
    endless.append([endless])
    with pytest.raises(StaticError, match="contains itself"):
        static_key(endless)
    shared = [1]
    assert static_key([shared, shared]) == static_key([[1], [1]])


@pytest.mark.parametrize(
    "kind",
    [int, bool, str, float, Metres, list, Frozen, Loose, slice, np.ndarray, type, Colour, Opaque],
)
def test_the_key_of_a_leaf_tells_what_the_key_of_a_value_tells(kind):
    """The shorter key that a call uses, where the type is known, separates the same values."""
    values = {
        int: (1, 2),
        bool: (True, False),
        str: ("a", "b"),
        float: (0.0, -0.0, math.nan),
        Metres: (Metres(0.0), Metres(-0.0)),
        list: ([1], [1.0]),
        Frozen: (Frozen(1), Frozen(1.0)),
        Loose: (Loose(1), Loose(True)),
        slice: (slice(1), slice(True)),
        np.ndarray: (np.zeros(1), np.zeros(1, int)),
        type: (int, float),
        Colour: tuple(Colour),
        Opaque: (Opaque([1]), Opaque([2])),
    }[kind]
    keyer = keyer_of(kind) or (lambda leaf: leaf)
    assert len({keyer(value) for value in values}) == len(values)
