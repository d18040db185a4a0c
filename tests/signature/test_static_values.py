"""Which programs static values make, and what a body sees of them: no later change reaches a
program.
"""

import copy
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney.errors import StaticError
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces
from tests.signature._static_values import VALUES, Colour, Frozen, Loose, Pair, Scale, shown

X = array(np.arange(3.0))


class Keyless:
    __hash__ = None


def test_a_value_without_a_key_is_refused_by_the_name_of_its_argument():
    """Function, argument and type: held static by its annotation or its type, in a tree, by
    `static`, and among `**rest`.
    """
    here = r"test_static_values.py:\d+: static ['\"]{}['\"] is or holds a Keyless, which has no key"
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(lambda x, mode: x)(X, Keyless())
    with pytest.raises(StaticError, match=here.format(r"tree\['how'\]")):
        optimize(lambda x, tree: x)(X, {"how": Keyless()})
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(static=("first", "mode"))(lambda x, first, mode: x)(X, 1, [Keyless()])
    with pytest.raises(StaticError, match=here.format("mode")):
        optimize(static="mode")(lambda x, **rest: x)(X, mode=Keyless(), other=2)


@pytest.mark.rest
@pytest.mark.parametrize(
    "around",
    [
        lambda f: jax.jit(f),
        lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 1)[0],
    ],
)
def test_random_keys_are_static_inside_of_a_trace_too(around):
    """Their numbers are there, though an operation that takes them out would be traced."""
    noisy = optimize(static="key")(lambda x, key: x + jax.random.normal(key, (3,)))
    for seed in (1, 2, 1):
        key = jax.random.key(seed)
        np.testing.assert_allclose(
            around(lambda x, key=key: noisy(x, key))(X), X + jax.random.normal(key, (3,)), rtol=1e-6
        )


class OfAList:
    def __init__(self):
        self.parts = [1]

    def __hash__(self):
        return hash(self.parts)


@pytest.mark.parametrize(
    "value", [OfAList(), (OfAList(),), memoryview(bytearray(b"1"))], ids=["list", "tuple", "bytes"]
)
def test_a_hash_that_fails_is_refused_by_the_name_of_its_argument(value):
    """Its class has one; that it is of a list shows when it is asked for, in the first call or in a
    later one.
    """
    for options in ({}, {"static": "mode"}):
        f = optimize(**options)(lambda x, mode: x)
        for _ in range(2):
            with pytest.raises(
                StaticError, match=r"static 'mode(\[0\])?' is or holds a \w+, which has no key"
            ):
                f(X, value)


def test_a_traced_value_is_refused():
    """A static value has to be known before tracing, at any depth."""
    f = optimize(static="n")(lambda x, n: x)
    for wrap in (lambda n: n, lambda n: [n], Frozen, Loose):
        with pytest.raises(StaticError, match="is traced"):
            jax.jit(lambda n, wrap=wrap: f(X, wrap(n)))(1)


@given(VALUES)
@examples(
    {"value": True},
    {"value": complex(-0.0, 0)},
    {"value": None},
    {"value": (b"\0", ["", Colour.RED, float])},
    {"value": [np.float32(1), np.array(1j, "complex64"), np.zeros(0, "int8")]},
    {"value": {"b": {True, -0.0}, 1: {"a": [math.nan]}, math.inf: frozenset()}},
    {"value": Loose(Frozen([1]), Pair(1, {"k": np.array([True, False])}))},
    {"value": functools.partial(max, slice([-1], None), key=math.sin)},
)
@settings(max_examples=10)
def test_any_static_value_reaches_the_body_as_it_was(value):
    """As what it was, in type and value, under `static=`; another of the same value finds the
    program.
    """
    seen = []

    def body(x, value):
        seen.append(shown(value))
        return x

    f = optimize(body, static="value", contracts=False)
    f(X, value)
    f(X, copy.deepcopy(value))
    assert seen == [shown(value)]


@pytest.mark.parametrize(
    "wrap", [lambda n: n, lambda n: [n], lambda n: {"k": n}, lambda n: {n}, Frozen, Loose]
)
def test_one_true_and_one_point_zero_are_three_programs(wrap):
    """The body makes an array of the number, whose dtype is that of its type."""

    def number(config):
        if dataclasses.is_dataclass(config):
            return config.n
        return (
            next(iter(config.values() if isinstance(config, dict) else config))
            if isinstance(config, dict | list | set)
            else config
        )

    counted = count_traces(
        lambda x, config: jnp.full_like(x, number(config), dtype=type(number(config)))
    )
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
        return (
            x
            + sum(config["list"])
            + len(config["set"])
            + float(config["array"].sum())
            + config["record"].n
        )

    counted = count_traces(total)
    f = optimize(static="config")(counted)
    config = {"list": [1], "set": {1}, "array": np.ones(2), "record": Loose(1)}

    def expected():
        return (
            np.arange(3)
            + sum(config["list"])
            + len(config["set"])
            + config["array"].sum()
            + config["record"].n
        )

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
    """The value of a key is copied: a new shape under the old value is traced with the old
    value.
    """
    f = optimize(static="config")(lambda x, config: x * config["k"][0])
    config = {"k": [2.0]}
    f(X, config)
    config["k"][0] = 100.0
    np.testing.assert_array_equal(f(jnp.ones(2), {"k": [2.0]}), [2, 2])


@pytest.mark.filterwarnings("ignore:.*updates its arguments in place:jitney.JitneyWarning")
def test_a_change_by_the_body_is_gone_at_the_next_trace():
    """A body that takes items out of its configuration can be traced at another size."""
    f = optimize(static="config")(lambda x, config: x * config.pop("k"))
    config = {"k": 2.0}
    for n in (2, 3, 2):
        np.testing.assert_array_equal(f(jnp.ones(n), config), np.full(n, 2))
    assert config == {"k": 2.0}


@pytest.mark.core("{}")
@pytest.mark.parametrize("options", [{}, {"cache": "program"}], ids=str)
def test_attributes_of_a_record_that_are_no_fields_count(options):
    """What `__post_init__` makes of an argument that is no field, and what is changed in it in
    place; not what a property has kept.
    """

    @dataclasses.dataclass(frozen=True)
    class Recipe:
        rate: float
        steps: dataclasses.InitVar[int]

        def __post_init__(self, steps):
            object.__setattr__(self, "rates", [self.rate] * steps)

        @functools.cached_property
        def total(self):
            return sum(self.rates)

    @optimize(**options)
    def f(recipe, x):
        return x * recipe.total

    recipe = Recipe(2.0, 1)
    np.testing.assert_array_equal(f(recipe, X), 2 * X)
    assert recipe.total == 2
    np.testing.assert_array_equal(f(recipe, X), 2 * X)
    np.testing.assert_array_equal(f(Recipe(2.0, 3), X), 6 * X)
    other = Recipe(2.0, 1)
    other.rates[0] = 7.0
    np.testing.assert_array_equal(f(other, X), 7 * X)


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


LONG = 10**5000  # Python shows ints of up to 4,300 digits, unless it is told otherwise


def remainder(x, n):
    return x * (n % 7)


@pytest.mark.core("list-{'cache': 'program'}", "list-{}")
@pytest.mark.parametrize("options", [{}, {"cache": "program"}, {"verify": True}], ids=str)
@pytest.mark.parametrize(
    "held", [lambda n: n, lambda n: [n], lambda n: Frozen(n)], ids=["int", "list", "record"]
)
def test_an_int_that_python_does_not_show_is_a_static_value(options, held):
    """What is said of a call does not stop it: its key, the causes of traces, plans and stats."""
    f = optimize(static="n", **options)(
        lambda x, n: remainder(x, n[0] if isinstance(n, list) else getattr(n, "n", n))
    )
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


class Keys(dict):
    """The recipe of many configurations."""

    __getattr__ = dict.__getitem__


class Anything:
    """Knows every name."""

    def __getattr__(self, name):
        return 2.0


class InSlots:
    __slots__ = ("__weakref__",)
    __getattr__ = Anything.__getattr__


class Text(str):
    __slots__ = ()
    __getattr__ = Anything.__getattr__


class Holder:
    def __init__(self, config):
        self.config = config

    def scaled(self, x):
        return x * self.config.rate


@pytest.mark.core("slots-{'verify': True}", "text-{}", "keys-{}", "object-{}")
@pytest.mark.parametrize(
    "options", [{}, {"cache": "program"}, {"verify": True}, {"on_trace_error": "eager"}], ids=str
)
@pytest.mark.parametrize(
    "make",
    [lambda: Keys(rate=2.0), Anything, InSlots, lambda: Text("a")],
    ids=["keys", "object", "slots", "text"],
)
def test_whatever_a_class_makes_of_names_that_it_does_not_have(make, options):
    """As an argument, in a list and in an object; a second value of it has its cause, and the plan
    names it.
    """
    for put in (lambda value: value, lambda value: [value]):
        f = optimize(static="config", **options)(
            lambda x, config: x * (config[0] if type(config) is list else config).rate
        )
        for shape in (3, 2):
            np.testing.assert_array_equal(f(X[:shape], put(make())), 2 * X[:shape])
        assert "config" in str(f.plan(X, put(make())))
        assert f.stats.causes
    np.testing.assert_array_equal(optimize(**options)(Holder(make()).scaled)(X), 2 * X)
