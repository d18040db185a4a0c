"""What a body reads of an object of a plain class is part of the program: a call after a change
gives what the plain function gives.
"""

import abc
import array
import contextlib
import copy
import ctypes
import dataclasses
import functools
import random
import threading
import weakref
from collections import UserDict, deque
from types import SimpleNamespace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

import jitney
from jitney import optimize
from tests._examples import examples

X = np.ones(3, np.float32)


class Settings:
    def __init__(self, scale=2.0):
        self.scale = scale
        self.weights = [1.0, 2.0]
        self.table = {"shift": 0.5}
        self.grid = np.arange(3.0)
        self.steps = 0
        self.state = jnp.zeros(3)
        self.lock = threading.Lock()

    @property
    def doubled(self):
        return 2 * self.scale

    def helper(self, x):
        return x * self.doubled + self.table["shift"]

    @optimize
    def apply(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return self.helper(x) + self.weights[0] + self.grid.astype(np.float32)


def set_scale(it):
    it.scale = 5.0


def set_weight(it):
    it.weights[0] = 7.0


def set_table(it):
    it.table["shift"] = -1.0


def set_grid(it):
    it.grid[1] = 9.0


def shadow(it):
    it.helper = lambda x: x + it.scale


CHANGES = [set_scale, set_weight, set_table, set_grid, shadow]


def plainly(fn, *args):
    return np.asarray(fn.__wrapped__(*args))


@pytest.mark.parametrize("change", CHANGES)
def test_a_method_sees_what_has_changed_in_its_object(change):
    """A number, a part of a list, of a dict and of an array, through a property and through a
    method.
    """
    it = Settings()
    np.testing.assert_allclose(it.apply(X), plainly(Settings.apply, it, X), rtol=1e-6)
    change(it)
    np.testing.assert_allclose(it.apply(X), plainly(Settings.apply, it, X), rtol=1e-6)


def test_what_the_body_does_not_read_makes_no_new_program():
    """A trainer keeps its weights and a count in itself, which are new after each step."""
    it = Settings()
    before = Settings.apply.stats.traces
    for _ in range(4):
        it.apply(X)
        it.steps += 1
        it.state = it.state + 1
    assert Settings.apply.stats.traces == before + 1


def test_an_object_that_is_again_what_it_was_finds_its_program():
    """Whatever it was in between."""
    it = Settings()
    before = Settings.apply.stats.traces
    for scale in (2.0, 3.0, 2.0, 3.0):
        it.scale = scale
        it.apply(X)
    assert Settings.apply.stats.traces == before + 2


def test_the_cause_names_the_attribute():
    """With what it was and is."""
    it = SimpleSettings()
    scaled(it, X)
    it.scale = 3.0
    scaled(it, X)
    assert "'it.scale' 2.0 -> 3.0" in scaled.stats.retraces[-1]


class SimpleSettings:
    def __init__(self):
        self.scale = 2.0


@optimize
def scaled(it, x):
    return x * it.scale


def monkeypatched(it):
    type(it).rate = 4.0


class OfClass:
    rate = 1.0


class Slotted:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 1.0


class Base(abc.ABC):
    @abc.abstractmethod
    def get(self): ...


class Concrete(Base):
    def __init__(self):
        self._rate = 1.0

    def get(self):
        return super().__getattribute__("_rate")

    @property
    def rate(self):
        return self.get()

    @rate.setter
    def rate(self, value):
        self._rate = value


class Answering:
    """Its attributes are those of a dict."""

    def __init__(self):
        self.__dict__["held"] = {"rate": 1.0}

    def __getattr__(self, name):
        try:
            return self.__dict__["held"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.held[name] = value


class Cached:
    def __init__(self):
        self.base = 1.0

    @functools.cached_property
    def rate(self):
        return self.base


@pytest.mark.core("Slotted", "Cached", "Answering")
@pytest.mark.parametrize("kind", [OfClass, Slotted, Concrete, Answering, Cached])
def test_classes_of_every_kind(kind):
    """Of class attributes, slots, abstract classes, `__getattr__`, and properties that are kept."""

    @optimize
    def times(it, x):
        return x * it.rate

    it = kind()
    for value in (1.0, 3.0, 2.0):
        it.rate = value
        np.testing.assert_allclose(times(it, X), value * X)
    if kind is OfClass:
        del it.rate
        np.testing.assert_allclose(times(it, X), X)


class Outer:
    def __init__(self):
        self.inner = SimpleSettings()
        self.inner.grid = np.arange(3.0)


class Bare:
    """It cannot be held weakly."""

    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 2.0


def test_objects_that_cannot_be_weak_inside_of_others_are_read_once():
    """Its number changes, then itself; what stays is no new program."""
    it = Settings()
    it.inner, it.kinds = Bare(), (jnp.sin, np.add)

    @optimize
    def shifted(it, x):
        return x * it.inner.scale if it.kinds else x

    for scale, traces in ((2.0, 1), (3.0, 2)):
        it.inner.scale = scale
        for _ in range(2):
            np.testing.assert_allclose(shifted(it, X), scale * X)
        assert shifted.stats.traces == traces
    it.inner = Bare()
    np.testing.assert_allclose(shifted(it, X), 2 * X)


def test_objects_inside_of_objects():
    """Number and array; what is not read there makes no new program either."""

    @optimize
    def shifted(it, x):
        return x * it.inner.scale + it.inner.grid

    it = Outer()
    shifted(it, X)
    it.inner.unread = 5
    shifted(it, X)
    assert shifted.stats.traces == 1
    it.inner.scale = 4.0
    it.inner.grid[0] = 8.0
    np.testing.assert_allclose(shifted(it, X), X * 4 + np.array([8.0, 1, 2], np.float32))
    it.inner = SimpleSettings()
    it.inner.grid = np.zeros(3)
    np.testing.assert_allclose(shifted(it, X), 2 * X)


class Layer(eqx.Module):
    weight: Array
    settings: object = eqx.field(static=True)

    def __call__(self, x):
        held = self.settings
        rate = (
            held["rate"]
            if isinstance(held, dict)
            else held[0]
            if isinstance(held, (list, np.ndarray))
            else held.rate
        )
        return x * self.weight * np.asarray(rate, np.float32)


@pytest.mark.core("array", "list", "namespace")
@pytest.mark.parametrize(
    ("held", "change"),
    [
        ({"rate": 2.0}, lambda held: held.update(rate=5.0)),
        ([2.0], lambda held: held.__setitem__(0, 5.0)),
        (np.array([2.0]), lambda held: held.__setitem__(0, 5.0)),
        (SimpleNamespace(rate=2.0), lambda held: setattr(held, "rate", 5.0)),
        (OfClass(), lambda held: setattr(held, "rate", 5.0)),
    ],
    ids=["dict", "list", "array", "namespace", "object"],
)
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static:UserWarning")
def test_what_static_fields_of_modules_hold(held, change):
    """Before, after and long after the change."""
    call = optimize(lambda layer, x: layer(x))
    layer = Layer(jnp.ones(3), held)
    for _ in range(3):
        np.testing.assert_allclose(call(layer, X), layer(X))
    change(held)
    for _ in range(3):
        np.testing.assert_allclose(call(layer, X), 5 * X)


def test_objects_inside_of_other_static_values():
    """Lists, dicts and bound methods are compared as a whole."""
    it = SimpleSettings()
    in_list = optimize(lambda them, x: x * them[0].scale)
    bound = optimize(lambda fn, x: fn(x))
    it.times = lambda x: x
    method = Settings(3.0)
    for scale in (2.0, 6.0):
        it.scale = method.scale = scale
        np.testing.assert_allclose(in_list([it], X), scale * X)
        np.testing.assert_allclose(bound(method.helper, X), method.helper(X))


def test_an_object_that_is_called():
    """Decorated itself, as a module is."""

    class Times:
        rate = 2.0

        def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
            return x * self.rate

    it = Times()
    program = optimize(it)
    np.testing.assert_allclose(program(X), 2 * X)
    it.rate = 3.0
    np.testing.assert_allclose(program(X), 3 * X)


def test_a_body_gets_the_object_back():
    """As what it is to `isinstance` and `__class__`, and in the result as itself."""

    @optimize
    def same(it, x):
        assert isinstance(it, SimpleSettings)
        assert it.__class__ is SimpleSettings
        return it, x * it.scale

    it = SimpleSettings()
    given, _ = same(it, X)
    assert given is it


class Mode:
    """Told from others by being the same object."""


FAST, EXACT = Mode(), Mode()


class Node:
    def __init__(self, mode):
        self.mode = mode
        self.rates = {FAST: 2.0, EXACT: 3.0}
        self.modes = [FAST, EXACT]
        self.child = SimpleSettings()
        self.child.parent = self


@pytest.mark.parametrize(
    "number",
    [
        lambda it: 2.0 if it.mode is FAST else 3.0,
        lambda it: it.rates[it.mode],
        lambda it: 2.0 + it.modes.index(it.mode),
        lambda it: (2.0 if it.mode == FAST else 3.0) * float(it.child.parent is it),
        lambda it: (
            (2.0 if it.mode is FAST else 3.0)
            * float(type(it) is Node and type(it.child) is SimpleSettings)
        ),
    ],
    ids=["is", "key of a dict", "in a list", "parent", "type"],
)
def test_objects_are_themselves_in_a_body(number):
    """To `is`, to dicts and lists that hold them, and to what refers to them."""
    program = optimize(lambda it, x: x * number(it))
    it = Node(FAST)
    for mode, value in ((FAST, 2.0), (EXACT, 3.0), (FAST, 2.0)):
        it.mode = mode
        np.testing.assert_allclose(program(it, X), value * X)


@pytest.mark.rest
def test_classes_are_what_they_were_behind_a_trace():
    """After one that raises too; and while a thread traces, others read as ever."""

    @optimize
    def checked(it, x):
        if it.scale > 5:
            raise ValueError("too large")
        return x * it.scale

    it = SimpleSettings()
    checked(it, X)
    it.scale = 6.0
    with pytest.raises(ValueError, match="too large"):
        checked(it, X)
    assert "__getattribute__" not in vars(SimpleSettings)
    results: list[float] = []

    def work(rate):
        mine = SimpleSettings()
        for turn in range(3):
            mine.scale = rate + turn
            results.append(float(optimize(lambda it, x: x * it.scale)(mine, X)[0]) - rate - turn)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0.0] * 12
    assert "__getattribute__" not in vars(SimpleSettings)


class WithSlots:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 1.0


class SlotsAndMore(WithSlots):
    """Slots of one class, and a `__dict__` of another."""


class Created:
    def __new__(cls):
        it = object.__new__(cls)
        it.rate = 1.0
        return it


class Registered:
    names: ClassVar[list[str]] = []

    def __init_subclass__(cls):
        cls.names.append(cls.__name__)


class OfMeta(Registered, metaclass=type("Meta", (type,), {})):
    rate = 1.0


class Unhashed:
    def __init__(self):
        self.rate = 1.0

    def __eq__(self, other):
        return self.rate == other.rate


class Hashed(Unhashed):
    def __hash__(self):
        return hash(self.rate)


@pytest.mark.core("Hashed", "Unhashed", "SlotsAndMore")
@pytest.mark.parametrize("kind", [SlotsAndMore, Created, OfMeta, Unhashed, Hashed])
def test_attributes_that_are_objects_of_every_kind(kind):
    """In an attribute, in a list in one, and behind a weak reference."""
    it = SimpleSettings()
    it.part = kind()
    it.parts = [it.part]
    program = optimize(lambda it, x: x * it.part.rate + it.parts[0].rate)
    for value in (1.0, 3.0, 2.0):
        it.part.rate = value
        np.testing.assert_allclose(program(it, X), value * X + value)


HELD = {
    "array": (
        lambda: array.array("d", [1.0]),
        lambda part: part[0],
        lambda part, value: part.__setitem__(0, value),
    ),
    "bytes": (
        lambda: memoryview(bytearray(b"\x01")),
        lambda part: float(part[0]),
        lambda part, value: part.__setitem__(0, int(value)),
    ),
    "user dict": (
        lambda: UserDict(rate=1.0),
        lambda part: part["rate"],
        lambda part, value: part.update(rate=value),
    ),
    "method of a dict": (
        lambda: {"rate": 1.0}.get,
        lambda part: part("rate"),
        lambda part, value: part.__self__.update(rate=value),
    ),
    "method of an array": (
        lambda: np.ones(1).sum,
        lambda part: float(part()),
        lambda part, value: part.__self__.fill(value),
    ),
    "weak reference": (
        lambda: weakref.ref(KEPT),
        lambda part: part().scale,
        lambda part, value: setattr(KEPT, "scale", value),
    ),
}
KEPT = SimpleSettings()
KEPT.scale = 1.0


@pytest.mark.core("array", "weak reference", "user dict")
@pytest.mark.parametrize("kind", HELD)
def test_what_attributes_hold_of_other_types(kind):
    """What Python's own types let a caller change in place."""
    make, number, change = HELD[kind]
    it = SimpleSettings()
    it.part = make()
    program = optimize(lambda it, x: x * number(it.part))
    for value in (1.0, 3.0, 2.0):
        change(it.part, value)
        np.testing.assert_allclose(program(it, X), value * X)


@pytest.mark.parametrize(
    "wrap",
    [lambda part: part, lambda part: [part], lambda part: FieldLayer(jnp.ones(3), part)],
    ids=["itself", "list", "module"],
)
def test_bound_methods_of_what_can_change(wrap):
    """`table.get` as an argument, in a list and in a field of a module, which is looked at on every
    call.
    """
    table = {"rate": 1.0}
    given = wrap(table.get)
    program = optimize(
        lambda it, x: (
            x * (it if callable(it) else it[0] if isinstance(it, list) else it.part)("rate")
        )
    )
    for value in (1.0, 1.0, 1.0, 3.0, 3.0, 3.0):
        table["rate"] = value
        np.testing.assert_allclose(program(given, X), value * X)


class FieldLayer(eqx.Module):
    weight: Array
    part: object


class Length(float):
    def __new__(cls, value, unit):
        it = float.__new__(cls, value)
        it.unit = unit
        return it


def test_attributes_of_numbers():
    """A unit, which the number's own `==` does not compare."""
    convert = optimize(lambda length, x: x * length * {"m": 1.0, "km": 1000.0}[length.unit])
    for unit, factor in (("m", 1.0), ("km", 1000.0), ("m", 1.0)):
        np.testing.assert_allclose(convert(Length(2.0, unit), X), 2 * factor * X)


class Rated:
    rate = 1.0
    rates: ClassVar[list[float]] = [1.0]

    def by_type(self):
        return type(self).rate

    def by_class(self):
        return self.__class__.rate

    @classmethod
    def of_class(cls):
        return cls.rate

    def listed(self):
        return type(self).rates[0]

    def times(self):
        return self.rate


class SubRated(Rated):
    def by_super(self):
        return super().times()


def rate_of(it):
    return type(it).rate


@pytest.mark.core("type", "the body", "class")
@pytest.mark.parametrize(
    "number",
    [
        SubRated.by_type,
        SubRated.by_class,
        lambda it: it.of_class(),
        lambda it: type(it).rate,
        rate_of,
        lambda it: rate_of(it),
    ],
    ids=["type", "class", "classmethod", "in the body", "the body", "a function"],
)
def test_what_is_read_of_the_class(number):
    """And not of the object: in methods, in the body, and in functions that it calls."""
    it = SubRated()
    program = optimize(lambda it, x: x * number(it))
    for value in (1.0, 3.0, 2.0):
        SubRated.rate = value
        np.testing.assert_allclose(program(it, X), value * X)
    del SubRated.rate
    np.testing.assert_allclose(program(it, X), X)


class Measure:
    size = 2

    def __len__(self):
        return self.size

    def __call__(self, x):
        return x * 2.0

    def __radd__(self, x):
        return x + 2.0

    def __enter__(self):
        return 2.0

    def __exit__(self, *error):
        pass


def entered(it, x):
    with it as scale:
        return x * scale


@pytest.mark.core("*-attribute")
@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: [it], Settings], ids=["object", "list", "attribute"]
)
@pytest.mark.parametrize(
    ("name", "read", "other"),
    [
        ("__len__", lambda it, x: x * len(it), lambda self: 3),
        ("__call__", lambda it, x: it(x), lambda self, x: x * 3.0),
        ("__radd__", lambda it, x: x.sum() + it, lambda self, x: x + 3.0),
        ("__enter__", entered, lambda self: 3.0),
    ],
    ids=["len", "call", "add", "with"],
)
def test_special_methods_that_somebody_replaces(monkeypatch, wrap, name, read, other):
    """Python looks them up in the class, where no read of the object is seen."""

    def body(held, x):
        return read(
            held[0] if type(held) is list else held.scale if type(held) is Settings else held, x
        )

    held, program = wrap(Measure()), optimize(body)
    np.testing.assert_allclose(program(held, X), body(held, X))
    monkeypatch.setattr(Measure, name, other)
    for _ in range(3):
        np.testing.assert_allclose(program(held, X), body(held, X))
    monkeypatch.undo()
    np.testing.assert_allclose(program(held, X), body(held, X))


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_double),)


def spline():
    return CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 0.0])


@pytest.mark.core("*-inside")
@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: [Settings(it)]], ids=["attribute", "inside"]
)
@pytest.mark.parametrize(
    ("make", "read", "change"),
    [
        (spline, lambda it: float(it(0.5)), lambda it: it.c.__setitem__((0, 0), 5.0)),
        (lambda: Point(1.0), lambda it: it.x, lambda it: setattr(it, "x", 2.0)),
        (lambda: ctypes.c_double(1.0), lambda it: it.value, lambda it: setattr(it, "value", 2.0)),
        (
            lambda: Settings(deque([1], 2)),
            lambda it: it.scale.maxlen,
            lambda it: setattr(it, "scale", deque([1], 3)),
        ),
    ],
    ids=["of a library", "structure", "number of C", "deque"],
)
def test_what_else_can_be_changed_in_place(make, read, change, wrap):
    """An object of a library in an object of the user's, in a list; what Python's `ctypes` holds;
    how long a deque may be.
    """
    it = make()
    held = Settings(wrap(it))
    program = optimize(
        lambda held, x: x * read(held.scale[0].scale if type(held.scale) is list else held.scale)
    )
    np.testing.assert_allclose(program(held, X), X * read(it))
    change(it)
    for _ in range(3):
        np.testing.assert_allclose(program(held, X), X * read(it))


@pytest.mark.parametrize(
    "wrap", [Settings, lambda it: (it,), lambda it: it], ids=["object", "tuple", "array"]
)
def test_the_order_of_an_array_in_memory(wrap):
    """`ravel("K")` goes by it, and a copy has it too."""
    rows = np.arange(6.0).reshape(2, 3)
    program = optimize(static="it")(
        lambda it, x: (
            x[0]
            * (it.scale if type(it) is Settings else it[0] if type(it) is tuple else it).ravel("K")
        )
    )
    for table in (rows, np.asfortranarray(rows), rows, rows.T, np.asfortranarray(rows)):
        np.testing.assert_allclose(program(wrap(table), X), table.ravel("K"))


def test_methods_of_base_classes_and_lists_of_classes(monkeypatch):
    """`super().times()`, where somebody puts another function; a list that is changed in place."""
    it = SubRated()
    program = optimize(lambda it, x: x * it.by_super() + it.listed())
    np.testing.assert_allclose(program(it, X), 2 * X)
    monkeypatch.setattr(Rated, "times", lambda self: 5.0)
    np.testing.assert_allclose(program(it, X), 6 * X)
    monkeypatch.setattr(Rated, "rates", [1.0])
    np.testing.assert_allclose(program(it, X), 6 * X)
    Rated.rates[0] = 4.0
    np.testing.assert_allclose(program(it, X), 9 * X)


def test_an_object_gets_another_class():
    """`it.__class__ = Other`."""

    class Other(SimpleSettings):
        @property
        def half(self):
            return self.scale / 2

    SimpleSettings.half = 7.0
    program = optimize(lambda it, x: x * it.half)
    it = SimpleSettings()
    np.testing.assert_allclose(program(it, X), 7 * X)
    it.__class__ = Other
    np.testing.assert_allclose(program(it, X), X)
    del SimpleSettings.half


class Stepping:
    def __init__(self):
        self.rate = 2.0

    def step(self, carry, x):
        return carry, x * self.rate

    @optimize
    def within(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * self.rate


@pytest.mark.core("scan-itself")
@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: [it]], ids=["itself", "list"])
@pytest.mark.parametrize(
    "use",
    [
        lambda it, x: jax.lax.scan(it.step, 0.0, x)[1],
        lambda it, x: jax.jit(it.step)(0.0, x)[1],
        lambda it, x: jax.checkpoint(it.step)(0.0, x)[1],
        lambda it, x: it.within(x),
    ],
    ids=["scan", "jit", "checkpoint", "program"],
)
def test_bound_methods_that_were_traced_before(use, wrap):
    """JAX keeps what it has traced of a method by its object: another trace of ours runs it again,
    and notes what it reads.
    """
    it = Stepping()
    program = optimize(lambda it, x: use(it[0] if isinstance(it, list) else it, x))
    use(it, jnp.asarray(X))
    for rate in (2.0, 3.0, 4.0):
        it.rate = rate
        np.testing.assert_allclose(program(wrap(it), X), rate * X)


def test_attributes_that_are_used_up_are_refused():
    """An iterator in an attribute, where the body reads it."""
    it = SimpleSettings()
    it.draws = [iter([1.0, 2.0])]
    np.testing.assert_allclose(optimize(lambda it, x: x * it.scale)(it, X), 2 * X)
    with pytest.raises(
        jitney.errors.StaticError,
        match=r"reads 'draws' of a SimpleSettings, which is or holds an iterator(.|\n)*keep a list",
    ):
        optimize(lambda it, x: x * next(it.draws[0]))(it, X)


def test_a_field_that_is_gone_is_not_none():
    """A dataclass without a hash is keyed by its fields."""

    @dataclasses.dataclass
    class Config:
        rate: float | None

    it = Config(None)
    program = optimize(lambda it, x: x * (2.0 if hasattr(it, "rate") else 3.0))
    np.testing.assert_allclose(program(it, X), 2 * X)
    del it.rate
    np.testing.assert_allclose(program(it, X), 3 * X)


def test_a_body_may_copy_the_object_and_make_others():
    """By `copy` and by its type: plain objects, of all that it holds."""

    @optimize
    def copied(it, x):
        twin = copy.copy(it)
        assert type(twin) is SimpleSettings
        other = type(it)()
        other.scale = it.scale + 1
        return x * twin.scale + other.scale

    it = SimpleSettings()
    for scale in (2.0, 4.0):
        it.scale = scale
        np.testing.assert_allclose(copied(it, X), X * scale + scale + 1)


def test_a_count_in_the_body_counts_calls():
    """As without `jit`: each call reads another number, and is another program."""

    class Counting:
        count = 0.0

        @optimize
        def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
            self.count += 1
            return x * self.count

    it = Counting()
    np.testing.assert_allclose([it(X)[0] for _ in range(3)], [1, 2, 3])


def test_what_a_body_writes_for_itself_is_no_argument():
    """A number on its way kept in the object, as classes do; sizes in turn, each traced once."""

    class Scratch:
        def __init__(self):
            self.rate = 2.0

        @optimize
        def __call__(self, x: Float[Array, "n"]) -> Float[Array, "n"]:
            self.half = x / 2
            return self.half * self.rate

    it = Scratch()
    for size in (3, 5, 3, 5, 3):
        np.testing.assert_allclose(it(np.ones(size, np.float32)), np.ones(size))
    assert Scratch.__call__.stats.traces == 2


@pytest.mark.core("options0", "options2")
@pytest.mark.parametrize(
    "options",
    [
        {"pad": {"n": "pow2"}},
        {"chunk": {"n": 2}},
        {"vmap": "batch"},
        {"remat": True},
        {"cache": "program"},
    ],
)
def test_under_every_option(options):
    """And its gradient, which is a program of its own."""

    @optimize(**options)
    def loss(it, x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(x) * it.scale)

    it = SimpleSettings()
    x = np.ones((2, 5), np.float32) if "vmap" in options else np.ones(5, np.float32)
    for scale in (2.0, 7.0):
        it.scale = scale
        true = np.sum(np.sin(x), -1) * scale
        np.testing.assert_allclose(loss(it, x), true, rtol=1e-5)
        np.testing.assert_allclose(loss.grad(it, x)["x"], np.cos(x) * scale, rtol=1e-5)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:.*takes its 9th value:jitney.JitneyWarning")
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["scale", "weights", "table", "grid"]), st.integers(-2, 2)),
        min_size=1,
        max_size=8,
    )
)
@examples(
    {"changes": [("scale", 0)]},
    {"changes": [("grid", 1), ("grid", 1), ("grid", 0), ("grid", 1)]},
    {"changes": [("scale", -1), ("table", 2), ("scale", 2), ("table", 2), ("scale", -1)]},
    {"changes": [("weights", 1), ("weights", -2), ("table", 0), ("weights", 1), ("grid", 0)]},
)
def test_any_changes_between_calls(changes):
    """One after another, to values that were there before or not."""
    it = Settings()
    for name, value in changes:
        if name == "scale":
            it.scale = float(value)
        else:
            getattr(it, name)["shift" if name == "table" else 0] = float(value)
        np.testing.assert_allclose(it.apply(X), plainly(Settings.apply, it, X), rtol=1e-6)


def test_under_an_outer_jit():
    """An outer `jax.jit` keeps what it has traced; the program inside is the one of that moment."""
    it = SimpleSettings()
    outer = jax.jit(lambda x: scaled(it, x))
    np.testing.assert_allclose(outer(X), 2 * X)
    it.scale = 3.0
    np.testing.assert_allclose(scaled(it, X), 3 * X)
    np.testing.assert_allclose(jax.jit(lambda x: scaled(it, x) + 0)(X), 3 * X)


def test_objects_of_libraries_of_jax_are_themselves():
    """A function of `jax.custom_jvp` and a program are called, and are not looked through."""

    @jax.custom_jvp
    def double(x):
        return 2 * x

    double.defjvp(lambda primals, tangents: (2 * primals[0], 2 * tangents[0]))
    call = optimize(lambda fn, x: fn(x))
    np.testing.assert_allclose(call(double, X), 2 * X)
    np.testing.assert_allclose(call(jitney.optimize(lambda x: 3 * x), X), 3 * X)
    assert call.stats.traces == 2


@pytest.mark.parametrize("make", [list, deque, set], ids=lambda make: make.__name__)
def test_what_only_writes_is_no_read(make):
    """`log.append` says nothing of what is in the log, which may grow from call to call; the
    program stays.
    """
    log, traces = make(), []
    note = log.add if make is set else log.append

    @optimize
    def f(note, x):
        traces.append(1)
        jax.debug.callback(lambda: note(len(log)))
        return x

    for _ in range(3):
        f(note, X)
        jax.effects_barrier()
    assert (len(traces), len(log)) == (1, 3)


def test_an_attribute_may_contain_itself():
    """A ring of parts, and attributes that share one; a change deep inside is seen."""

    class Ring:
        def __init__(self):
            self.row = [2.0]
            self.parts = [self.row]
            self.parts.append(self.parts)

        @optimize
        def apply(self, x):
            return x * self.parts[1][1][0][0] if self.parts[0] is self.row else x

    ring = Ring()
    np.testing.assert_array_equal(ring.apply(X), 2 * X)
    ring.row[0] = 5.0
    np.testing.assert_array_equal(ring.apply(X), 5 * X)


@pytest.mark.parametrize(
    "make",
    [np.random.default_rng, np.random.RandomState, random.Random],
    ids=lambda make: make.__name__,
)
def test_generators_of_random_numbers_draw_anew(make):
    """Each call draws, as without `jit`: it is another program each time, and the table of `stats`
    says of which argument.
    """
    draw = optimize(lambda generator, x: x * generator.random())
    if make is np.random.RandomState:
        draw = optimize(lambda generator, x: x * generator.rand())
    ours, plain = make(0), make(0)
    for _ in range(3):
        value = plain.rand() if make is np.random.RandomState else plain.random()
        np.testing.assert_allclose(draw(ours, X), value * X, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Python iterable type:DeprecationWarning")
def test_what_is_used_up_is_refused():
    """Iterators as arguments and in results, and functions that run bit by bit, at decoration."""
    with pytest.raises(
        jitney.errors.StaticError, match=r"'it' is an iterator \(list_iterator\)(.|\n)*pass a list"
    ):
        optimize(lambda it, x: x * next(it))(iter([1.0, 2.0]), X)
    with pytest.raises(
        jitney.errors.StaticError,
        match=r"the result is or holds an iterator \(zip\)(.|\n)*return a list",
    ):
        optimize(lambda x: (x, zip([1], [2], strict=True)))(X)

    async def later(x):
        return x

    def parts(x):
        yield x

    for fn in (later, parts):
        with pytest.raises(jitney.errors.OptionError, match="runs bit by bit"):
            optimize(fn)


def test_results_that_can_be_changed_are_copies():
    """A byte array and a deque, as lists are."""
    give = optimize(lambda x: (x, bytearray(b"ab"), deque([1])))
    for _ in range(2):
        _, text, queue = give(X)
        assert (text, queue) == (bytearray(b"ab"), deque([1]))
        text[:] = b"zz"
        queue.append(2)


@dataclasses.dataclass
class Held:
    part: object


class HeldInField(eqx.Module):
    part: object = eqx.field(static=True)


HOLDERS = {
    "itself": lambda it: it,
    "list": lambda it: [it],
    "dict": lambda it: {"a": (1, it)},
    "set": lambda it: {it},
    "partial": lambda it: functools.partial(sum, it),
    "dataclass": Held,
    "static field": HeldInField,
}


# JAX's, of what is a leaf
@pytest.mark.filterwarnings("ignore:Python iterable type:DeprecationWarning")
@pytest.mark.parametrize("static", [("it",), ()], ids=["static", "unnamed"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_an_iterator_is_refused_wherever_it_is_held_and_after_calls_of_the_same_structure(
    holder, static
):
    """It is used up by the trace that reads it, so a later call with it would get what the first
    one got.
    """

    def read(it, x):
        del it
        return x

    program = optimize(static=static)(read)
    # what holds a list in place of the iterator, where it can be held
    with contextlib.suppress(TypeError):
        program(HOLDERS[holder]([1.0, 2.0]), X)
    with pytest.raises(jitney.errors.StaticError, match="iterator"):
        program(HOLDERS[holder](iter([1.0, 2.0])), X)
