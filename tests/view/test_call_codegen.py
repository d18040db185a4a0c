"""A call that a function of its own takes apart is the call that JAX takes apart, whatever came
before it.
"""

import contextlib
import functools
import gc
import threading
import weakref
from typing import Any, NamedTuple

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney._program import core
from jitney._view.flatten import Flattener
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces


def filled_with(number):
    return array(np.full(2, number, np.float32))


X = filled_with(1)


class Layer(eqx.Module):
    weight: Any
    act: Any = jnp.tanh
    scale: Any = eqx.field(static=True, default=1.0)

    def __call__(self, x, *, key=None):
        del key
        return self.scale * self.act(self.weight * x)


class Pair(eqx.Module):
    first: Any
    second: Any

    def __call__(self, x, *, key=None):
        del key
        return self.second(self.first(x))


class Carry(NamedTuple):
    count: Any
    model: Any


def together(model, state, x, *, key=None):
    """Reads every part of every argument."""
    out = model(x)
    if isinstance(state, Carry):
        out = out + 3 * state.count * state.model(x)
    elif state:
        out = out - 5 * state[0](x)
    return out if key is None else out * key


def warm(program, *args, **kwargs):
    """Call often enough for the pattern to be known."""
    for _ in range(5):
        out = program(*args, **kwargs)
    return out


@pytest.fixture
def not_taken_apart(monkeypatch):
    """From when it is called on, a call that is taken apart step by step is an error."""

    def fail(self, args):
        raise AssertionError(f"taken apart: {args}")

    return lambda: monkeypatch.setattr(Flattener, "__call__", fail)


LAYERS = st.builds(
    Layer,
    st.sampled_from([X, filled_with(2.0), np.float32([3, 4])]),
    st.sampled_from([jnp.tanh, jnp.sin]),
)
MODELS = st.one_of(
    LAYERS, st.builds(Pair, st.builds(Layer, st.sampled_from([X, filled_with(3.0)])), LAYERS)
)
POOL = st.lists(MODELS, min_size=1, max_size=3)
ARRAYS = st.sampled_from([X, filled_with(7.0), np.float32([0.5, 2])])
ELEVEN = filled_with(11.0)
FACTORS = [filled_with(factor) for factor in (13.0, 17.0)]
CALLS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["carry", "tuple", "empty"]),
        ARRAYS,
        st.none() | st.just(ELEVEN),
        st.permutations(["state", "x", "key"]),
        st.integers(0, 3),
        st.integers(1, 4),
        st.none() | st.sampled_from(FACTORS),
    ),
    max_size=8,
)


PROGRAM = optimize(together)  # for all examples, so that each finds what the others left


@pytest.mark.filterwarnings("ignore:.*takes its 9th value")
def call(
    model=0,
    inner=0,
    kind="carry",
    x=X,
    key=None,
    order="state x key",
    count=2,
    times=1,
    weight=None,
):
    """One of `CALLS`: `count` arguments are given by position; with 3, `key=None` is given too."""
    return model, inner, kind, x, key, order.split(), count, times, weight


@given(POOL, CALLS)
@examples(
    {
        "pool": [Layer(X)],
        "calls": [call(times=4), call(weight=filled_with(13)), call(weight=filled_with(17))],
    },
    {
        "pool": [
            Layer(X),
            Layer(filled_with(2), jnp.sin),
            Pair(Layer(filled_with(3)), Layer(np.float32([3, 4]))),
        ],
        "calls": [call(n, i, times=times) for times in (3, 1) for n in range(3) for i in (n, 0)],
    },
    {
        "pool": [Pair(Layer(X), Layer(X, jnp.sin)), Pair(Layer(X), Layer(X))],
        "calls": [call(n, n, kind, times=4) for n in (0, 1) for kind in ("tuple", "empty")],
    },
    {
        "pool": [Layer(np.float32([3, 4]), jnp.sin)],
        "calls": [
            call(count=1, times=4),
            call(count=1, order="x key state", key=filled_with(11), times=4),
            call(count=0, order="x state key", x=np.float32([0.5, 2]), times=4),
            call(
                count=0,
                order="key x state",
                kind="empty",
                key=filled_with(11),
                times=2,
                weight=filled_with(13),
            ),
            call(count=3, kind="tuple", x=filled_with(7), times=4),
            call(count=2, key=filled_with(11), times=4),
        ],
    },
    {
        "pool": [Pair(Layer(filled_with(3)), Layer(X)), Layer(X)],
        "calls": [
            call(n, 1 - n, "tuple", weight=w)
            for w in (None, filled_with(13), filled_with(17))
            for n in (0, 1)
        ],
    },
)
@settings(max_examples=max(50, settings.default.max_examples), deadline=None)
def test_any_calls_one_after_another_give_what_the_function_gives(pool, calls):
    """Models of several structures and functions, tuples of them, positions and keywords in any
    order, weights changed behind the back.
    """
    for one, other, kind, x, key, order, count, times, weight in calls:
        model, inner = pool[one % len(pool)], pool[other % len(pool)]
        if weight is not None:
            owner = model if isinstance(model, Layer) else model.first
            object.__setattr__(owner, "weight", weight)
        state: Any = {"carry": Carry(X, inner), "tuple": (inner,), "empty": ()}[kind]
        given_ = {"state": state, "x": x, "key": key}
        first = [given_.pop(name) for name in ("state", "x")[:count]]
        kwargs = {
            name: given_[name]
            for name in order
            if name in given_ and (name != "key" or key is not None or count == 3)
        }
        for _ in range(times):
            np.testing.assert_allclose(
                PROGRAM(model, *first, **kwargs), together(model, state, x, key=key), rtol=2e-6
            )


@pytest.mark.parametrize("kwargs", [{}, {"key": None}], ids=["left out", "None"])
def test_a_known_pattern_is_not_taken_apart_step_by_step(not_taken_apart, kwargs):
    """A model, a tuple of an array and a model, and an array; with new modules of the same
    structure too.
    """
    program = optimize(together)
    models = [Pair(Layer(X * n), Layer(X)) for n in (1.0, 2.0)]
    for model in models:
        warm(program, model, Carry(X, model), X, **kwargs)
    not_taken_apart()
    for model in models:
        np.testing.assert_allclose(
            program(model, Carry(X, model), X, **kwargs),
            together(model, Carry(X, model), X),
            rtol=2e-6,
        )


def test_a_decorated_module_is_not_taken_apart_step_by_step(not_taken_apart):
    """Its `key=None` is left out, as everywhere in Equinox."""
    model = Pair(Layer(X), Layer(filled_with(2), jnp.sin))
    program = optimize(model)
    warm(program, X)
    not_taken_apart()
    np.testing.assert_allclose(program(X), model(X), rtol=2e-6)


def test_a_training_loop_is_not_taken_apart_step_by_step(not_taken_apart):
    """What a step returns is what the next one takes: a model, and the state of optax's Adam around
    two more.
    """
    optimiser = optax.adam(0.1)

    def step(model, state, x):
        grads = eqx.filter_grad(lambda model: jnp.sum(model(x) ** 2))(model)
        updates, state = optimiser.update(grads, state, model)
        return eqx.apply_updates(model, updates), state

    model = Layer(X)
    state = optimiser.init(eqx.filter(model, eqx.is_array))
    program, plain = optimize(step), eqx.filter_jit(step)
    ours, theirs = (model, state), (model, state)
    with jax.numpy_dtype_promotion("standard"):  # optax
        for n in range(12):
            if n == 6:
                not_taken_apart()
            ours, theirs = program(*ours, X), plain(*theirs, X)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b) if eqx.is_array(a) else None


def test_functions_in_two_models_are_not_confused():
    """All else is equal; in turn, so that a model stands where the other stood."""
    program = optimize(lambda model, x: model(x))
    models = [Layer(X, act) for act in (jnp.tanh, jnp.sin, jnp.tanh)]
    for _ in range(6):
        for model in models:
            np.testing.assert_allclose(program(model, X), model(X), rtol=2e-6)


def test_modules_with_equal_functions_share_a_program():
    """A new module object each call is no reason to trace."""
    counted = count_traces(lambda model, x: model(x))
    program = optimize(counted)
    for n in range(8):
        model = Layer(X * n)
        warm(program, model, X)
    assert counted.traces == 1


@pytest.mark.filterwarnings("ignore:.*takes its 3rd value")
def test_numbers_that_are_leaves_stay_static():
    """Each value of one structure and type is a program of its own."""
    program = optimize(lambda model, x: model.first(x) * model.second)
    for _ in range(4):
        for number in (2, 3, 2.0):
            np.testing.assert_allclose(
                program(Pair(Layer(X), number), X), number * jnp.tanh(X), rtol=2e-6
            )


def test_a_tuple_of_another_length_is_another_call():
    """And one of another class."""
    program = optimize(
        lambda models, x: (
            sum(model(x) for model in models) * (2.0 if isinstance(models, Carry) else 1.0)
        )
    )
    a, b = Layer(X), Layer(filled_with(2))
    warm(program, (a, b), X)
    np.testing.assert_allclose(program((a,), X), a(X), rtol=2e-6)
    np.testing.assert_allclose(program((a, b, b), X), a(X) + 2 * b(X), rtol=2e-6)
    np.testing.assert_allclose(program(Carry(a, b), X), 2 * (a(X) + b(X)), rtol=2e-6)


def test_traced_arguments_are_traced():
    """Under `jax.grad` after warm calls with the same types outside."""
    program = optimize(lambda model, x: jnp.sum(model(x)))
    model = Layer(X)
    warm(program, model, X)
    grads = eqx.filter_grad(program)(model, X)
    np.testing.assert_allclose(grads.weight, 1 - jnp.tanh(X) ** 2, rtol=2e-6)
    np.testing.assert_allclose(program(model, X), jnp.sum(model(X)), rtol=2e-6)


def test_what_is_forgotten_is_traced_anew():
    """After `clear_cache`, calls of known patterns too."""
    counted = count_traces(lambda model, x: model(x))
    program = optimize(counted)
    warm(program, Layer(X), X)
    program.clear_cache()
    warm(program, Layer(X), X)
    assert counted.traces == 2


@pytest.mark.rest
def test_a_module_of_a_known_pattern_is_let_go():
    """Neither the pattern nor a decorated module's program keeps an argument alive."""
    program = optimize(lambda model, x: model(x))
    model = Layer(filled_with(3))
    warm(program, model, X)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_functions_made_anew_do_not_pile_up(monkeypatch):
    """A model with a lambda of its own is a program of its own; layouts are bounded as programs
    are.
    """
    monkeypatch.setattr("jitney._program.tables.entries.MAX_ENTRIES", 4)
    program = optimize(lambda model, x: model.first(x))
    for n in range(12):
        model = Layer(X, lambda x, n=n: x * n)
        with pytest.warns(match="takes its 9th value") if n == 8 else contextlib.nullcontext():
            out = warm(program, Pair(model, None), X)
        np.testing.assert_array_equal(out, X * n)
        assert len(program._core.layouts) <= 4


def of_leaves(tree, x):
    """Tells each part by its place: by JAX's order, and by the number of parts."""
    leaves = jax.tree.leaves(tree)
    return sum(
        (i + 1) * jnp.sum(jnp.asarray(leaf) * x) for i, leaf in enumerate(leaves)
    ) + 100 * len(leaves)


TREES = [
    {"b": X, "a": filled_with(2)},
    {"a": X, "b": filled_with(3)},
    {"a": X, "c": filled_with(3)},
    {"a": X, "b": X, "c": X},
    {"a": X, "b": None},
    {"a": None, "b": X},
    {"a": np.ones(2, np.float32) * 5, "b": X},
    {"a": X, "b": 4.0},
    {"a": [X, {"k": filled_with(2)}], "b": (filled_with(3), None)},
    {"a": [filled_with(4), {"k": X}], "b": (None, X)},
    {"a": [filled_with(4), {"k": X}], "b": [None, X]},
    {"a": Carry(X, filled_with(6)), "b": ()},
    {"a": (filled_with(6), X), "b": ()},
    {2: X, 1: filled_with(7)},
    {},
]


@given(st.lists(st.sampled_from(range(len(TREES))), min_size=1, max_size=12), st.booleans())
@examples(
    {"order": [0, 1, 2, 1, 0], "repeated": True},
    {"order": [0, 3, 4, 5, 6, 0, 7, 5, 4, 3], "repeated": False},
    {"order": [8, 9, 10, 8, 11, 12, 11], "repeated": True},
    {"order": [14, 13, 14, 0], "repeated": True},
)
@settings(max_examples=60, deadline=None)
def test_containers_one_after_another_give_what_the_function_gives(order, repeated):
    """Of equal types at first sight, and others inside: keys, lengths, what is an array and what is
    None.
    """
    for n in order:
        for _ in range(1 + 3 * repeated):
            np.testing.assert_allclose(OF_LEAVES(TREES[n], X), of_leaves(TREES[n], X), rtol=2e-6)
            np.testing.assert_allclose(
                OF_LEAVES([TREES[n], X], X), of_leaves([TREES[n], X], X), rtol=2e-6
            )


OF_LEAVES = optimize(of_leaves)


def test_containers_of_a_known_pattern_are_not_taken_apart_step_by_step(monkeypatch):
    """Dicts, lists, tuples and named ones of arrays, as optax's states are, without any module."""
    program = optimize(lambda tree, x: of_leaves(tree, x))
    tree = {
        "w": [(X, filled_with(2)), Carry(filled_with(3), None)],
        "b": {"z": X, "y": filled_with(4)},
    }
    warm(program, tree, X)
    monkeypatch.setattr("jitney._program.core.tree_flatten", None)
    doubled = jax.tree.map(lambda x: 2 * x, tree)
    np.testing.assert_allclose(program(doubled, X), of_leaves(doubled, X), rtol=2e-6)


def test_a_named_tuple_that_holds_none_twice_is_read_item_by_item(monkeypatch):
    """As the options of a solver are, most of which are left out."""
    monkeypatch.setattr("jitney._view.call_codegen.tree_flatten", None)
    program = optimize(lambda tree, x: of_leaves(tree, x))
    tree = {"free": Carry(None, None), "twice": Carry(X, X)}
    warm(program, tree, X)
    tree = {**tree, "twice": Carry(X, filled_with(3))}
    np.testing.assert_allclose(program(tree, X), of_leaves(tree, X), rtol=2e-6)


class Backwards(NamedTuple):
    """What JAX is told to take apart from behind."""

    first: Any
    last: Any


jax.tree_util.register_pytree_node(
    Backwards, lambda pair: ((pair.last, pair.first), None), lambda _, pair: Backwards(*pair[::-1])
)


def test_a_named_tuple_with_an_order_of_its_own_keeps_it():
    """The function was written from one whose items are the same object."""
    program = optimize(lambda tree, x: of_leaves(tree, x))
    warm(program, Backwards(X, X), X)
    tree = Backwards(X, filled_with(3))
    np.testing.assert_allclose(program(tree, X), of_leaves(tree, X), rtol=2e-6)


def test_containers_of_tracers_are_traced():
    """After warm calls of the same pattern."""
    program = optimize(lambda tree, x: of_leaves(tree, x))
    tree = {"w": [X, filled_with(2)]}
    warm(program, tree, X)
    grads = jax.grad(program)(tree, X)
    np.testing.assert_allclose(grads["w"], [X, 2 * X])
    np.testing.assert_allclose(
        jax.vmap(program, in_axes=({"w": [0, None]}, None))(
            {"w": [jnp.stack([X, filled_with(3.0)]), X]}, X
        ),
        [X @ X + 2 * X @ X + 200, 3 * X @ X + 2 * X @ X + 200],
    )


class Scaled(eqx.Module):
    layer: Any
    rate: Any  # a number that is a leaf, as that of Equinox's Dropout

    def __call__(self, x):
        return self.rate * self.layer(x)


@pytest.mark.filterwarnings("ignore:.*takes its 3rd value")
def test_a_model_with_numbers_among_its_leaves_is_not_taken_apart_step_by_step(not_taken_apart):
    """It is the same model in each call; one with another number is another program."""
    program = optimize(lambda model, x: model(x))
    models = [Scaled(Layer(X), rate) for rate in (0.5, 0.25, -0.0, 0.0, 1, 1.0)]
    for model in models:
        for _ in range(3):
            out = program(model, X)
            np.testing.assert_allclose(out, model(X), rtol=2e-6)
            np.testing.assert_array_equal(np.signbit(out), np.signbit(model(X)))
    other = optimize(lambda model, x: model(x))
    warm(other, models[0], X)
    not_taken_apart()
    np.testing.assert_allclose(other(models[0], X), models[0](X), rtol=2e-6)


def test_a_number_changed_behind_the_back_of_a_model_counts():
    """In a field that is a leaf."""
    program = optimize(lambda model, x: model(x))
    model = Scaled(Layer(X), 0.5)
    warm(program, model, X)
    object.__setattr__(model, "rate", 0.125)
    np.testing.assert_allclose(program(model, X), 0.125 * jnp.tanh(X), rtol=2e-6)


def test_new_models_of_a_known_structure_are_not_taken_apart_step_by_step(not_taken_apart):
    """As of an optimiser outside of the program: each call has modules that no call had before."""
    program = optimize(lambda model, x: model(x))
    model = Pair(Layer(X), Layer(filled_with(2)))
    warm(program, model, X)
    not_taken_apart()
    for n in range(3):
        model = eqx.tree_at(lambda m: m.first.weight, model, X * n)
        np.testing.assert_allclose(program(model, X), model(X), rtol=2e-6)


def test_some_structures_in_turn_are_not_taken_apart_step_by_step(not_taken_apart):
    """Models of one class with other functions and other parts."""
    program = optimize(lambda model, x: model(x))
    models = [
        Pair(Layer(X), Layer(filled_with(2))),
        Pair(Layer(X, jnp.sin), Layer(X)),
        Pair(Layer(X, scale=2.0), Pair(Layer(X), Layer(X))),
    ]
    for _ in range(5):
        for model in models:
            program(model, X)
    not_taken_apart()
    for model in models:
        np.testing.assert_allclose(program(model, X), model(X), rtol=2e-6)


KIND = {int: 1, float: 2, bool: 3, str: 4}
ALIKE = [1, 1.0, True, 0.0, -0.0, 0, False, "1", 300, 300.0]


def sign(value):
    return 0 if isinstance(value, str) else np.signbit(value)


@given(st.lists(st.sampled_from(range(len(ALIKE))), max_size=12), st.booleans())
@examples(
    {"order": [0, 1, 2, 0, 7, 1], "behind_the_back": False},
    {"order": [0, 1, 2, 0, 7, 1], "behind_the_back": True},
    {"order": [3, 4, 5, 6, 4, 3], "behind_the_back": False},
    {"order": [6, 5, 4, 3, 4], "behind_the_back": True},
    {"order": [8, 9, 8, 0, 9], "behind_the_back": True},
)
@settings(max_examples=50, deadline=None)
@pytest.mark.filterwarnings("ignore:.*takes its (3rd|9th) value")
def test_static_values_that_are_equal_in_part_are_not_confused(order, behind_the_back):
    """As an argument, in a static field, and as a leaf; types and signs of zeros count."""
    model = Scaled(Layer(X), 1)
    for n in order:
        # another object
        value = ALIKE[n] if isinstance(ALIKE[n], (str, bool)) else type(ALIKE[n])(str(ALIKE[n]))
        if behind_the_back:
            object.__setattr__(model.layer, "scale", value)
            object.__setattr__(model, "rate", value)
        else:
            model = Scaled(Layer(X, scale=value), value)
        for _ in range(3):
            want = np.full(3, KIND[type(value)] + 10.0 * sign(value) + (100.0 * float(value)))
            np.testing.assert_array_equal(KINDS_SEEN(model, X, value), want)


def kinds_seen(model, x, value):
    told = (
        KIND[type(each)] + 10.0 * sign(each) + 100.0 * float(each)
        for each in (model.layer.scale, model.rate, value)
    )
    return jnp.stack([jnp.float32(each) * x[0] for each in told])


KINDS_SEEN = optimize(kinds_seen)


def made_anew():
    """A function that shares no program with another."""

    def varied(
        model, x, rate: float = 2.0, n: int = 3, *rest, flag: bool = False, name="a", **more
    ):
        out = rate * model(x) * n + len(rest) + (7.0 if flag else 0.0) + {"a": 0.0, "b": 30.0}[name]
        for i, part in enumerate(rest):
            out = out + (i + 1) * part(x)
        for i, key in enumerate(sorted(more)):
            out = out + (len(key) + i) * more[key]
        return out

    return varied


varied = made_anew()
VARIED = optimize(varied)


@pytest.mark.rest
@given(
    st.lists(
        st.tuples(
            POOL,
            st.lists(st.sampled_from([0.5, 0.25, 3]), max_size=1),
            st.lists(st.sampled_from([2, 3]), max_size=1),
            st.integers(0, 2),
            st.dictionaries(st.sampled_from(["zz", "y"]), ARRAYS),
            st.sampled_from([{}, {"flag": True}, {"name": "b"}]),
            st.integers(1, 4),
        ),
        max_size=6,
    )
)
@examples(
    {"calls": [([Layer(X)], rate, [], 0, {}, {}, 4) for rate in ([], [0.5], [0.25], [3], [])]},
    {
        "calls": [
            ([Layer(X)], [], [], 0, more, options, 2)
            for more in ({}, {"zz": X, "y": filled_with(7)}, {"y": X, "zz": np.float32([0.5, 2])})
            for options in ({}, {"flag": True})
        ]
    },
    {
        "calls": [
            ([Layer(X), Pair(Layer(X), Layer(X, jnp.sin))], [0.5], [2], 2, {}, {"name": "b"}, 4),
            ([Layer(X), Pair(Layer(X), Layer(X))], [0.5], [2], 2, {"zz": X}, {}, 4),
            ([Layer(X)], [0.5], [3], 1, {}, {"name": "b"}, 1),
            ([Layer(X)], [0.5], [3], 0, {"y": X}, {"flag": True}, 2),
            ([Pair(Layer(X), Layer(X))], [3], [3], 1, {}, {}, 4),
        ]
    },
)
@settings(max_examples=max(40, settings.default.max_examples), deadline=None)
@pytest.mark.filterwarnings("ignore:.*takes its 9th value")
def test_any_calls_with_all_kinds_of_parameters_give_what_the_function_gives(calls):
    """One after another, with what is given by position and by keyword, and what is left out."""
    for pool, rate, n, rest, more, options, times in calls:
        first = [pool[0], X, *rate, *(n if rate else [])]
        parts = [pool[i % len(pool)] for i in range(rest)] if rate and n else []
        for _ in range(times):
            got = VARIED(*first, *parts, **more, **options)
            np.testing.assert_allclose(got, varied(*first, *parts, **more, **options), rtol=2e-6)


OTHERS = [
    ((0.5,), {}),
    ((0.5, 2), {}),
    ((), {"rate": 0.5}),
    ((), {}),
    ((), {"n": 2, "name": "b"}),
    ((0.5, 2, Layer(filled_with(2))), {}),
    ((), {"zz": X, "y": X}),
]


@pytest.mark.core("args0-kwargs0", "args3-kwargs3", "args6-kwargs6")
@pytest.mark.parametrize(("args", "kwargs"), OTHERS)
def test_calls_with_numbers_and_defaults_are_not_taken_apart_step_by_step(
    not_taken_apart, args, kwargs
):
    """Nor those with more than the function names."""
    program = optimize(made_anew())
    model = Pair(Layer(X), Layer(X))
    warm(program, model, X, *args, **kwargs)
    not_taken_apart()
    model = Pair(Layer(filled_with(3)), Layer(X))
    np.testing.assert_allclose(
        program(model, X, *args, **kwargs), varied(model, X, *args, **kwargs), rtol=2e-6
    )


def test_calls_with_a_whole_static_argument_are_not_bound_anew(monkeypatch):
    """A few values in turn, in calls that give it by name too; another value is another program."""
    program = optimize(static="n")(lambda x, n, name="a": x * n + len(name))
    for _ in range(6):
        for n in (2, 3, 3.0):
            np.testing.assert_array_equal(program(X, n), X * n + 1)
            np.testing.assert_array_equal(program(X, n=n), X * n + 1)
    np.testing.assert_array_equal(program(X, 7), filled_with(7) + 1)
    monkeypatch.setattr(core.CompiledFunction, "bind", None)
    for n in (2, 3, 3.0):
        np.testing.assert_array_equal(program(X, n=n), X * n + 1)


def test_defaults_that_are_changed_in_place_count():
    """A list of numbers, and a dict that is static as a whole."""
    numbers, config = [2.0, 3.0], {"n": 5}
    program = optimize(static="config")(
        lambda x, numbers=numbers, config=config: (x * numbers[0] + numbers[1]) * config["n"]
    )
    for change in (
        lambda: None,
        lambda: numbers.__setitem__(1, 7.0),
        lambda: config.update(n=11),
        lambda: numbers.append(1.0),
    ):
        change()
        for _ in range(5):
            np.testing.assert_array_equal(program(X), (X * numbers[0] + numbers[1]) * config["n"])


def test_threads_take_calls_of_one_pattern_apart_at_once():
    """Models of two structures, changed between calls, from the first call on."""
    program = optimize(lambda model, x: model(x))
    wrong = []

    def work(seed):
        model = (
            Pair(Layer(X * seed), Layer(X))
            if seed % 2
            else Pair(Layer(X * seed, jnp.sin), Layer(X))
        )
        for n in range(40):
            object.__setattr__(model.second, "weight", X * (n + seed))
            got, want = (
                program(model, X),
                np.tanh((n + seed) * np.asarray((jnp.tanh if seed % 2 else jnp.sin)(X * seed))),
            )
            if not np.allclose(got, want, rtol=2e-6):
                wrong.append((seed, n, got, want))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_that_changes_while_its_function_is_written_is_not_another(monkeypatch):
    """Another thread may set a field between the look at the arguments and the look at how they are
    written down.
    """
    program = optimize(lambda model, x: model(x))
    model = Layer(X, scale=1.0)
    wrapped = core.CompiledFunction.remember

    def changed(self, *args):
        scale = model.scale
        object.__setattr__(model, "scale", 3.0 - scale)
        wrapped(self, *args)
        object.__setattr__(model, "scale", scale)

    monkeypatch.setattr(core.CompiledFunction, "remember", changed)
    warm(program, model, X)
    object.__setattr__(model, "scale", 2.0)
    warm(program, model, X)
    monkeypatch.setattr(core.CompiledFunction, "remember", wrapped)
    for scale in (1.0, 2.0, 1.0):
        object.__setattr__(model, "scale", scale)
        for _ in range(3):
            np.testing.assert_allclose(program(model, X), scale * np.tanh(X), rtol=2e-6)


def weighed(x, y=None, *rest, scale=None, **more):
    """Reads each argument by its own weight, so that no two can change places unseen."""
    parts = [
        x,
        *(part for part in (y, scale) if part is not None),
        *rest,
        *(more[name] for name in sorted(more)),
    ]
    named = (
        7 * (y is not None)
        + 11 * (scale is not None)
        + 13 * len(rest)
        + sum(17 * len(name) for name in more)
    )
    return sum((2.0**i) * part for i, part in enumerate(parts)) + named


WEIGHED = optimize(weighed)
NUMBERS = st.sampled_from(
    [X, filled_with(3.0), np.float32([5, 6]), np.float32(2.5), array(0.5), 1.5, -0.0, 2, True]
)
NAMES = ["scale", "a", "bb"]


BY_POSITION, BY_NAME = st.lists(NUMBERS, min_size=1, max_size=4), st.lists(NUMBERS, max_size=3)
PARTS = [X, filled_with(3.0), np.float32(2.5), 2]


@pytest.mark.rest
@given(st.lists(st.tuples(BY_POSITION, st.permutations(NAMES), BY_NAME)))
@examples(
    {"calls": [([1.5], NAMES, []), ([X], NAMES, [2]), ([X], NAMES, [True]), ([1.5], NAMES, [])]},
    {"calls": [(args, NAMES, []) for args in ([X, 2], [X, True], [2, X], [X, X])]},
    {
        "calls": [
            (
                [X, -0.0, np.float32(2.5)],
                ["a", "scale", "bb"],
                [array(0.5, np.float32), filled_with(3.0)],
            )
        ]
    },
    {"calls": [([X], names, [np.float32([5, 6]), X, 1.5]) for names in (NAMES, NAMES[::-1])]},
    {"calls": [(PARTS[:n], NAMES, PARTS[: n % 3]) for n in (4, 3, 2, 1, 4)]},
)
@settings(deadline=None)
def test_calls_of_arrays_and_numbers_in_any_places_give_what_the_function_gives(calls):
    """One after another, of one program: by position and by keyword in any order, NumPy's and JAX's
    arrays, numbers that are static.
    """
    for args, names, values in calls:
        kwargs = dict(zip(names, values, strict=False))
        for _ in range(2):
            np.testing.assert_allclose(
                WEIGHED(*args, **kwargs), weighed(*args, **kwargs), rtol=2e-6
            )


def test_two_patterns_in_turn_are_not_taken_apart_step_by_step(not_taken_apart):
    """Each call finds the function of its own pattern, whichever came before; of a
    `functools.partial` with a keyword too.
    """
    program, model = optimize(functools.partial(together, key=X)), Layer(X)
    for _ in range(5):
        program(model, (), X)
        program(model, Carry(X, model), X)
    not_taken_apart()
    for state in ((), Carry(X, model)) * 2:
        np.testing.assert_allclose(
            program(model, state, X), together(model, state, X, key=X), rtol=2e-6
        )
