"""Arguments -> arrays and static values, and back: what is traced, what a key holds, and what the
body sees.
"""

import collections
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jaxtyping import Array, Float

import jitney._program.tables.entries
import jitney._view.layout
from jitney import optimize
from jitney._values.static_values import static_key
from jitney._view.layout import aval_parts
from tests._arrays import array, weak
from tests._examples import examples
from tests._tracing import count_traces

X = array(np.arange(3.0))
FEW = settings(max_examples=min(25, settings.default.max_examples))


class Model(eqx.Module):
    weight: Any
    width: int = eqx.field(static=True, default=1)
    activation: Any = jnp.tanh


NUMBERS = st.one_of(st.integers(-3, 3), st.booleans(), st.floats(-2, 2, width=32), st.just(1j))
NUMPY = st.sampled_from(
    [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.uint16(7), np.float16(0.5)]
)
ARRAYS = st.builds(
    lambda shape, dtype, kind: kind(
        np.arange(np.prod(shape), dtype=np.float32).reshape(shape).astype(dtype)
    ),
    st.sampled_from([(), (0,), (3,), (2, 0), (1, 2)]),
    st.sampled_from(
        ["float32", "int32", "int8", "uint16", "bool", "float16", "complex64", "bfloat16"]
    ),
    st.sampled_from([np.asarray, jnp.asarray]),
)
LEAVES = st.one_of(
    NUMBERS,
    NUMPY,
    ARRAYS,
    st.none(),
    st.text(max_size=2),
    st.sampled_from([jnp.sin, int, jnp.float32]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Model, inner, st.integers(0, 2)),
    ),
    max_leaves=6,
)


BY_HAND = (
    [],
    [1, True, 1.0, -0.0, 1j, None, "", "ab", int, jnp.sin],
    [np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.uint16(7), np.float16(0.5)],
    (np.zeros(()), array(np.zeros(0), "bfloat16")),
    {"b": np.ones((1, 2), "int8"), "a": array(np.ones((2, 0)), bool), "c": {}},
    Model(array([0, 1, 2], np.float32), 2),
    Model(None, 0),
    [Model(([np.ones(3, "complex64"), 2],), 1), {"a": {"b": (jnp.float32, np.float16(1))}}, ()],
)


def is_array(leaf):
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def in_modules(tree):
    """For each leaf whether a module holds it."""
    parts = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Model))
    for part in parts:
        is_model = isinstance(part, Model)
        yield from [is_model] * (len(jax.tree.leaves(part)) if is_model else 1)


def anew(leaf):
    """Another array of the same kind, or the same static value in another object."""
    if isinstance(leaf, np.generic):
        return type(leaf)(0)
    if is_array(leaf):
        return np.zeros_like(leaf) if isinstance(leaf, np.ndarray) else jnp.zeros_like(leaf)
    return float(repr(leaf)) if isinstance(leaf, float) else leaf


def as_jax(leaf):
    """Shape, dtype and weak type that `jax.jit` gives to a leaf."""
    abstract = jax.eval_shape(lambda x: x, leaf)
    return abstract.shape, abstract.dtype, abstract.weak_type


@FEW
@given(st.lists(TREES, max_size=3), st.dictionaries(st.sampled_from("abc"), TREES, max_size=2))
@examples(
    {"args": [], "kwargs": {}},
    {"args": [], "kwargs": {"b": array([1, 1, 1], np.int32), "a": None}},
    {"args": [True, np.bool_(True), 1.0], "kwargs": {"c": np.float32(1)}},
    {"args": [*BY_HAND[:3]], "kwargs": {"a": BY_HAND[3], "c": BY_HAND[4]}},
    {"args": [*BY_HAND[5:]], "kwargs": {}},
)
def test_any_argument_reaches_the_body_traced_or_as_it_is(args, kwargs):
    """Arrays, and floats outside of modules, are tracers of JAX's shape and dtype; all else is what
    it was, in the same tree.
    """
    seen = []

    @optimize
    def f(*args, **kwargs):
        seen.append((args, kwargs))
        return 0

    f(*args, **kwargs)
    leaves, treedef = jax.tree.flatten(seen[0])
    expected, structure = jax.tree.flatten((tuple(args), kwargs))
    assert treedef == structure
    is_in_module = [is_held for part in (args, kwargs) for is_held in in_modules(part)]
    for leaf, given_, is_held in zip(leaves, expected, is_in_module, strict=True):
        is_data = is_array(given_) or (type(given_) in (float, complex) and not is_held)
        assert isinstance(leaf, jax.core.Tracer) == is_data
        if is_data:
            assert (leaf.shape, leaf.dtype, leaf.weak_type) == as_jax(given_)
        else:
            assert static_key(leaf) == static_key(given_)


@FEW
@given(TREES)
@examples(*({"tree": tree} for tree in BY_HAND))
def test_any_second_call_with_the_same_tree_is_no_new_trace(tree):
    """Arrays with other numbers, static values made anew."""
    counted = count_traces(lambda tree: [leaf for leaf in jax.tree.leaves(tree) if is_array(leaf)])
    f = optimize(counted)
    f(tree)
    f(jax.tree.map(anew, tree))
    assert counted.traces == 1


@given(LEAVES.filter(is_array))
@examples(
    *({"leaf": leaf} for leaf in BY_HAND[2]),
    *({"leaf": np.zeros((1, 2), dtype)} for dtype in ("float64", "float32", "int8", "bool")),
    *(
        {"leaf": array(np.zeros(0), dtype)}
        for dtype in ("bfloat16", "float16", "complex64", "uint16")
    ),
    {"leaf": np.zeros((2, 0), "int64")},
    {"leaf": np.float64(1)},
    {"leaf": weak(1)},
    {"leaf": weak(1.5)},
)
def test_any_array_is_described_as_jax_sees_it(leaf):
    """Shape, canonical dtype, weak type."""
    assert aval_parts(leaf) == as_jax(leaf)


@pytest.mark.parametrize("number", [1, True, 1.5, 2j])
def test_a_python_number_is_described_as_jax_sees_it(number):
    """Rank 0, the default dtype of its kind, weak."""
    for on in (False, True):
        with jax.enable_x64(on):
            assert aval_parts(number)[:2] == as_jax(number)[:2]
            assert aval_parts(number)[2]


def test_x64_decides_what_a_double_is():
    """float32 outside of `jax.enable_x64`, float64 inside; coming back needs no new trace."""
    seen = []

    @optimize
    def f(x, y: float):
        seen.append((x.dtype, y.dtype))
        return x + y

    double = np.ones(2)
    for _ in range(2):
        assert f(double, 1.0).dtype == jnp.float32
        with jax.enable_x64(True):
            assert f(double, 1.0).dtype == np.float64
    assert seen == [(jnp.float32, jnp.float32), (np.float64, np.float64)]


def test_weak_types_stay_weak():
    """A weak scalar gives way to the dtype beside it, as outside of jit; a strong one of the same
    dtype is another key.
    """
    seen = []

    @optimize
    def f(x, y):
        seen.append(y.weak_type)
        return x * y if y.weak_type else x

    half = jnp.ones(2, jnp.float16)
    for _ in range(2):
        assert f(half, jnp.asarray(2.0)).dtype == jnp.float16
        f(half, jnp.float32(2.0))
    assert seen == [True, False]


def test_a_number_annotated_float_is_traced():
    """Many values, one program: Python's floats and ints and NumPy's scalars of that dtype."""

    def body(x, scale: float):
        return x * scale

    counted = count_traces(body)
    f = optimize(counted)
    for number in (2.0, 3.0, -0.0, 4, 5):
        np.testing.assert_array_equal(
            f(X, number), np.arange(3, dtype=np.float32) * np.float32(number)
        )
    assert counted.traces == 1
    np.testing.assert_array_equal(f(X, np.float32(6)), np.arange(3) * 6)
    assert counted.traces == 2


def test_an_int_annotated_float_is_that_float():
    """`scale / 2` must not depend on whether the caller wrote `3` or `3.0`."""

    @optimize
    def f(x, scale: float, turn: complex = 1):
        return x, scale, turn

    for scale in (3, 3.0):
        _, number, turn = f(X, scale)
        assert (number.dtype, turn.dtype) == (jnp.float32, jnp.complex64)


def test_an_int_without_annotation_is_static():
    """Each value is a program; floats and NumPy scalars are arrays."""
    counted = count_traces(lambda x, n: x + n)
    f = optimize(counted)
    for _ in range(2):
        f(X, 1)
        f(X, 2)
        f(X, np.float32(1.0))
        f(X, np.float32(2.0))
        f(X, 1.0)
        f(X, 2.0)
    assert counted.traces == 4


@pytest.mark.core(
    "shape0-bool", "shape0-complex64", "shape0-bfloat16", "shape0-uint8", "shape0-int32"
)
@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "bool",
        "float16",
        "bfloat16",
        "complex64",
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3,)])
def test_every_dtype_and_empty_shape_comes_back(dtype, shape):
    """From NumPy and from JAX, as a result of the same shape, dtype and numbers."""
    f = optimize(lambda x: x)
    values = np.arange(np.prod(shape)).reshape(shape).astype(jnp.dtype(dtype))
    for each in (values, jnp.asarray(values)):
        got = f(each)
        assert isinstance(got, jax.Array)
        assert (got.shape, got.dtype) == (shape, values.dtype)
        np.testing.assert_array_equal(np.asarray(got), values)


def test_a_call_without_any_array_runs():
    """Static values only, or nothing at all."""
    assert optimize(lambda: "nothing")() == "nothing"
    assert optimize(lambda n: n + 1)(1) == 2
    assert float(optimize(lambda n: jnp.sum(jnp.arange(n)))(4)) == 6
    assert optimize(lambda tree: tree)({"a": [], "b": None, "c": ()}) == {
        "a": [],
        "b": None,
        "c": (),
    }


def test_keys_of_random_numbers_are_arrays():
    """New-style keys are traced: another key is no new trace."""
    counted = count_traces(lambda key: jax.random.uniform(key, (2,)))
    f = optimize(counted)
    for seed in (0, 1):
        np.testing.assert_array_equal(
            f(jax.random.key(seed)), jax.random.uniform(jax.random.key(seed), (2,))
        )
    assert counted.traces == 1


def test_arguments_by_name_are_static_as_a_whole():
    """Named parameters, `*args` and `**kwargs` alike, and what is among `**kwargs`."""
    for static, call in (
        ("config", lambda f, c: f(X, c)),
        ("config", lambda f, c: f(X, config=c)),
        ("args", lambda f, c: f(X, {"k": 0.0}, c)),
        ("kwargs", lambda f, c: f(X, c, other=c)),
        ("other", lambda f, c: f(X, {"k": X}, other=c)),
    ):

        def body(x, config=None, *args, **kwargs):
            configs = [part for part in (config, *args, *kwargs.values()) if part is not None]
            return x * sum(part["k"] for part in configs)

        counted = count_traces(body)
        f = optimize(static=static)(counted)
        for k in (2.0, 3.0, 2.0):
            # Independent reference: the function itself, un-jitted.
            np.testing.assert_array_equal(call(f, {"k": k}), call(body, {"k": k}))
        assert counted.traces == 2, static


def test_a_static_argument_may_hold_arrays():
    """Concrete in the body, so code may branch on them."""
    f = optimize(static="mask")(lambda x, mask: x[np.flatnonzero(mask)])
    for mask in (np.array([True, False, True]), jnp.asarray([False, False, True]), [0, 1, 0]):
        np.testing.assert_array_equal(f(X, mask), np.arange(3)[np.asarray(mask, bool)])


def test_an_array_for_a_static_leaf_is_another_key():
    """The same place in the tree, static in one call and traced in the next; NumPy's and JAX's
    scalars share a program.
    """
    seen = []

    @optimize
    def f(x, options):
        seen.append(isinstance(options["scale"], jax.core.Tracer))
        return x * options["scale"]

    for _ in range(2):
        for scale in (2, jnp.float32(3), np.float32(4), 5):
            np.testing.assert_array_equal(f(X, {"scale": scale}), np.arange(3) * np.float32(scale))
    assert seen == [False, True, False]


def test_calls_inside_and_outside_of_another_trace_do_not_mix():
    """Tracers and arrays have keys of their own, and the numbers are those of the function."""
    f = optimize(lambda x, n: (x**n).sum())
    expected = 3 * np.arange(3.0) ** 2
    for _ in range(2):
        np.testing.assert_allclose(f(X, 3), (np.arange(3.0) ** 3).sum(), rtol=1e-6)
        np.testing.assert_allclose(jax.grad(lambda x: f(x, 3))(X), expected, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(jax.grad(lambda x: f(x, 3)))(X), expected, rtol=1e-6)
        np.testing.assert_allclose(
            jax.vmap(lambda x: f(x, 3))(X[:, None]), np.arange(3.0) ** 3, rtol=1e-6
        )


@pytest.mark.filterwarnings("ignore:.*takes its 3rd value")
def test_static_values_past_the_limit_are_traced_again_and_right(monkeypatch):
    """The oldest go; nothing is wrong, it only costs a trace."""
    monkeypatch.setattr(jitney._view.layout, "MAX_ENTRIES", 3)
    monkeypatch.setattr(jitney._program.tables.entries, "MAX_ENTRIES", 3)
    counted = count_traces(lambda x, n: x * n)
    f = optimize(counted)
    for n in (*range(5), 4, 0):
        np.testing.assert_array_equal(f(X, n), np.arange(3) * n)
    assert counted.traces == 6
    assert len(f._core.entries) <= 3


def test_an_annotated_tree_keeps_its_hints_in_place():
    """Dicts of every kind, in JAX's order of leaves: a float inside is traced, the array beside it
    mapped by rank.
    """
    row = Float[Array, "n"]

    @optimize(vmap="batch")
    def f(rows: dict[str, row], scale: float):
        return sum(rows.values()) * scale

    values = {"b": jnp.ones((4, 3)), "a": jnp.full((4, 3), 2.0)}
    for kind in (dict, collections.OrderedDict, lambda d: collections.defaultdict(list, d)):
        for scale in (2.0, 3.0):
            np.testing.assert_array_equal(f(kind(values), scale), np.full((4, 3), 3 * scale))
    assert f.stats.traces == 3
