"""A copy of a container is built by parts: no method of its class has a say in it."""

import collections
import copy
import datetime
import decimal
import functools
import inspect
import pathlib
import re
import types
import typing
import uuid
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitney import optimize
from jitney._values.copies import snapshot
from jitney._values.static_values import static_key
from jitney.errors import StaticError
from tests._examples import examples


class Adding(dict):
    """As of a `Counter`, what an update does is not to put in."""

    def update(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] = self.get(key, 0) + value

    def __setitem__(self, key, value):
        super().__setitem__(key, value * 10)

    def items(self):
        return [(key, 0) for key in self]


class ReadOnly(dict):
    def __setitem__(self, key, value):
        raise TypeError("read only")

    update = clear = pop = __setitem__


class Named(dict):
    def __init__(self, *, name):
        super().__init__()
        self.name = name


class Doubling(list):
    def __iter__(self):
        return iter([part for item in list.__iter__(self) for part in (item, item)])

    def extend(self, items):
        raise TypeError("no")

    append = __setitem__ = extend


class Slotted(dict):
    __slots__ = ("_private", "unit")


class Ring(collections.deque):
    def __init__(self, *, of):
        super().__init__(of, maxlen=3)


class Words(bytearray):
    pass


class Chosen(set):
    def update(self, *others):
        raise TypeError("no")


class Late(collections.defaultdict):
    def __init__(self, *, make):
        super().__init__(make)


class Bound(functools.partial):
    pass


def made():
    """Containers of the standard library and subclasses of each, new ones in each call."""
    late, named, slotted = Late(make=list), Named(name=["n"]), Slotted(a=[1])
    late["k"].append(1)
    named["k"] = [1]
    slotted.unit = ["m"]
    ordered = collections.OrderedDict(a=[1], b=2)
    ordered.move_to_end("a")
    bound = Bound(max, [1], key=None)
    bound.note = ["n"]
    objects = np.array([[1], None], object)
    return [
        collections.Counter("aab"),
        collections.Counter(a=-1),
        Adding(a=1),
        ReadOnly(a=[1]),
        named,
        slotted,
        late,
        ordered,
        collections.defaultdict(list, a=[1]),
        Doubling([1, [2]]),
        collections.deque([1, 2], maxlen=2),
        Ring(of=[1, 2]),
        Words(b"ab"),
        Chosen({1, 2}),
        types.MappingProxyType(collections.Counter("ab")),
        types.MappingProxyType({"a": [1]}),
        bound,
        functools.partial(max, collections.Counter("aa")),
        objects,
        [collections.Counter("aab")] * 2,
    ]


def told(value):
    """All that is in it, by the methods of Python's own classes."""
    held = dict(getattr(value, "__dict__", {}))
    held |= {
        name: getattr(value, name)
        for name in getattr(type(value), "__slots__", ())
        if hasattr(value, name)
    }
    if isinstance(value, types.MappingProxyType):
        return type(value), told(value.copy())
    if isinstance(value, dict):
        order = (
            [*collections.OrderedDict.__iter__(value)]
            if isinstance(value, collections.OrderedDict)
            else [*dict.__iter__(value)]
        )
        parts = [(key, told(dict.__getitem__(value, key))) for key in order]
    elif isinstance(value, list):
        parts = [told(part) for part in list.__iter__(value)]
    elif isinstance(value, functools.partial):
        parts = [told(part) for part in (value.func, value.args, value.keywords)]
    elif isinstance(value, collections.deque):
        parts = [value.maxlen, *map(told, value)]
    elif isinstance(value, np.ndarray):
        parts = value.tolist()
    elif isinstance(value, tuple):
        parts = [told(part) for part in value]
    else:
        parts = (
            repr(value) if not isinstance(value, set) else sorted(map(repr, set.__iter__(value)))
        )
    return (
        type(value),
        parts,
        {name: told(part) for name, part in held.items()},
        getattr(value, "default_factory", None),
    )


@pytest.mark.parametrize(
    "place", range(len(made())), ids=lambda place: type(made()[place]).__name__ + str(place)
)
def test_a_copy_holds_what_the_original_holds(place):
    """In its own class, with its attributes; and it shares nothing that can be changed."""
    value, words = made()[place], told(made()[place])
    twin = snapshot(value)
    assert twin is not value
    assert told(twin) == words == told(value)
    assert snapshot(twin) is not twin


@given(
    st.lists(st.tuples(st.text("ab", max_size=2), st.integers(-3, 3))),
    st.sampled_from([collections.Counter, Adding, Slotted]),
)
@examples(
    {"items": [("a", 2), ("b", -1)], "kind": collections.Counter},
    {"items": [], "kind": collections.Counter},
    {"items": [("a", 2)], "kind": Adding},
    {"items": [("a", 2)], "kind": Slotted},
)
def test_any_dict_of_a_class_keeps_its_numbers(items, kind):
    """Whatever its methods do with what they are given."""
    value = kind(dict(items))
    assert dict.__eq__(snapshot(value), value) is True
    assert static_key(snapshot(value)) == static_key(
        copy.copy(value) if kind is not Adding else value
    )


def test_a_counter_comes_through_a_call():
    """As a static value, in an object, in a partial and as a result."""

    class Model:
        def __init__(self):
            self.counts = collections.Counter("aab")

        def of(self, x):
            return x * self.counts["a"], self.counts

    counts = collections.Counter("aab")
    for _ in range(2):
        assert optimize(lambda x, c: x * c["a"], static="c")(1.0, counts) == 2
        assert optimize(functools.partial(lambda c, x: x * c["a"], counts))(np.float32(1)) == 2
        number, result = optimize(Model().of)(np.float32(1))
        assert (number, result) == (2, counts)


def test_a_class_that_says_how_it_is_copied_is_asked():
    """It may keep something beside its items that a copy has to have anew."""

    class Sorted(dict):
        def __init__(self, *args):
            super().__init__(*args)
            self.order = _Order(self)

        def __copy__(self):
            return type(self)(self)

    value = Sorted({"b": [1], "a": 2})
    twin = snapshot(value)
    assert twin.order.of is twin
    assert (twin, twin["b"] is value["b"]) == (value, False)


class _Order:
    def __init__(self, of):
        self.of = of


def with_unit(unit):
    slotted = Slotted(a=1)
    slotted.unit = unit
    return slotted


WITHOUT_ALIGNMENT = np.dtype({"names": ["a", "b"], "formats": ["i1", "f4"], "offsets": [0, 4]})
UTC1 = datetime.timezone(datetime.timedelta(hours=1))
ALIKE = {
    "decimals": (decimal.Decimal("1.0"), decimal.Decimal("1")),
    "signs of a decimal": (decimal.Decimal("0"), decimal.Decimal("-0")),
    "ranges": (range(0, 3, 2), range(0, 4, 2)),
    "data types": (np.dtype([("a", "i1"), ("b", "f4")], align=True), WITHOUT_ALIGNMENT),
    "notes on a data type": (np.dtype("f4"), np.dtype("f4", metadata={"unit": "m"})),
    "times in two zones": (
        datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC),
        datetime.datetime(2020, 1, 1, 13, tzinfo=UTC1),
    ),
    "folds": (datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, fold=1)),
    "names of zones": (
        datetime.timezone(datetime.timedelta(0), "a"),
        datetime.timezone(datetime.timedelta(0), "b"),
    ),
    "paths of Windows": (pathlib.PureWindowsPath("A"), pathlib.PureWindowsPath("a")),
    "literals": (typing.Literal[1, 2], typing.Literal[2, 1]),
    "unions": (int | None, None | int),
    "proxies": (types.MappingProxyType(collections.Counter("a")), types.MappingProxyType({"a": 1})),
    "slots": (with_unit("m"), with_unit("km")),
}


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE)
def test_equal_values_that_a_body_tells_apart_have_different_keys(pair):
    """Alone and in a tuple."""
    one, other = pair
    # a `Counter` is equal to a `Counter` alone
    assert one == other or isinstance(one, types.MappingProxyType)
    assert static_key(one) != static_key(other)
    assert static_key((one,)) != static_key((other,))
    assert static_key(one) == static_key(snapshot(one))


def test_values_of_the_standard_library_that_are_the_same_share_a_key():
    """Made twice."""
    for make in (
        lambda: decimal.Decimal("1.0"),
        lambda: Fraction(1, 3),
        lambda: range(4),
        lambda: np.dtype("f4"),
        lambda: re.compile("a+"),
        lambda: uuid.UUID(int=1),
        lambda: datetime.datetime(2020, 1, 1, tzinfo=UTC1),
        lambda: pathlib.PurePath("a/b"),
        lambda: inspect.signature(lambda a, b=1: a),
        lambda: list[int],
        lambda: int | None,
        lambda: datetime.timedelta(1),
    ):
        assert static_key(make()) == static_key(make())
        assert hash(static_key(make())) == hash(static_key(make()))


def test_equal_decimals_have_programs_of_their_own():
    """The body sees how one is written, alone and in a static field."""
    f = optimize(lambda x, d: x * len(str(d)), static="d")
    assert [float(f(1.0, decimal.Decimal(text))) for text in ("1", "1.00", "1")] == [1, 4, 1]


def test_a_container_that_python_cannot_build_is_refused():
    """Its class keeps more than the dict."""
    kind = type("Fake", (dict,), {"__new__": dict.__new__})
    assert type(snapshot(kind(a=1))) is kind

    class Proxy(collections.UserDict):
        pass

    with pytest.raises(StaticError, match=r"mapping proxy of a .*Proxy"):
        static_key(types.MappingProxyType(Proxy(a=1)))
