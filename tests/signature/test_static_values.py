"""Static values are keyed by everything that a body could see of them, and no later change reaches a program."""

import collections
import copy
import dataclasses
import enum
import functools
import math
import types
from typing import Any, NamedTuple

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jitney import StaticError, optimize
from jitney._signature.static_values import Opaque, keyer_of, snapshot, static_key
from tests._tracing import count_traces

X = jnp.arange(3.0)
MANY = settings(max_examples=max(200, settings.default.max_examples))


@dataclasses.dataclass
class Loose:
    """Compared by value, so it has no hash."""

    n: Any
    label: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Hashable where its fields are, and then `Frozen(1) == Frozen(1.0)`."""

    n: Any
    note: Any = dataclasses.field(default=None, compare=False)


class Pair(NamedTuple):
    a: Any
    b: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Metres(float):
    pass


class Scale(eqx.Module):
    factor: Any
    name: str = eqx.field(static=True, default="scale")


class Unit(np.ndarray):
    """An array with an attribute, as those of astropy."""

    def __array_finalize__(self, made_from):
        self.unit = getattr(made_from, "unit", None)


def with_unit(values, unit):
    made = np.asarray(values).view(Unit)
    made.unit = unit
    return made


NUMBERS = st.one_of(
    st.sampled_from([0, 1, True, False, 0.0, -0.0, 1.0, math.nan, math.inf, 0j, complex(0, -0.0), complex(-0.0, 0), 1 + 0j]),
    st.integers(-3, 3),
    st.floats(),
    st.complex_numbers(),
)
DTYPES = st.sampled_from(["bool", "int8", "int32", "uint8", "float16", "float32", "float64", "complex64"])
ARRAYS = st.builds(
    lambda values, dtype: np.asarray(values, dtype=dtype), st.one_of(st.integers(0, 1), st.lists(st.integers(0, 1), max_size=3)), DTYPES
)
ATOMS = st.one_of(
    NUMBERS, st.none(), st.text(max_size=2), st.binary(max_size=2), st.sampled_from([Colour.RED, Colour.BLUE, int, float, math.sin])
)
HASHABLE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner), st.builds(Pair, inner, inner), st.frozensets(inner, max_size=2), st.builds(Frozen, inner)
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.one_of(HASHABLE, ARRAYS, st.builds(lambda array: array.reshape(-1)[:1].sum(), ARRAYS), st.sets(HASHABLE, max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=2), NUMBERS), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Loose, inner, inner),
        st.builds(Frozen, inner),
        st.builds(Pair, inner, inner),
        st.builds(slice, inner, inner),
        st.builds(lambda a, b: functools.partial(max, a, key=b), inner, inner),
    ),
    max_leaves=6,
)


def shown(value):
    """A value in words, by an independent walk: all that a body could tell about it, order of sets apart."""
    if isinstance(value, np.ndarray | np.generic):
        return f"{type(value)}{value.dtype}{value.shape}{[shown(item) for item in np.asarray(value).ravel().tolist()]}"
    if isinstance(value, dict):
        return f"{type(value)}{[(shown(k), shown(v)) for k, v in value.items()]}"
    if isinstance(value, set | frozenset):
        return f"{type(value)}{sorted(map(shown, value))}"
    if isinstance(value, list | tuple):
        return f"{type(value)}{[shown(part) for part in value]}"
    if isinstance(value, slice):
        return f"slice{shown((value.start, value.stop, value.step))}"
    if isinstance(value, functools.partial):
        return f"partial{shown((value.func, value.args, value.keywords))}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value)}{[shown(getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare]}"
    return f"{type(value)}{value!r}"


@MANY
@given(VALUES)
def test_any_value_and_an_equal_one_share_a_key(value):
    """A deep copy has the same key, and the same hash of it."""
    twin = copy.deepcopy(value)
    assert static_key(value) == static_key(twin)
    assert hash(static_key(value)) == hash(static_key(twin))


@MANY
@given(VALUES, VALUES)
def test_any_two_values_share_a_key_just_if_they_look_the_same(a, b):
    """Types, signs of zero, NaN, order of dicts, dtypes and shapes of arrays: whatever shows in words shows in the key."""
    assert (static_key(a) == static_key(b)) == (shown(a) == shown(b))


@MANY
@given(VALUES)
def test_any_snapshot_is_the_same_value(value):
    """In words and in key."""
    twin = snapshot(value)
    assert shown(twin) == shown(value)
    assert static_key(twin) == static_key(value)


def change(value):
    """Change whatever can be changed in place; True if something was."""
    if isinstance(value, np.ndarray) and value.size:
        value.reshape(-1)[:1] = ~value.reshape(-1)[:1] if value.dtype == bool else value.reshape(-1)[:1] + np.asarray(1, value.dtype)
        return True
    if isinstance(value, list):
        [change(part) for part in value]
        value.append("new")
        return True
    if isinstance(value, set):
        value.add("new")
        return True
    if isinstance(value, dict):
        [change(part) for part in value.values()]
        value["brand new"] = 1
        return True
    if isinstance(value, Loose):
        change(value.n)
        value.label = "brand new"
        return True
    if isinstance(value, Frozen):
        return change(value.n)
    if isinstance(value, tuple):
        return sum(map(change, value)) > 0
    if isinstance(value, functools.partial):
        return change((*value.args, *value.keywords.values()))
    return False


@MANY
@given(VALUES)
def test_no_change_in_place_reaches_a_key_or_a_snapshot(value):
    """Lists, dicts, sets, arrays and records, at any depth, changed after the call."""
    key, twin, words = static_key(value), snapshot(value), shown(value)
    fresh = copy.deepcopy(value)
    change(value)
    assert shown(twin) == words
    assert key == static_key(twin) == static_key(fresh)
    assert (static_key(value) == key) == (shown(value) == words)


DIFFERENT = {
    "numbers of three types": (1, True, 1.0, 1 + 0j, np.int32(1), np.int64(1), np.float32(1), np.float64(1), np.bool_(True)),
    "signs of zero": (0.0, -0.0),
    "signs of complex zero": (0j, complex(-0.0, 0.0), complex(0.0, -0.0)),
    "signs of a subclass of float": (Metres(0.0), Metres(-0.0), 0.0),
    "infinities and NaN": (math.inf, -math.inf, math.nan),
    "empty things": ([], (), {}, set(), frozenset(), "", b"", None, 0, False, np.zeros(0)),
    "empty arrays": tuple(np.zeros(shape, dtype) for shape in ((0,), (0, 2), (2, 0)) for dtype in ("float32", "int32")),
    "orders": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [1, 2], [2, 1]),
    "keys of dicts": ({1: "x"}, {True: "x"}, {1.0: "x"}),
    "modules": (Scale(1), Scale(True), Scale(1.0), Scale(1, "other"), Scale(jnp.ones(1)), Scale(np.ones(1))),
    "frozen dataclasses": (Frozen(1), Frozen(True), Frozen(1.0), Frozen((1,)), Frozen((1.0,))),
    "items of sets": ({1}, {True}, {1.0}, frozenset({1})),
    "named tuples": (Pair(1, 2), (1, 2), Pair(1, 2.0)),
    "what makes missing items": (collections.defaultdict(int), collections.defaultdict(list), {}),
    "units of arrays": (with_unit([1.0], "m"), with_unit([1.0], "km"), np.ones(1)),
    "masks of arrays": (np.ma.array([1, 2], mask=[True, False]), np.ma.array([1, 2], mask=[False, True])),
    "names of fields": tuple(np.array([(1, None)], dtype=[(name, "O"), ("b", "O")]) for name in "ac"),
    "weak types": (jnp.asarray(1.0), jnp.float32(1.0), np.float32(1.0)),
    "keys of random numbers": (jax.random.key(0), jax.random.key(1), jax.random.key_data(jax.random.key(0))),
    "slices": (slice(0, 1), slice(False, True), slice(0, 1, 1), slice(1)),
    "partials": (functools.partial(max, 1), functools.partial(max, 1.0), functools.partial(min, 1), functools.partial(max, key=1)),
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


def test_a_value_without_a_key_is_refused():
    """The type is named, and what to do about it; also where it hides inside."""
    for value in (bytearray(b"a"), [bytearray(b"a")], Loose({"k": types.SimpleNamespace(n=1)})):
        with pytest.raises(StaticError, match="has no key") as caught:
            static_key(value)
        assert "give the type `__hash__` and `__eq__`" in str(caught.value)


class Keyless:
    __hash__ = None


def test_a_value_without_a_key_is_refused_by_the_name_of_its_argument():
    """Function, argument and type: held static by its annotation or its type, in a tree, by `static`, and among `**rest`."""
    here = r"test_static_values.py:\d+: static ['\"]{}['\"] is or holds a Keyless, which has no key"
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(lambda x, mode: x)(X, Keyless())
    with pytest.raises(StaticError, match=here.format(r"tree\['how'\]")):
        optimize(lambda x, tree: x)(X, {"how": Keyless()})
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(static=("first", "mode"))(lambda x, first, mode: x)(X, 1, [Keyless()])
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(static="mode")(lambda x, **rest: x)(X, mode=Keyless(), other=2)


def test_a_value_that_contains_itself_is_refused():
    """An endless key would never be done."""
    endless: list = []
    endless.append([endless])
    with pytest.raises(StaticError, match="contains itself"):
        static_key(endless)
    shared = [1]
    assert static_key([shared, shared]) == static_key([[1], [1]])


def test_a_traced_value_is_refused():
    """A static value has to be known before tracing, at any depth."""
    f = optimize(static="n")(lambda x, n: x)
    for wrap in (lambda n: n, lambda n: [n], Frozen, Loose):
        with pytest.raises(StaticError, match="is traced"):
            jax.jit(lambda n, wrap=wrap: f(X, wrap(n)))(1)


def test_a_snapshot_keeps_what_cannot_change():
    """No copy of strings, functions, JAX arrays, frozen values and tuples of them: `is` still works in a body."""
    marker = object()
    for value in ("text", math.sin, X, marker, (1, marker), Frozen(marker), frozenset({1}), Colour.RED, Pair(1, "a")):
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
    for value in (bag, point, counted, Pair([1], 2), with_unit([1.0], "m"), functools.partial(max, [1])):
        twin = snapshot(value)
        assert twin is not value
        assert type(twin) is type(value)
        assert static_key(twin) == static_key(value)
        assert vars(twin) == vars(value) if hasattr(value, "__dict__") else True
    assert snapshot(counted).default_factory is list


@given(VALUES)
@settings(max_examples=10)
def test_any_static_value_reaches_the_body_as_it_was(value):
    """As what it was, in type and value, under `static=`; another of the same value finds the program."""
    seen = []

    def body(x, value):
        seen.append(shown(value))
        return x

    f = optimize(body, static="value", check=False)
    f(X, value)
    f(X, copy.deepcopy(value))
    assert seen == [shown(value)]


@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [n], lambda n: {"k": n}, lambda n: {n}, Frozen, Loose])
def test_one_true_and_one_point_zero_are_three_programs(wrap):
    """The body makes an array of the number, whose dtype is that of its type."""

    def number(config):
        if dataclasses.is_dataclass(config):
            return config.n
        return next(iter(config.values() if isinstance(config, dict) else config)) if isinstance(config, dict | list | set) else config

    counted = count_traces(lambda x, config: jnp.full_like(x, number(config), dtype=type(number(config))))
    f = optimize(static="config")(counted)
    for _ in range(2):
        for n, dtype in ((1, jnp.int32), (True, jnp.bool_), (1.0, jnp.float32)):
            assert f(X, wrap(n)).dtype == dtype
    assert counted.traces == 3


def test_minus_zero_is_another_program():
    """1 / -0.0 is minus infinity."""
    f = optimize(static="zero")(lambda x, zero: jnp.full_like(x, math.copysign(1.0, zero)))
    g = optimize(lambda x, zero: jnp.full_like(x, math.copysign(1.0, zero)))
    for program in (f, g):
        for zero in (0.0, -0.0, 0.0):
            np.testing.assert_array_equal(program(X, zero), np.full(3, math.copysign(1, zero)))


def test_nan_is_one_program():
    """NaN is not equal to itself, but it is the same static value."""
    counted = count_traces(lambda x, n: x * n)
    f = optimize(counted)
    for _ in range(3):
        assert np.isnan(f(X, float("nan"))).all()
    assert counted.traces == 1


def test_a_change_after_the_call_is_a_new_value():
    """The caller's list, dict, set, array and record are read on every call."""

    def total(x, config):
        return x + sum(config["list"]) + len(config["set"]) + float(config["array"].sum()) + config["record"].n

    counted = count_traces(total)
    f = optimize(static="config")(counted)
    config = {"list": [1], "set": {1}, "array": np.ones(2), "record": Loose(1)}

    def expected():
        return np.arange(3) + sum(config["list"]) + len(config["set"]) + config["array"].sum() + config["record"].n

    changes = (
        lambda: config["list"].append(5),
        lambda: config["set"].add(7),
        lambda: config["array"].__setitem__(0, 9.0),
        lambda: setattr(config["record"], "n", 11),
    )
    np.testing.assert_array_equal(f(X, config), expected())
    for i, act in enumerate(changes):
        act()
        np.testing.assert_array_equal(f(X, config), expected())
        assert counted.traces == i + 2


def test_a_change_after_the_call_does_not_reach_a_later_trace_of_the_old_value():
    """The value of a key is copied: a new shape under the old value is traced with the old value."""
    f = optimize(static="config")(lambda x, config: x * config["k"][0])
    config = {"k": [2.0]}
    f(X, config)
    config["k"][0] = 100.0
    np.testing.assert_array_equal(f(jnp.ones(2), {"k": [2.0]}), [2, 2])


def test_a_change_by_the_body_is_gone_at_the_next_trace():
    """A body that takes items out of its configuration can be traced at another size."""
    f = optimize(static="config")(lambda x, config: x * config.pop("k"))
    config = {"k": 2.0}
    for n in (2, 3, 2):
        np.testing.assert_array_equal(f(jnp.ones(n), config), np.full(n, 2))
    assert config == {"k": 2.0}


def test_a_static_array_is_keyed_by_value():
    """NumPy's and JAX's, under `static=`: the body sees concrete numbers."""

    def body(x, index):
        return x[np.asarray(index).tolist()[0]]

    counted = count_traces(body)
    f = optimize(static="index")(counted)
    for kind in (np.asarray, jnp.asarray):
        for i in (0, 2, 0):
            assert float(f(X, kind([i]))) == i
    assert counted.traces == 4


def test_a_static_module_is_keyed_by_value():
    """Its arrays are concrete, and an equal module made anew finds the program."""
    counted = count_traces(lambda x, scale: x * float(scale.factor))
    f = optimize(static="scale")(counted)
    for factor in (2.0, 3.0, 2.0):
        np.testing.assert_array_equal(f(X, Scale(jnp.float32(factor))), np.arange(3) * factor)
    assert counted.traces == 2


@pytest.mark.parametrize("kind", [int, bool, str, float, Metres, list, Frozen, Loose, slice, np.ndarray, type, Colour, Opaque])
def test_the_key_of_a_leaf_tells_what_the_key_of_a_value_tells(kind):
    """The shorter key that a call uses, where the type is known, separates the same values."""
    values = {
        int: (1, 2), bool: (True, False), str: ("a", "b"), float: (0.0, -0.0, math.nan), Metres: (Metres(0.0), Metres(-0.0)),
        list: ([1], [1.0]), Frozen: (Frozen(1), Frozen(1.0)), Loose: (Loose(1), Loose(True)), slice: (slice(1), slice(True)),
        np.ndarray: (np.zeros(1), np.zeros(1, int)), type: (int, float), Colour: tuple(Colour), Opaque: (Opaque([1]), Opaque([2])),
    }[kind]  # fmt: skip
    keyer = keyer_of(kind) or (lambda leaf: leaf)
    assert len({keyer(value) for value in values}) == len(values)


LONG = 10**5000  # Python shows ints of up to 4,300 digits, unless it is told otherwise


def remainder(x, n):
    return x * (n % 7)


@pytest.mark.parametrize("options", [{}, {"cache": "program"}, {"verify": True}], ids=str)
@pytest.mark.parametrize("held", [lambda n: n, lambda n: [n], lambda n: Frozen(n)], ids=["int", "list", "record"])
def test_an_int_that_python_does_not_show_is_a_static_value(options, held):
    """What is said of a call does not stop it: its key, the causes of traces, plans and stats."""
    f = optimize(static="n", **options)(lambda x, n: remainder(x, n[0] if isinstance(n, list) else getattr(n, "n", n)))
    for n in (LONG, LONG + 1, -LONG):
        np.testing.assert_array_equal(f(X, held(n)), X * (n % 7))
    assert f.stats.traces == 3
    assert "static" in str(f.plan(X, held(LONG)))
    assert str(f.stats)


class Unshown:
    """A static value that cannot be shown."""

    def __repr__(self):
        raise RuntimeError


def test_a_value_that_cannot_be_shown_is_a_static_value():
    """As under `jax.jit`."""
    f = optimize(static="n")(lambda x, n: x)
    for n in (Unshown(), Unshown()):
        np.testing.assert_array_equal(f(X, n), X)
    assert "Unshown" in str(f.plan(X, Unshown()))
