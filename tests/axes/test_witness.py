"""The trace at the true size: what code decides by a size without asking it, and what Python computes of one, against plain `jax.jit`."""

import contextlib
import dataclasses
import functools
import gc
import math
import operator
import sys
import types
import warnings
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import JitneyWarning, optimize
from jitney._axes import Refused, demand, run_padded, trace
from jitney._axes.witness.code_that_ran import scanned

V = Float[Array, "n"]
SIZES = (299, 300, 512)  # one bucket


def by_array(x: V):
    return x * 2 if x.shape[0] == np.array(300) else x


def by_array_in_front(x: V):
    return x * 2 if np.array(300) == x.shape[0] else x


def by_float32(x: V):
    return x * 2 if x.shape[0] == np.float32(300) else x


def by_fraction(x: V):
    return x * 2 if x.shape[0] == Fraction(300) else x


def by_decimal(x: V):
    return x * 2 if x.shape[0] == Decimal(300) else x


def by_complex(x: V):
    return x * 2 if x.shape[0] == 300 + 0j else x


def among_array(x: V):
    return x * 2 if x.shape[0] in np.array([300, 301]) else x


def by_jax_array(x: V):
    return jnp.where(x.shape[0] == jnp.array(300), x * 2, x)


def as_number(x: V):
    return x * np.float32(x.shape[0] == np.array(300))


def by_isinstance(x: V):
    return x * 2 if isinstance(x.shape[0], int) else x


def by_type_and_value(x: V):
    return x * 2 if type(x.shape[0]) is int and x.shape[0] > 300 else x


def by_class(x: V):
    return x * 2 if x.shape[0].__class__ is int and x.shape[0] > 300 else x


def by_attribute(x: V):
    return x * 2 if hasattr(x.shape[0], "bit_length") and x.shape[0] > 300 else x


def by_default_of_attribute(x: V):
    n = getattr(x.shape[0], "real", None)
    return x * 2 if n is not None and n > 300 else x


def by_match(x: V):
    match x.shape[0]:
        case int(n) if n > 300:
            return x * 2
        case _:
            return x


def by_identity(x: V):
    n = x.shape[0]
    m = n
    return x * 2 if operator.is_(n, m) and type(n) is int and n > 300 else x


def kind_of_default(x: V, kind=type):
    return x * 2 if kind(x.shape[0]) is int and x.shape[0] > 300 else x


def by_what_it_closes_over(kind):
    def inside(x: V):
        return x * (2.0 if kind(x.shape[0]) == int and x.shape[0] > 300 else 1.0)  # noqa: E721

    return inside


closed_over = by_what_it_closes_over(type)


@functools.singledispatch
def factor(n):
    return 1.0


@factor.register
def _(n: int):
    return 2.0 if n > 300 else 1.0


def by_dispatch(x: V):
    return x * factor(x.shape[0])


def by_order_that_is_caught(x: V):
    try:
        return x * 2 if x.shape[0] > 300 else x
    except Exception:  # noqa: BLE001
        return x


def by_conversion_that_is_caught(x: V):
    n = 0.0
    with contextlib.suppress(Exception):
        n = math.sqrt(x.shape[0])
    return x * 2 if n > 17.32 else x


def as_index(x: V):
    return x[300 if isinstance(x.shape[0], int) and x.shape[0] > 300 else 0] * x


def as_constant(x: V):
    return x[:2] * np.array([1.0, 2.0 if isinstance(x.shape[0], int) and x.shape[0] > 300 else 1.0], np.float32)


def backwards_if_known(x: V):
    return x[::-1] if type(x.shape[0]) is int and x.shape[0] > 300 else x


@jax.jit
def helper(x):
    return x * 2 if isinstance(x.shape[0], int) and x.shape[0] > 300 else x


def in_a_jitted_helper(x: V):
    return helper(x)


def in_a_loop(x: V):
    return jax.lax.scan(lambda c, _: (helper(c), None), x, None, length=2)[0]


DECISIONS = [value for value in list(globals().values()) if getattr(value, "__annotations__", {}).get("x") is V]


def agrees(padded, plain, n, rtol=0.0):
    x = np.random.default_rng(n).normal(size=n).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitneyWarning)
        got = padded(x)
    np.testing.assert_allclose(got, plain(x), rtol=rtol, atol=0)


@pytest.mark.parametrize("fn", DECISIONS, ids=lambda fn: fn.__name__)
def test_no_decision_by_a_size_goes_unseen(fn):
    """Each size of one bucket gives what plain JAX gives, in whichever order they come."""
    for sizes in (SIZES, SIZES[::-1]):
        padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
        for n in sizes:
            agrees(padded, plain, n)


def test_a_body_that_jax_has_traced_before_is_looked_at_again():
    """JAX's own caches hold the helper's trace at a size: the witness runs it anew."""
    helper(jnp.ones(300))
    helper(jnp.ones(301))
    padded, plain = optimize(in_a_jitted_helper, pad={"n": "pow2"}), jax.jit(in_a_jitted_helper)
    for n in SIZES:
        agrees(padded, plain, n)


def pairs(x: V):
    return x.sum() / (x.shape[0] * (x.shape[0] - 1) / 2)


def shrunk(x: V):
    n = x.shape[0]
    return x * (1 - n / (n + 1))


def cubed(x: V):
    return x / (x.shape[0] ** 3 / 7)


def as_integer(x: V):
    return x.astype(jnp.int32) * (x.shape[0] * x.shape[0] // 70_000)


def in_a_loop_too(x: V):
    n = x.shape[0]
    return jax.lax.scan(lambda c, a: (c * (1 - 1 / n) + a / (n * n * n / 7), c), jnp.float32(0), x)


def in_a_branch(x: V):
    n = x.shape[0]
    return jax.lax.cond(x[0] > 0, lambda: x * (n / (n + 1)), lambda: x * (1 / n**3))


def in_half_precision(x: V):
    return x.astype(jnp.float16) * (1 / x.shape[0])


def in_calls(x: V):
    """Of a size that is a symbol, JAX's own jitted functions compute these: a remainder by what nearly divides it, a quotient."""
    n = x.shape[0]
    return x * (-n % (0.5 / 7)) + n // (0.1 / 7)


NUMBERS = [pairs, shrunk, cubed, as_integer, in_a_loop_too, in_a_branch, in_half_precision, in_calls]


@pytest.mark.parametrize("fn", NUMBERS, ids=lambda fn: fn.__name__)
def test_numbers_made_of_a_size_are_pythons_when_padded(fn):
    """Python's integers have no end and its floats have 64 bits, at sizes beyond 32 bits too."""
    padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
    for n in (300, 301, 60_000, 65_535):
        x = np.random.default_rng(n).normal(size=n).astype(np.float32)
        for got, want in zip(jax.tree.leaves(padded(x)), jax.tree.leaves(plain(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6 if fn is pairs else 1e-12)
    assert padded.stats.traces <= 4  # of two buckets: once to learn of the numbers, once with them


@pytest.mark.parametrize("fn", [pairs, shrunk, cubed, as_integer, in_half_precision, in_calls], ids=lambda fn: fn.__name__)
def test_numbers_made_of_a_size_are_pythons_in_chunks(fn):
    """The size is known there, and so is what Python made of it."""
    chunked, plain = optimize(fn, chunk={"n": 7000}), jax.jit(fn)
    x = np.random.default_rng(0).normal(size=60_000).astype(np.float32)
    np.testing.assert_allclose(chunked(x), plain(x), rtol=2e-5, atol=1e-6 if fn is pairs else 0)


def test_numbers_made_of_a_size_are_pythons_in_streams():
    """As in chunks, from the host."""
    x = np.random.default_rng(0).normal(size=60_000).astype(np.float32)
    got, _ = jitney.stream(optimize(pairs), {"x": x}, chunk={"n": 7000}, progress=False)
    np.testing.assert_allclose(got, x.astype(np.float64).sum() / (60_000 * 59_999 / 2), rtol=1e-4, atol=1e-9)


def test_numbers_made_of_a_size_in_a_mapped_function_and_ahead_of_time():
    """Under `vmap`, and compiled before the first call."""
    padded = optimize(shrunk, vmap="row", pad={"n": "pow2"})
    padded.compile(sizes={"n": 300, "row": 2})
    x = np.random.default_rng(0).normal(size=(2, 301)).astype(np.float32)
    np.testing.assert_allclose(padded(x), x * np.float32(1 - 301 / 302), rtol=1e-6)


def test_code_that_asks_nothing_is_traced_once_for_all_sizes():
    """The divisor of a mean, shapes and slices: 200 sizes of one bucket share one trace."""
    traces = 0

    def body(x: V):
        nonlocal traces
        traces += 1
        return jnp.mean(x) + x[-1] * x[1:].sum() / x.shape[0]

    padded = optimize(body, pad={"n": "pow2"})
    for n in range(300, 500):
        padded(np.ones(n, np.float32))
    assert traces == 2  # with a symbol, and at the first size
    assert padded.stats.traces == 1


LAYERS = {
    "Linear": lambda k: (eqx.nn.Linear(4, 3, key=k), (4,)),
    "MLP": lambda k: (eqx.nn.MLP(4, 1, 8, 2, key=k), (4,)),
    "Conv2d": lambda k: (eqx.nn.Conv2d(2, 3, 3, key=k), (2, 6, 6)),
    "MaxPool2d": lambda k: (eqx.nn.MaxPool2d(2, 2), (2, 6, 6)),
    "AvgPool2d": lambda k: (eqx.nn.AvgPool2d(2, 2), (2, 6, 6)),
    "LayerNorm": lambda k: (eqx.nn.LayerNorm(4), (4,)),
    "RMSNorm": lambda k: (eqx.nn.RMSNorm(4), (4,)),
    "GroupNorm": lambda k: (eqx.nn.GroupNorm(2, 4), (4, 5)),
    "GRUCell": lambda k: (functools.partial(eqx.nn.GRUCell(4, 5, key=k), hidden=jnp.zeros(5)), (4,)),
    "LSTMCell": lambda k: (functools.partial(eqx.nn.LSTMCell(4, 5, key=k), hidden=(jnp.zeros(5), jnp.zeros(5))), (4,)),
    "Sequential": lambda k: (eqx.nn.Sequential([eqx.nn.Linear(4, 4, key=k), eqx.nn.Lambda(jax.nn.relu)]), (4,)),
}


@pytest.mark.parametrize("name", [*LAYERS, "MultiheadAttention"])
def test_layers_of_equinox_need_no_trace_for_each_size(name):
    """Along the batch, and attention along its sequence; forward and backward."""
    key = jax.random.key(0)
    if name == "MultiheadAttention":
        layer, shape = eqx.nn.MultiheadAttention(2, 4, key=key), (4,)
        run = lambda x: layer(x, x, x)
    else:
        layer, shape = LAYERS[name](key)
        run = jax.vmap(layer)
    loss = jax.value_and_grad(lambda x: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(run(x))))
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"], *shape), np.float32)]
    assert trace(loss, avals, {"d0": (5, 8)}, {"d0": 6}).each is None


def test_what_runs_when_garbage_is_collected_is_not_the_bodys():
    """A callback of the collector may do what it likes."""

    def collected(phase, info):
        type(phase)

    def body(x):
        gc.collect()
        return [x * 2]

    gc.callbacks.append(collected)
    try:
        program = trace(body, lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], {"d0": (5, 8)}, {"d0": 6})
    finally:
        gc.callbacks.remove(collected)
    assert program.each is None or "collected" not in program.each


def test_what_is_collected_and_runs_once_more_is_not_the_bodys():
    """A generator that is closed, and a finalizer; what runs afterwards is looked at."""

    class Held:
        def __del__(self):
            type(self)

    def generated():
        held = [Held()]
        try:
            yield held
        finally:
            type(held)

    found = []

    def body():
        return type(found)

    circle = [generated()]
    circle += [circle, next(circle[0])]
    with scanned(found.append):
        del circle
        gc.collect()
        assert found == []
        body()
    assert found
    assert all("(body)" in line for line in found)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 has `sys.monitoring` for this")
def test_under_a_profiler_each_size_is_traced():
    """A profile function is the user's, and stays; what runs is not seen then."""
    events = []
    sys.setprofile(lambda *event: events.append(event[1]))
    try:
        program = trace(lambda x: [x * 2], lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], {"d0": (5, 8)}, {"d0": 6})
        profiled = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert profiled is not None
    assert events
    assert program.each is not None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no `sys.monitoring`")
def test_where_all_monitors_are_taken_each_size_is_traced(monkeypatch):
    """Debuggers, profilers and coverage hold six at most."""
    monkeypatch.setattr(sys.monitoring, "get_tool", lambda _: "another")
    program = trace(lambda x: [x * 2], lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], {"d0": (5, 8)}, {"d0": 6})
    assert program.each is not None


def test_the_constant_of_each_size_is_checked_against_the_program():
    """What is the same operation with another constant is not the same."""
    values = iter([1.0, 1.0, 2.0])

    def body(x):
        return [x * next(values)]

    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    program = trace(body, avals, {"d0": (5, 8)}, {"d0": 6})
    with pytest.raises(Refused, match="does other operations at size 7"):
        program.numbers_at(body, avals, {"d0": 7})


MOVES = {
    "slice": lambda x: x[2:-1],
    "strided": lambda x: x[1::2],
    "reversed": lambda x: x[::-1],
    "last rows": lambda x: x[-2:],
    "a row": lambda x: x[-1],
    "columns": lambda x: x[:, 1:],
    "rows and columns": lambda x: x[1:, ::2],
    "taken": lambda x: x[jnp.array([0, 2, -1])],
    "written": lambda x: x.at[1:].set(x[:-1]),
    "added": lambda x: x.at[-1].add(1.0),
    "rolled": lambda x: jnp.roll(x, 2, 0),
    "flipped": lambda x: jnp.flip(x),
    "differences": lambda x: jnp.diff(x, axis=0),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_of_a_symbolic_size_are_those_of_a_known_one(name):
    """JAX moves elements by other operations where a size is a symbol; values and gradients are not refused for that."""
    backward = lambda x: jax.grad(lambda y: jnp.sum(jnp.sin(MOVES[name](y))))(x)
    fn = lambda x: [MOVES[name](x), *([] if name in ("written", "rolled") else [backward(x)])]  # their derivatives have no rule
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"], 4), np.float32)]
    program = trace(fn, avals, {"d0": (5, 8)})
    demand(program.jaxpr, program.ranges)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    run = jax.jit(lambda n, x: run_padded(program.jaxpr, [x], {"d0": 8}, {"d0": n}))
    out = run(np.int32(6), np.where(np.arange(8)[:, None] < 6, x, np.nan))
    for got, want in zip(out, jax.jit(fn)(x[:6]), strict=True):
        np.testing.assert_allclose(np.asarray(got)[tuple(map(slice, want.shape))], want, rtol=1e-6)


@pytest.mark.parametrize(
    "other",
    [lambda x: x[1:], lambda x: x[::-1][:-1], lambda x: x[jnp.arange(x.shape[0] - 1) // 2], lambda x: jnp.roll(x, 1)[:-1]],
    ids=["a slice", "backwards", "twice each", "rolled"],
)
def test_other_moves_are_other_operations(other):
    """A program that moves elements elsewhere at a size is refused there."""
    known = False

    def body(x):
        return [other(x) if known else x[:-1]]

    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    program = trace(body, avals, {"d0": (5, 8)})
    known = True
    with pytest.raises(Refused, match="does other operations"):
        program.numbers_at(body, avals, {"d0": 7})


def same(a, b):
    return a == b


class Kinds(NamedTuple):
    kind: Any = type


class Slots:
    __slots__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind


@dataclasses.dataclass
class Field:
    kinds: dict[str, Any]


class Layer(eqx.Module):
    kinds: tuple[Any, ...] = eqx.field(static=True)

    def __call__(self, x: V):
        return 2 * x if same(self.kinds[0](x.shape[0]), int) and x.shape[0] == 300 else x


class Holder:
    kind = type

    def chosen(self, name):
        return getattr(self, name)


KINDS, TYPES = {"a": [type]}, (int, type)
ATTRIBUTES = {"class": operator.attrgetter("__class__")}
MODULE = types.SimpleNamespace(inner=types.SimpleNamespace(kind=type))


def out_of_a_dict(x: V):
    return 2 * x if same(KINDS["a"][0](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_tuple(x: V):
    return 2 * x if same(TYPES[1](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_named_tuple(x: V, kinds=Kinds()):  # noqa: B008
    return 2 * x if same(kinds.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_slots(x: V, held=Slots(type)):  # noqa: B008
    return 2 * x if same(held.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_dataclass(x: V, held=Field({"a": type})):  # noqa: B008
    return 2 * x if same(held.kinds["a"](x.shape[0]), int) and x.shape[0] == 300 else x


def out_of_a_module(x: V, layer=Layer((type,))):  # noqa: B008
    return layer(x)


def out_of_a_class(x: V):
    return 2 * x if same(Holder().kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_name_that_is_made(x: V):
    return 2 * x if same(Holder().chosen("ki" + "nd")(x.shape[0]), int) and x.shape[0] == 300 else x


def deep_inside(x: V):
    return 2 * x if same(MODULE.inner.kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_an_attribute_getter(x: V):
    return 2 * x if same(ATTRIBUTES["class"](x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_class_of_a_class(x: V):
    return 2 * x if same((1).__class__.__class__(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_partial(x: V, ask=functools.partial(type)):  # noqa: B008
    return 2 * x if same(ask(x.shape[0]), int) and x.shape[0] == 300 else x


def by_a_partial_of_isinstance(x: V):
    return 2 * x if functools.partial(isinstance, x.shape[0])(int) and x.shape[0] == 300 else x


def by_what_is_bound(x: V, ask=types.MethodType(isinstance, 3)):  # noqa: B008
    return 2 * x if ask(int) and [isinstance][0](x.shape[0], int) and x.shape[0] == 300 else x


def by_identity_of_a_descriptor(x: V):
    return 2 * x if str(object.__eq__(x.shape[0], 300)) == "NotImplemented" and x.shape[0] == 300 else x


def by_names_of_an_object(x: V):
    return 2 * x if same(vars(MODULE)["inner"].kind(x.shape[0]), int) and x.shape[0] == 300 else x


def by_an_operator(x: V):
    return 2 * x if operator.index(x.shape[0]) == 300 else x


class TooFewError(Exception):
    pass


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def worded(n):
    try:
        return float(n)
    except TypeError as error:
        raise TooFewError("a size") from error


def by_an_error_in_other_words(x: V):
    try:
        n = worded(x.shape[0])
    except TooFewError:
        return x
    return 2 * x if n == 300 else x


def by_a_context_that_swallows(x: V):
    n = 0.0
    with Swallowing():
        n = float(x.shape[0])
    return 2 * x if n == 300 else x


def by_suppression(x: V):
    n = 0.0
    with suppress(TypeError):
        n = float(x.shape[0])
    return 2 * x if n == 300 else x


FETCHED = (
    by_an_error_in_other_words, by_a_context_that_swallows, by_suppression,
    out_of_a_dict, out_of_a_tuple, out_of_a_named_tuple, out_of_slots, out_of_a_dataclass, out_of_a_module, out_of_a_class,
    by_a_name_that_is_made, deep_inside, by_an_attribute_getter, by_a_class_of_a_class, by_a_partial, by_a_partial_of_isinstance,
    by_what_is_bound, by_identity_of_a_descriptor, by_names_of_an_object, by_an_operator,
)  # fmt: skip


@pytest.mark.parametrize("fn", FETCHED, ids=lambda fn: fn.__name__)
def test_no_decision_by_what_is_fetched_goes_unseen(fn):
    """What is called is held against the list, wherever it came from: containers, attributes, partials; so are ways around errors."""
    padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
    for n in SIZES:
        agrees(padded, plain, n)


def test_errors_of_ones_own_and_texts_of_errors_are_no_decisions():
    """Nothing that JAX says of a size is one of the user's errors; what runs straight to a `raise` makes a text."""

    def checked(x):
        if x.ndim != 1:
            raise TypeError(f"not {type(x).__name__}")
        return x

    def body(x: V):
        try:
            return checked(x) * 2
        except TooFewError:
            return x

    padded = optimize(body, pad={"n": "pow2"})
    for n in SIZES:
        agrees(padded, jax.jit(body), n)
    assert padded.stats.traces == 1
    assert "each new size" not in str(padded.plan(np.ones(300, np.float32)))


def test_ordinary_code_with_functions_in_containers_is_clean():
    """`self.layers[0](x)`, tables of functions, partials, what a module holds."""

    class Stack(eqx.Module):
        layers: list[Any]
        act: Any = eqx.field(static=True)

        def __call__(self, x):
            for layer in self.layers:
                x = self.act(layer(x))
            return self.layers[0](x)

    keys = jax.random.split(jax.random.key(0), 2)
    stack = Stack([eqx.nn.Linear(1, 1, key=key) for key in keys], jax.nn.relu)
    table = {"double": lambda x: 2 * x, "mean": jnp.mean, "axis": functools.partial(jnp.sum, axis=0)}

    def body(x: V):
        x = jax.vmap(stack)(x[:, None])[:, 0]
        return table["double"](x) - table["mean"](x) + getattr(jnp, "sum")(x) + table["axis"](x)  # noqa: B009

    assert trace(body, lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)], {"d0": (257, 512)}, {"d0": 300}).each is None
