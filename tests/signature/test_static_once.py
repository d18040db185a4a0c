"""A static value that is frozen once is the value as it was, in whichever way it is passed."""

import copy
import pickle
import sys
from contextlib import nullcontext
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney import optimize
from jitney.types import Static
from tests._arrays import array
from tests.serialized import _lab as lab
from tests.serialized.conftest import folder as folder

X = array(np.arange(4.0, dtype=np.float32))
HOST = np.arange(4.0)


def shifted(x, knots):
    return x + sum(knots) + len(knots)


def program():
    return optimize(static="knots")(lambda x, knots: shifted(x, knots))


def test_a_later_change_of_the_value_reaches_no_program():
    """The frozen one is a copy, also in a program that is made after the change, and nothing that
    it gives away leads into it. The value itself is compared at each call.
    """
    f, knots = program(), [1.0, 2.0]
    frozen = jitney.static(knots)
    np.testing.assert_allclose(f(X, frozen), HOST + 5)
    knots.append(4.0)
    Static(knots).value.clear()
    frozen.value.clear()
    np.testing.assert_allclose(f(X[:2], frozen), HOST[:2] + 5)
    np.testing.assert_allclose(f(X, frozen), HOST + 5)
    np.testing.assert_allclose(f(X, knots), HOST + 10)
    assert f.stats.traces == 3


@pytest.mark.rest
def test_a_body_that_changes_it_changes_a_copy():
    """Each trace begins with the value as it was frozen."""

    @optimize(static="knots")
    def emptied(x, knots):
        return x + knots.pop()

    frozen = jitney.static([1.0, 2.0])
    for size in (1, 2, 3):
        with pytest.warns(jitney.JitneyWarning, match="in place") if size == 1 else nullcontext():
            np.testing.assert_allclose(emptied(X[:size], frozen), HOST[:size] + 2)
    assert frozen.value == [1.0, 2.0]


@pytest.mark.rest
@pytest.mark.parametrize(
    "value",
    [[1, 2], (1.0, [2.0]), {"a": np.ones(2)}, {1, 2}, np.arange(3), "text", 2.5],
    ids=str,
)
def test_a_frozen_value_runs_the_program_of_the_value(value):
    """One trace for it, for the value, for a copy and for what was pickled."""
    f = optimize(static="value")(lambda x, value: x + len(str(value)))
    frozen = jitney.static(value)
    again = pickle.loads(pickle.dumps(frozen))
    for each in (frozen, value, copy.copy(frozen), copy.deepcopy([frozen])[0], again, frozen):
        np.testing.assert_allclose(f(X, each), HOST + len(str(value)))
    assert f.stats.traces == 1
    assert again == frozen
    assert hash(again) == hash(frozen)
    assert again is not frozen
    assert copy.deepcopy(frozen) is frozen


@pytest.mark.rest
def test_values_that_a_body_can_tell_apart_are_not_equal():
    """`1`, `True` and `1.0`, and zero with its sign, as those that are passed as they are."""
    values = [[1], [True], [1.0], [0.0], [-0.0], (1,), [[1]]]
    frozen = [Static(value) for value in values]
    assert len({*frozen}) == len(values)
    f = optimize(static="value")(lambda x, value: x + len(repr(value)))
    for value, each in zip(values, frozen, strict=True):
        np.testing.assert_allclose(f(X, each), HOST + len(repr(value)))


def test_a_warm_call_compares_nothing_of_it():
    """A warm call with it makes as many calls of Python's functions as one with an int."""

    def calls(knots):
        f = optimize(static="knots")(lambda x, knots: x + (knots if knots == 3 else len(knots)))
        for _ in range(5):
            f(X, knots)
        seen = []
        sys.setprofile(lambda frame, event, _: event == "call" and seen.append(frame.f_code))
        try:
            f(X, knots)
        finally:
            sys.setprofile(None)
        return [code.co_qualname for code in seen]

    assert calls(jitney.static([*range(100)])) == calls(3)
    assert len(calls([*range(100)])) > len(calls(3))


@pytest.mark.rest
def test_defaults_and_keywords_are_frozen_too():
    """Of a default, of `**kwargs`, of a static argument by keyword."""
    frozen = jitney.static([1.0, 2.0])
    by_default = optimize(static="knots")(lambda x, knots=frozen: shifted(x, knots))
    by_name = optimize(static="knots")(lambda x, **rest: shifted(x, rest["knots"]))
    for _ in range(4):
        np.testing.assert_allclose(by_default(X), HOST + 5)
        np.testing.assert_allclose(by_default(X, [1.0]), HOST + 2)
        np.testing.assert_allclose(by_default(X, knots=frozen), HOST + 5)
        np.testing.assert_allclose(by_name(X, knots=frozen), HOST + 5)


@pytest.mark.rest
def test_inside_other_values_it_is_an_object_with_a_value():
    """In a static field, in a field, and in a list; equal ones share a program, also under
    `jax.jit`.
    """

    class Spline(eqx.Module):
        knots: Static = eqx.field(static=True)
        scale: jax.Array

    f = optimize(lambda spline, x: spline.scale * x + sum(spline.knots.value))
    plain = jax.jit(lambda spline, x: spline.scale * x + sum(spline.knots.value))
    for knots in ([1.0], [1.0], [2.0]):
        spline = Spline(jitney.static(knots), jnp.float32(2))
        np.testing.assert_allclose(f(spline, X), 2 * HOST + knots[0])
        np.testing.assert_allclose(f(spline, X), plain(spline, X))
    assert f.stats.traces == 2
    of_list = optimize(lambda x, parts: x + sum(parts[0].value))
    for knots in ([1.0], [2.0], [1.0]):
        np.testing.assert_allclose(of_list(X, [jitney.static(knots), X]), HOST + knots[0])
    assert of_list.stats.traces == 2


@pytest.mark.rest
@pytest.mark.parametrize("way", ["grad", "vmap", "eager", "lower", "verify", "export"])
def test_each_way_of_calling_gets_the_value(way, tmp_path):
    """Derivatives, maps, runs without Jit, programs that are lowered, checked and written."""
    frozen = jitney.static([1.0, 2.0])
    f = optimize(static="knots", verify=way == "verify")(lambda x, knots: shifted(x, knots).sum())
    if way == "grad":
        np.testing.assert_allclose(f.grad(X, frozen)["x"], np.ones(4))
        np.testing.assert_allclose(jax.grad(lambda x: f(x, frozen))(X), np.ones(4))
    elif way == "vmap":
        mapped = optimize(static="knots", vmap={"row": {"x": 0}})(f.__wrapped__)
        np.testing.assert_allclose(mapped(X, frozen), HOST + 5)
    elif way == "eager":
        with jax.disable_jit():
            assert f(X, frozen) == 26
    elif way == "lower":
        assert f.lower(X, frozen).compile()(X, frozen) == 26
    elif way == "export":
        path = tmp_path / "shifted.jitney"
        f.export(path, X, frozen)
        loaded = jitney.load(path)
        assert loaded(X, frozen) == loaded(X, [1.0, 2.0]) == 26
        with pytest.raises(jitney.errors.ContractError, match="was exported with"):
            loaded(X, jitney.static([1.0]))
    else:
        assert f(X, frozen) == f(X, frozen) == 26


KEPT = """
import equinox as eqx
import jax
import jitney


class Spline(eqx.Module):
    knots: object = eqx.field(static=True)
    scale: jax.Array


@jitney.optimize(cache="program", static="knots")
def shifted(x, knots):
    return x + sum(knots)


@jitney.optimize(cache="program")
def inside(spline, x):
    return spline.scale * x + sum(spline.knots.value)
"""


@pytest.mark.rest
def test_programs_are_found_in_other_processes(folder, tmp_path):
    """As an argument it has the digest of the value, in a static field one of its own; another
    value has another program.
    """
    lab.write(tmp_path, {"lab_main.py": KEPT})
    for knots, is_found in (([1.0, 2.0], False), ([1.0, 2.0], True), ([1.0, 4.0], False)):
        with lab.process(tmp_path) as main:
            frozen = jitney.static(knots)
            np.testing.assert_allclose(main.shifted(X, frozen), HOST + sum(knots))
            spline = main.Spline(frozen, jnp.float32(2))
            np.testing.assert_allclose(main.inside(spline, X), 2 * HOST + sum(knots))
            assert (lab.is_found(main.shifted), lab.is_found(main.inside)) == (is_found, is_found)


@dataclass(frozen=True)
class Hashed:
    """A frozen dataclass with a hash of its own, which leaves out the list."""

    parts: list

    def __hash__(self):
        return 1


class Plain:
    """An object that is equal to nothing but itself."""


@pytest.mark.rest
@pytest.mark.parametrize(
    "value",
    [Plain(), [Plain()], {"a": (Plain(),)}, Hashed([1]), iter([1]), np.random.default_rng()],
    ids=lambda value: type(value).__name__,
)
def test_what_can_change_and_is_not_copied_is_refused(value):
    """Its later changes would not be seen."""
    with pytest.raises(jitney.errors.StaticError, match="which may change later"):
        jitney.static(value)


@pytest.mark.rest
def test_an_argument_that_is_not_named_is_refused():
    """The body would get the object in place of the value."""
    for f in (optimize(lambda x, *rest: x), optimize(lambda x, **rest: x)):
        frozen = jitney.static([1.0])
        with pytest.raises(jitney.errors.ContractError, match="`static` does not name it"):
            f(X, frozen) if f.__wrapped__.__code__.co_flags & 4 else f(X, knots=frozen)
