"""A static argument of many values: what is said, and when."""

import dataclasses
import warnings

import jax
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from tests._arrays import array

X = array(np.arange(12.0))


def picks():
    @jitney.optimize(static="sets")
    def pick(x: Float[Array, "n"], sets):
        return sum(x[np.array(sorted(each))].sum() for each in sets)

    return pick


def take(f, values):
    for value in values:
        f(X, value)


def test_lists_of_frozensets_reach_the_body_and_are_keyed_by_value():
    """An equal list is no new program."""
    pick = picks()
    assert [float(pick(X, [frozenset({1, 2}), frozenset({5})])) for _ in range(3)] == [8.0] * 3
    assert pick.stats.traces == 1


def test_the_ninth_value_warns_with_name_count_seconds_and_what_to_do():
    """Once, and not before."""
    pick = picks()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(8):
            pick(X, [frozenset({i})])
    with pytest.warns(
        jitney.JitneyWarning,
        match=r"static 'sets' takes its 9th value, .* s of tracing(.|\n)*index array with a mask",
    ):
        pick(X, [frozenset({8})])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(pick(X, [frozenset({9})])) == 9.0


def test_the_warning_points_to_the_users_line():
    """Not into jitney."""
    pick = picks()
    with pytest.warns(jitney.JitneyWarning) as found:
        take(pick, [[frozenset({i})] for i in range(9)])
    assert found[0].filename == __file__


@dataclasses.dataclass
class Curve:
    rate: Float[Array, "n"]
    name: str = "a"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Known:
    rate: Float[Array, "n"]


@dataclasses.dataclass
class Settings:
    steps: int


@dataclasses.dataclass
class Rates:
    first: float
    steps: int = 3


class Table:
    def __init__(self, rate):
        self.rate = rate


def scaled(**options):
    """A program of whatever it is given, which it reads nothing of."""
    return jitney.optimize(lambda x, p: x * 2, **options)


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({}, lambda i: Known(X + i)),
        ({}, Settings),
        ({"static": "p"}, lambda i: Curve(X + i)),
        ({}, lambda i: Curve),
    ],
    ids=["registered", "numbers", "declared", "class"],
)
def test_other_dataclasses_do_not_warn(options, make):
    """A tree, settings, what is declared to be static, the class itself."""
    f = scaled(**options)
    for i in range(4):
        f(X, make(i))


def test_a_float_of_a_dataclass_that_varies_is_named():
    """At its third value, once; registered, as the message says, it is one program."""
    f = scaled()
    with pytest.warns(
        jitney.JitneyWarning, match=r"static 'p.first' takes its 3rd value, 2.0.(.|\n)*`Rates`"
    ):
        take(f, [Rates(0.0), Rates(1.0), Rates(2.0)])
    take(f, [Rates(float(i)) for i in range(3, 12)])

    registered = jax.tree_util.register_dataclass(dataclasses.make_dataclass("R", ["first"]))
    traced = jitney.optimize(lambda x, p: x * p.first)
    take(traced, [registered(float(i)) for i in range(9)])
    assert traced.stats.traces == 1


def test_whole_numbers_of_a_frozen_dataclass_are_options():
    """They vary without a word; a float of it that the body needs is named."""
    frozen = dataclasses.make_dataclass("Frozen", [("rate", float), ("steps", int, 3)], frozen=True)
    f = jitney.optimize(lambda x, p: x * p.rate * p.steps)
    take(f, [frozen(0.5, i) for i in range(4)])

    g = jitney.optimize(lambda x, p: x if p.rate > 1 else -x)
    with pytest.warns(jitney.JitneyWarning, match=r"static 'p.rate' takes its 3rd value"):
        take(g, [frozen(float(i)) for i in range(4)])


def test_an_object_with_arrays_has_advice_of_its_own():
    """At the ninth value, as all others; a module is what helps."""
    f = scaled()
    with pytest.warns(
        jitney.JitneyWarning,
        match="static 'p' takes its 9th value(.|\n)*make `Table` an eqx.Module",
    ):
        take(f, [Table(X + i) for i in range(9)])


def test_other_shapes_are_no_new_values():
    """Only the static argument is counted."""
    pick = picks()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(3, 13):
            pick(X[:n], [frozenset({1})])


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (range(9), r"`Int\[Array"),
        ([lambda y, i=i: y for i in range(9)], "created again for each call"),
        ("abcdefghi", "in few ways"),
    ],
    ids=["numbers", "functions", "names"],
)
def test_the_advice_fits_the_kind_of_value(values, advice):
    """Numbers become arrays, functions are made once."""
    f = jitney.optimize(static="how")(lambda x, how: x + 1.0)
    with pytest.warns(jitney.JitneyWarning, match=advice):
        take(f, values)
