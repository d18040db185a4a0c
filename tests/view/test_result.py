"""Results: arrays by JAX, all else as the body returned it."""

import collections
import dataclasses
import enum
import functools
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney._view.result import Mixed, Outcome, unmix
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces

X = array(np.arange(3.0))
FEW = settings(max_examples=min(25, settings.default.max_examples))
MANY = settings(max_examples=max(100, settings.default.max_examples))


class Model(eqx.Module):
    weight: Any
    name: Any = eqx.field(static=True, default="m")


class Mode(enum.Enum):
    FAST = 1


Named = collections.namedtuple("Named", "a b")


@dataclasses.dataclass
class Record:
    n: list


ARRAYS = st.builds(
    lambda shape: np.arange(np.prod(shape), dtype=np.float32).reshape(shape),
    st.sampled_from([(), (0,), (2,), (2, 0), (1, 3)]),
)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from(
        [
            Mode.FAST,
            jnp.tanh,
            float,
            jnp.dtype("int8"),
            jax.ShapeDtypeStruct((2,), jnp.int8),
            slice(1),
            frozenset({1}),
        ]
    ),
)
TREES = st.recursive(
    st.one_of(ARRAYS, PLAIN),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Named, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Model, inner, st.sampled_from(["p", "q"])),
    ),
    max_leaves=8,
)


ONES = np.ones((1, 3), np.float32)
BY_HAND = (
    None,
    ONES,
    True,
    [],
    {},
    (np.ones((), np.float32), np.ones((0,), np.float32)),
    [None, False, 0, -(2**70), -0.0, float("inf"), "", "abc"],
    [Mode.FAST, jnp.tanh, float, jnp.dtype("int8"), slice(1), frozenset({1})],
    (jax.ShapeDtypeStruct((2,), jnp.int8), ONES),
    {"b": ONES, "a": (1, np.ones((2, 0), np.float32)), "c": None},
    collections.OrderedDict(c=ONES, a=[ONES, "a"], b={}),
    Named(ONES, Named(1, None)),
    Model(ONES, "p"),
    Model([Model(None, "q"), (Model({"a": ONES}, "p"), 1.5)], "p"),
    [Named({"b": 1}, [ONES]), collections.OrderedDict(b=Model((ONES, "x"), "q")), ()],
)


def assert_same(got, expected):
    """The same tree; arrays with the same numbers and dtypes, all else equal and of the same
    type.
    """
    leaves, treedef = jax.tree.flatten(got)
    wanted, structure = jax.tree.flatten(expected)
    assert treedef == structure
    for leaf, want in zip(leaves, wanted, strict=True):
        if isinstance(want, np.ndarray):
            assert isinstance(leaf, jax.Array)
            assert (leaf.shape, leaf.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(leaf, want)
        else:
            assert (type(leaf), leaf) == (type(want), want)


@MANY
@given(TREES)
@examples(*({"result": result} for result in BY_HAND))
def test_any_result_taken_apart_is_put_together_again(result):
    """Arrays aside, the rest in its place."""
    outcome = Outcome()
    arrays = outcome.take_apart(result)
    assert all(isinstance(array, np.ndarray) for array in arrays)
    doubled = jax.tree.map(lambda leaf: leaf * 2 if isinstance(leaf, np.ndarray) else leaf, result)
    rebuilt = outcome.whole([array * 2 for array in arrays])
    assert_same(
        jax.tree.map(
            lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, rebuilt
        ),
        doubled,
    )


@FEW
@given(TREES)
@examples(*({"result": result} for result in BY_HAND[5:]))
def test_any_result_comes_back_from_every_call(result):
    """On the first call and on later ones, in the structure of the body."""
    arrays = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, np.ndarray)]

    def body(arrays):
        found = iter(arrays)
        return jax.tree.map(
            lambda leaf: next(found) * 1 if isinstance(leaf, np.ndarray) else leaf, result
        )

    counted = count_traces(body)
    f = optimize(counted)
    for _ in range(3):
        assert_same(f(arrays), result)
    assert counted.traces == 1


@pytest.mark.rest
@FEW
@given(TREES)
@examples(*({"result": result} for result in (*BY_HAND[:2], *BY_HAND[7:10], *BY_HAND[13:])))
def test_any_result_comes_back_under_other_transforms(result):
    """Inside `jax.jit` and `jax.disable_jit`."""
    f = optimize(lambda x: (x + 1, result))
    with jax.disable_jit():
        np.testing.assert_array_equal(f(X)[0], np.arange(3) + 1)
        assert jax.tree.structure(f(X)[1]) == jax.tree.structure(result)
    inner = []

    def outer(x):
        y, rest = f(x)
        inner.append(rest)
        return y

    np.testing.assert_array_equal(jax.jit(outer)(X), np.arange(3) + 1)
    leaves, treedef = jax.tree.flatten(inner[0])
    wanted, structure = jax.tree.flatten(result)
    assert treedef == structure
    assert [leaf for leaf in leaves if not isinstance(leaf, jax.Array)] == [
        leaf for leaf in wanted if not isinstance(leaf, np.ndarray)
    ]


def test_a_result_may_depend_on_static_values():
    """Each program has the rest of its own result."""
    f = optimize(lambda x, name: (x, name, len(name)))
    for name in ("a", "bb", "a"):
        assert f(X, name)[1:] == (name, len(name))


def test_a_result_may_depend_on_shapes():
    """Each shape of one program too, call after call."""
    f = optimize(lambda x: (x * 2, x.shape, str(x.dtype)))
    for n in (2, 3, 2):
        got, shape, dtype = f(jnp.ones(n, jnp.float16))
        np.testing.assert_array_equal(got, np.full(n, 2))
        assert (shape, dtype) == ((n,), "float16")


def test_a_change_in_one_result_reaches_no_other():
    """Lists are rebuilt, and records that JAX takes for leaves are copied."""
    f = optimize(lambda x: (x, Record([1]), {"k": [2]}))
    for _ in range(3):
        _, record, tree = f(X)
        assert (record.n, tree) == ([1], {"k": [2]})
        record.n.append("changed")
        tree["k"].append("changed")


def test_text_and_times_in_numpy_arrays_pass_through():
    """JAX has no such dtypes, so they stay what they are."""
    f = optimize(lambda x: (x, np.array(["a", "b"]), np.datetime64("2020-01-01"), np.array([None])))
    for _ in range(2):
        _, text, day, things = f(X)
        np.testing.assert_array_equal(text, ["a", "b"])
        assert day == np.datetime64("2020-01-01")
        assert things.tolist() == [None]


def test_numpy_results_become_jax_arrays():
    """As of `jax.jit`: numbers made at trace time are constants of the program."""
    got = optimize(lambda x: (x, np.arange(3), np.float32(2)))(X)
    assert all(isinstance(leaf, jax.Array) for leaf in got)
    np.testing.assert_array_equal(got[1], [0, 1, 2])
    assert float(got[2]) == 2


def test_a_result_without_arrays_is_the_bodys():
    """Nothing to compute, nothing lost; None too."""
    for result in (None, "text", 1, True, {"a": ()}, [None, [None]], Mode.FAST):
        f = optimize(lambda x, result=result: result, static="result")
        for _ in range(2):
            assert f(X) == result
            assert type(f(X)) is type(result)


def test_arguments_that_come_back_are_results():
    """Static leaves of a module as they were, its arrays computed."""
    model = Model({"w": X, "act": jnp.tanh, "n": 3}, name="kept")
    got = optimize(
        lambda model: eqx.tree_at(lambda m: m.weight["w"], model, model.weight["w"] * 2)
    )(model)
    np.testing.assert_array_equal(got.weight["w"], np.arange(3) * 2)
    assert (got.weight["act"], got.weight["n"], got.name) == (jnp.tanh, 3, "kept")


def test_mapped_results_keep_what_is_no_array():
    """One text for the whole batch; arrays have the batch in front."""
    f = optimize(vmap={"batch": {"x": 0}})(lambda x: (x.sum(), "text", None))
    total, text, nothing = f(jnp.ones((4, 3)))
    np.testing.assert_array_equal(total, np.full(4, 3))
    assert (text, nothing) == ("text", None)


@pytest.mark.parametrize("options", [{}, {"chunk": {"batch": 2}}, {"workers": 2}])
def test_a_python_number_stays_one_under_vmap_and_one_of_numpy_does_not(options):
    """As under `eqx.filter_vmap`; what is an array for NumPy is one for each element."""

    def numbers(x):
        return 1.5, 2, True, np.float32(1.5), np.arange(2)

    ours = optimize(numbers, vmap={"batch": {"x": 0}}, **options)(jnp.ones((4, 3)))
    theirs = eqx.filter_vmap(numbers)(jnp.ones((4, 3)))
    assert ours[:3] == theirs[:3] == (1.5, 2, True)
    assert [*map(type, ours[:3])] == [float, int, bool]
    for mine, want in zip(ours[3:], (np.full(4, 1.5), np.tile(np.arange(2), (4, 1))), strict=True):
        np.testing.assert_array_equal(mine, want)


def test_gradients_pass_a_result_with_text():
    """`has_aux` with a string beside an array."""
    f = optimize(lambda x: ((x**2).sum(), {"name": "loss", "x": x}))
    gradient, aux = jax.grad(
        lambda x: (lambda out: (out[0], {"x": out[1]["x"]}))(f(x)), has_aux=True
    )(X)
    np.testing.assert_allclose(gradient, 2 * np.arange(3.0), rtol=1e-6)
    np.testing.assert_array_equal(aux["x"], np.arange(3))


def test_an_object_that_jax_does_not_know_is_returned_itself():
    """No copy is made of what could not be changed, or is not known to be a container."""
    marker = object()
    assert optimize(lambda x: (x, marker))(X)[1] is marker


def test_jax_finds_arrays_alone_in_what_it_rebuilds():
    """Or it would dispatch each call in Python: it looks whether a result holds anything else, such
    as the function in this module.
    """
    model = eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))
    double = optimize(
        lambda model: jax.tree.map(lambda leaf: 2 * leaf if eqx.is_array(leaf) else leaf, model)
    )
    assert double(model).activation is model.activation
    outcome = Outcome()
    rebuilt = jax.tree.map(lambda x: x, outcome.output(outcome.take_apart(model)))
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(rebuilt))


def test_a_body_that_did_not_run_has_no_structure():
    """An error of jitney's own, not of JAX's."""
    with pytest.raises(AssertionError, match="has not run"):
        Outcome().whole([])


def test_a_mixed_result_is_unmixed_once():
    """JAX rebuilds the arrays alone; they are put together with the rest behind it."""
    outcome = Outcome()
    arrays = outcome.take_apart((X, "text"))
    mixed = outcome.output(arrays)
    assert isinstance(mixed, Mixed)
    assert unmix(mixed)[1] == "text"
    assert unmix(jax.tree.map(lambda x: x, mixed))[1] == "text"
    assert unmix((X, "text"))[1] == "text"


@pytest.mark.core("{}", "{'remat': True}")
@pytest.mark.parametrize(
    "options",
    [{}, {"vmap": {"b": {"key": 0}}}, {"remat": True}, {"precision": "f64"}, {"debug_nans": True}],
    ids=str,
)
def test_prng_keys_are_results(options):
    """Arrays like others, alone and among the rest of a result, though NumPy calls their dtype one
    of objects.
    """
    key = jax.random.split(jax.random.key(0), 3)
    split = lambda key: jax.random.split(key) if key.ndim == 0 else jax.vmap(jax.random.split)(key)
    keys, text = optimize(lambda key: (split(key), "text"), **options)(key)
    np.testing.assert_array_equal(
        jax.random.key_data(keys), jax.random.key_data(jax.vmap(jax.random.split)(key))
    )
    assert text == "text"


class Report:
    """An object of a plain class."""

    def __init__(self, notes, of=None):
        self.notes, self.of = notes, of


CONSTANT = Report(["there before"])


def test_an_object_that_the_body_makes_is_made_for_each_call():
    """What one caller changes in it, no other sees; parts that are one object stay one."""

    @optimize
    def f(x):
        report = Report([1], of=Report([2]))
        return x, report, {"again": report, "part": report.of}

    for _ in range(4):
        _, report, tree = f(X)
        assert (report.notes, report.of.notes) == ([1], [2])
        assert tree["again"] is report
        assert tree["part"] is report.of
        report.notes.append(9)
        report.of.notes.append(9)
        report.of = None


def test_an_object_that_was_there_before_is_itself():
    """A constant of a module, one in a cell, one that a cache keeps, what these hold, and an
    argument.
    """
    inside = Report([], of=CONSTANT)

    @functools.lru_cache
    def known():
        return Report(["kept"])

    f = optimize(lambda x, given: (x, CONSTANT, inside, inside.of, known(), given))
    given = Report([])
    for _ in range(3):
        _, constant, held, of, kept, back = f(X, given)
        assert (constant, held, of, kept, back) == (CONSTANT, inside, CONSTANT, known(), given)


@pytest.mark.rest
def test_an_object_in_a_list_or_behind_a_method_is_made_anew():
    """Wherever in the result it is."""
    f = optimize(lambda x: (x, [Report([1])], Record(Report([2])), Report([3]).__init__))
    for _ in range(3):
        _, items, record, method = f(X)
        assert (items[0].notes, record.n.notes, method.__self__.notes) == ([1], [2], [3])
        for report in (items[0], record.n, method.__self__):
            report.notes.append("changed")
