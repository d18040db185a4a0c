"""What programs share, and what keeps what alive."""

import dataclasses
import functools
import gc
import subprocess
import sys
import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._program.registry import Registry
from jitney._signature.options import Options
from jitney.errors import ContractError, OptionError
from tests._arrays import array
from tests._tracing import count_traces

X = array(np.arange(3.0))


def double(x):
    return x * 2


@dataclasses.dataclass(frozen=True)
class Scale:
    """A callable that is compared by value."""

    by: float

    def __call__(self, x):
        return x * self.by


@dataclasses.dataclass(frozen=True)
class Table:
    """A callable whose hash fails: the array in it has none."""

    values: Any

    def __call__(self, x):
        return x * self.values


class NoHash:
    __hash__ = None

    def __call__(self, x):
        return x + 1


class Slotted:
    """No weak reference to it is possible."""

    __slots__ = ()

    def __call__(self, x):
        return x + 2


def collected(*references):
    jax.clear_caches()
    gc.collect()
    return [reference() is None for reference in references]


# Sharing.


def test_the_same_function_twice_is_traced_once():
    """Decorated in two places, bare and with the default options written out."""
    counted = count_traces(double)
    for program in (
        optimize(counted),
        optimize(counted),
        optimize()(counted),
        optimize(counted, cache=True, remat=False),
    ):
        np.testing.assert_array_equal(program(X), [0, 2, 4])
    assert counted.traces == 1


def test_the_same_function_with_other_options_is_another_program():
    """Numbers of their own, and counters of their own."""
    single, wide = optimize(double), optimize(precision="f64")(double)
    single(X)
    single(X)
    wide(X)
    assert (single.stats.calls, wide.stats.calls) == (2, 1)
    assert single != wide


def test_functions_that_are_equal_share():
    """A callable that is compared by value is traced once, whichever of two equal ones is
    called.
    """
    seen = []

    @dataclasses.dataclass(frozen=True)
    class Counted(Scale):
        def __call__(self, x):
            seen.append(self.by)
            return x * self.by

    for by in (2.0, 3.0, 2.0, 3.0):
        np.testing.assert_array_equal(optimize(Counted(by))(X), np.arange(3) * by)
    held = [optimize(Counted(by)) for by in (2.0, 2.0)]
    seen.clear()
    for program in held:
        np.testing.assert_array_equal(program(X), [0, 2, 4])
    assert seen == [2.0]


@pytest.mark.rest
@pytest.mark.parametrize("first_goes", [True, False])
def test_one_of_two_equal_functions_may_go(first_goes):
    """The other still runs at new shapes, whichever was decorated first."""
    programs = [optimize(Scale(by)) for by in (7.0, 7.0)]
    programs[0](X)
    del programs[0 if first_goes else 1]
    gc.collect()
    np.testing.assert_array_equal(programs[0](jnp.ones(5)), np.full(5, 7))
    np.testing.assert_array_equal(optimize(Scale(7.0))(jnp.ones(6)), np.full(6, 7))


def test_equal_code_alone_never_shares():
    """Closures over other values, made by the same line."""

    def make(k):
        return lambda x: x * k

    programs = [optimize(make(k)) for k in range(3)]
    assert len({program.__wrapped__.__code__ for program in programs}) == 1
    for k, program in enumerate(programs):
        np.testing.assert_array_equal(program(X), np.arange(3) * k)
        assert program.stats.traces == 1


def test_two_instances_of_one_module_share():
    """A module is decorated as its `__call__`, and is an argument as all others."""
    traces = []

    class Linear(eqx.Module):
        weight: Any

        def __call__(self, x):
            traces.append(1)
            return self.weight @ x

    for k in (1.0, 2.0):
        np.testing.assert_array_equal(optimize(Linear(jnp.eye(3) * k))(X), np.arange(3) * k)
    assert len(traces) == 1


def test_partials_of_one_function_share():
    """Their arguments are traced, not baked in."""
    counted = count_traces(lambda x, y: x + y)
    for k in (1.0, 2.0):
        np.testing.assert_array_equal(
            optimize(functools.partial(counted, X * k))(X), np.arange(3) * (k + 1)
        )
    assert counted.traces == 1


@pytest.mark.parametrize("made", [lambda: Table(np.full(3, 3.0, np.float32)), NoHash, Slotted])
def test_a_function_that_cannot_be_looked_up_runs(made):
    """No hash, a hash that fails, or no weak reference: nothing is shared, all else works."""
    fn = made()
    for _ in range(2):
        program = optimize(fn)
        for _ in range(2):
            np.testing.assert_array_equal(program(X), np.asarray(fn(X)))
        assert program.stats.traces == 1


def test_counters_are_shared_with_the_program():
    """Two wrappers of one function are one program to whoever reads `stats`."""
    fn = lambda x: x + 1
    one, other = optimize(fn), optimize(fn)
    one(X)
    other(X)
    assert one.stats.calls == other.stats.calls == 2
    assert one == other
    assert hash(one) == hash(other)


# Lifetimes.


@pytest.mark.rest
def test_a_function_is_let_go_with_its_last_program():
    """Called or not; the registry is no reason to live."""

    def make(*, call):
        def body(x: Float[Array, "n"]):
            return x * 2

        program = optimize(body)
        if call:
            program(X)
        return weakref.ref(body), weakref.ref(program._core)

    for call in (True, False):
        assert collected(*make(call=call)) == [True, True]


@pytest.mark.rest
def test_a_program_keeps_its_function_alive():
    """Nobody else needs to hold it; a new shape is traced long after."""
    program = optimize(lambda x: x * 5)
    program(X)
    gc.collect()
    np.testing.assert_array_equal(program(jnp.ones(2)), [5, 5])


class Weights:
    """An object of a plain class, which something else knows too: a child, a callback, a list."""

    def __init__(self, value):
        self.weights = np.full(4, value, np.float32)
        self.child = Child(self)
        self.callback, self.partial = self.times, functools.partial(Weights.times, self)
        self.all = [self]
        self.program = optimize(self.times)

    def times(self, x):
        return x * self.weights[0]

    def identical(self, x):
        """It reads all of these."""
        sums = (
            self.child.parent.times(x)
            + self.callback(x)
            + self.partial(x)
            + self.all[0].times(x)
            + self.program(x)
        )
        return sums / 5

    def with_itself(self, x):
        return self.times(x), self


class Child:
    def __init__(self, parent):
        self.parent = parent


def closing(value):
    weights = np.full(4, value, np.float32)
    return lambda x: x * weights[0]


@dataclasses.dataclass(frozen=True)
class Config:
    weights: Weights


_times = optimize(lambda weights, x: weights.times(x))
_whole = optimize(static="weights")(lambda weights, x: weights.times(x))
_inside = optimize(static="config")(lambda config, x: config["all"][0].times(x))
_of_record = optimize(lambda config, x: config.weights.times(x))
_called = optimize(lambda fn, x: fn(x))
FRESH = {
    "method": (Weights, lambda it: optimize(it.times)(X)),
    "what leads back": (Weights, lambda it: optimize(it.identical)(X)),
    "result": (Weights, lambda it: optimize(it.with_itself)(X)[0]),
    "not compiled on disk": (Weights, lambda it: optimize(cache=False)(it.times)(X)),
    "cached program": (Weights, lambda it: optimize(cache="program")(it.times)(X)),
    "argument": (Weights, lambda it: _times(it, X)),
    "static argument": (Weights, lambda it: _whole(it, X)),
    "inside of a static argument": (Weights, lambda it: _inside({"all": [it]}, X)),
    "in a frozen record": (Weights, lambda it: _of_record(Config(it), X)),
    "method as an argument": (Weights, lambda it: _called(it.times, X)),
    "partial as an argument": (
        Weights,
        lambda it: _called(functools.partial(Weights.times, it), X),
    ),
    "gradient": (
        Weights,
        lambda it: optimize(lambda weights, x: jnp.sum(weights.times(x))).grad(it, X)["x"] * X,
    ),
    "closure": (closing, lambda fn: optimize(fn)(X)),
}


@pytest.mark.core("what leads back", "inside of a static argument")
@pytest.mark.parametrize("use", FRESH)
def test_fresh_objects_are_let_go_with_their_programs(use):
    """None of three is held by a program, by what was read of it, or by a report on retraces; each
    call has its own numbers.
    """
    make, call = FRESH[use]
    objects = []
    for value in (2, 3, 4):
        fresh = make(value)
        objects.append(weakref.ref(fresh))
        np.testing.assert_allclose(call(fresh), value * X)
        del fresh
    assert collected(*objects) == [True] * 3


@pytest.mark.rest
def test_programs_go_with_their_object():
    """So that a process which makes objects all day holds no program of a dead one."""
    program = optimize(lambda weights, x: weights.times(x))
    for value in range(5):
        program(Weights(value), X)
        gc.collect()
    assert not program.core.entries
    assert not any(layout.entries for layout in program.core.layouts.values())


def test_an_object_in_the_place_of_a_dead_one_has_its_own_program():
    """Python gives the memory of a dead object, and with it its `id`, to the next."""

    class Factor:
        def __init__(self, value):
            self.value = value

    program = optimize(lambda factor, x: factor.value * x)
    places = set()
    for value in range(1, 9):
        factor = Factor(value)
        places.add(id(factor))
        np.testing.assert_allclose(program(factor, X), value * X)
        del factor
    assert len(places) < 8  # else nothing was tried


@pytest.mark.rest
def test_closures_as_arguments_are_let_go_but_for_a_few():
    """The functions that take apart the latest kinds of calls hold what they ask for; `clear_cache`
    lets go of those too.
    """
    program = optimize(lambda fn, x: fn(x))
    closures = []
    for value in range(1, 9):
        closure = closing(value)
        closures.append(weakref.ref(closure))
        np.testing.assert_allclose(program(closure, X), value * X)
        del closure
    assert sum(collected(*closures)) >= 4
    program.clear_cache()
    assert all(collected(*closures))


AT_THE_END = """
import numpy, jitney


class Scale:
    def by(self, x):
        return x * 2


scale = Scale()
jitney.optimize(scale.by)(numpy.ones(3))
"""


@pytest.mark.rest
def test_objects_that_live_to_the_end_of_python_are_no_error():
    """They go when modules are empty already."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_END], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


class Holds(eqx.Module):
    """A module with an object and a closure that its structure tells."""

    fn: object = eqx.field(static=True)
    call: object

    def __call__(self, x):
        return self.call(x) + 0 * self.fn(x)


def test_clear_cache_lets_go_of_all_that_calls_were_given():
    """What the structure of a module tells, and what a program calls back, is held until then."""

    class Calls:
        def host(self, x):
            return np.asarray(x)

        def __call__(self, x):
            return jax.pure_callback(self.host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    program, given = optimize(lambda fn, x: fn(x)), []
    for make in (lambda: Holds(closing(1), closing(2)), Calls):
        fresh = make()
        given += [
            weakref.ref(part)
            for part in ([fresh.fn, fresh.call] if isinstance(fresh, Holds) else [fresh])
        ]
        program(fresh, X)
        del fresh
    program.clear_cache()
    assert all(collected(*given))


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["numpy", "jax", "closure"])
def test_what_an_object_held_before_is_let_go(kind):
    """At most 16 MiB of arrays that were replaced, of a megabyte each; of functions none."""

    class Model:
        def __call__(self, x):
            return x * (self.held(x)[0] if kind == "closure" else self.held[0])

    model, program, held = Model(), optimize(lambda model, x: model(x)), []
    for value in range(1, 25):
        array = np.full(1 << 18, value, np.float32)
        model.held = {"numpy": lambda a: a, "jax": jnp.asarray, "closure": lambda a: lambda x: a}[
            kind
        ](array)
        held.append(weakref.ref(model.held))
        np.testing.assert_allclose(program(model, X), value * X)
        del array
    entry, count = next(iter(program.core.entries.values())), 0
    while entry is not None:
        entry, count = entry.other, count + 1
    assert count <= (3 if kind == "closure" else 17)
    assert len(held) - sum(collected(*held)) <= 17


def test_an_annotation_that_waits_for_a_name_keeps_nothing_alive():
    """The names around the decoration are kept for it, but not the function itself, which is one of
    them.
    """

    def make():
        def body(x: "DefinedLater") -> None:
            return x

        program = optimize(body)
        return weakref.ref(body), weakref.ref(program)

    assert collected(*make()) == [True, True]


def test_an_annotation_may_name_what_is_local_to_the_decoration():
    """One name is there at decoration and one comes later, before the first call."""
    Rows = Float[Array, "n 2"]

    def body(x: "Rows | Later", y: "Rows"):
        return y

    program = optimize(body)
    globals()["Later"] = Float[Array, "n 3"]
    try:
        with pytest.raises(ContractError, match="'y'"):
            program(jnp.ones((4, 3)), jnp.ones((4, 3)))
        np.testing.assert_array_equal(program(jnp.ones((4, 3)), jnp.ones((4, 2))), np.ones((4, 2)))
    finally:
        del globals()["Later"]


def test_an_option_is_held_against_annotations_once_they_are_known():
    """The name of an axis that comes with a later definition."""

    def body(x: "Late"):
        return x

    program = optimize(vmap="n")(body)
    globals()["Late"] = Float[Array, "n"]
    try:
        with pytest.raises(OptionError, match="names an axis that the signature has already"):
            program(X)
    finally:
        del globals()["Late"]


def test_a_body_that_is_gone_says_so():
    """Not a segmentation fault, nor another function: the name of the one that is gone."""
    core = Registry().core(lambda x: x, Options())
    gc.collect()
    with pytest.raises(ReferenceError, match=r"<lambda>\(\) at test_core.py:\d+ is gone"):
        core.fn()


def test_a_registry_forgets_functions_that_are_gone():
    """No entry is left behind by closures made in a loop."""
    registry = Registry()
    for k in range(10):
        registry.core(lambda x, k=k: x * k, Options())
    gc.collect()
    assert len(registry._cores) == 0


# What is decorated.


def test_a_class_is_a_function_that_makes_instances():
    """Its annotations are those of `__init__`, its result is no None."""

    class Made(eqx.Module):
        weight: Array

        def __init__(self, x: Float[Array, "n"]) -> None:
            self.weight = x * 2

    np.testing.assert_array_equal(optimize(Made)(X).weight, [0, 2, 4])
    with pytest.raises(ContractError, match="'x'"):
        optimize(Made)(jnp.ones((2, 2)))


def test_programs_print_what_they_are():
    """Where the function stands, and the options that were given."""
    line = double.__code__.co_firstlineno
    assert repr(optimize(double)) == f"<jitney program double() at test_core.py:{line}>"
    assert (
        repr(optimize(static="x", cache=False)(double))
        == f"<jitney program double() at test_core.py:{line} static='x', cache=False>"
    )
