"""What a stage sees of a call: one annotation for each array, in JAX's order."""

import collections
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jitney import optimize
from jitney._signature.hints import ArrayHint, ScalarHint
from jitney._signature.type_hints import read
from jitney._view.view import Leaf, View, is_array, leaf_hints
from tests._arrays import array
from tests._examples import examples

MANY = settings(max_examples=max(100, settings.default.max_examples))
X = np.ones(3, np.float32)


class Listed(list):
    """JAX takes it for a leaf."""


class Pair(tuple):
    """JAX takes it for a leaf."""


class Frozen(Mapping):
    """A mapping that JAX knows nothing of: a leaf."""

    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __hash__(self):
        return hash(tuple(self._items.items()))

    def __len__(self):
        return len(self._items)


class Layer(eqx.Module):
    weight: Any


Named = collections.namedtuple("Named", "a b")

HINTS = [
    Any,
    float,
    int,
    Float[Array, "n"],
    Float[Array, "n"] | None,
    Float[Array, "n"] | float,
    float | int,
    float | str,
    list[Float[Array, "n"]],
    tuple[float, Float[Array, "n"]],
    tuple[float, ...],
    dict[str, float],
    dict[str, Float[Array, "n"]],
    dict[str, tuple[float, Float[Array, "n"]]],
    Mapping[str, list[float]],
    PyTree[Float[Array, "..."]],
    PyTree[float],
    list[dict[str, float]] | None,
    Layer,
    Named,
]
VALUES = st.recursive(
    st.sampled_from([None, 1, 1.0, "a", X, array(X), np.float32(1), Layer(X), Layer(None)]),
    lambda inner: st.one_of(
        *(st.lists(inner, max_size=3).map(kind) for kind in (list, tuple, Listed, Pair)),
        *(
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(kind)
            for kind in (
                dict,
                collections.OrderedDict,
                Frozen,
                lambda d: collections.defaultdict(int, d),
            )
        ),
        st.builds(Named, inner, inner),
    ),
    max_leaves=6,
)
BY_HAND = (
    None,
    1,
    "a",
    X,
    np.float32(1),
    Layer(X),
    Layer(None),
    [],
    (),
    {},
    [1.0, None, X],
    (1.0, array(X)),
    {"b": 1.0, "a": None, "c": X},
    collections.OrderedDict(b=(1.0, X), a=[None]),
    collections.defaultdict(int, b=[X, [1]], a={}),
    Listed([1.0, X]),
    Pair((X, 1.0)),
    [Frozen({"b": [1.0], "a": X}), Frozen({})],
    Named(1.0, Named({"a": 1}, None)),
    {"a": Layer([X, 1.0]), "b": (Listed([None]), X)},
)


@MANY
@given(st.sampled_from(HINTS), VALUES)
@examples(*({"hint": hint, "value": value} for hint in HINTS for value in BY_HAND))
def test_any_value_has_one_hint_for_each_leaf(hint, value):
    """As many as JAX finds leaves, whether or not the value is what the annotation says."""
    assert len(leaf_hints(read(hint), value)) == len(jax.tree.leaves(value))


@MANY
@given(st.lists(st.integers(0, 2), max_size=4), st.permutations("abcd"))
@examples(
    {"sizes": [], "names": list("abcd")},
    {"sizes": [0], "names": list("bacd")},
    {"sizes": [1, 0, 2], "names": list("abcd")},
    {"sizes": [2, 1, 0, 1], "names": list("dcba")},
    {"sizes": [1, 2, 1, 2], "names": list("bdac")},
)
def test_any_dict_has_its_hints_in_the_order_of_its_leaves(sizes, names):
    """Sorted for a dict and a defaultdict, as inserted for an OrderedDict: the float of each pair
    has the scalar's hint.
    """
    hint = read(dict[str, list[tuple[float, Float[Array, "n"]]]])
    items = [(name, [(1.0, X)] * size) for name, size in zip(names, sizes, strict=False)]
    for kind in (dict, collections.OrderedDict, lambda pairs: collections.defaultdict(list, pairs)):
        value = kind(items)
        for leaf, found in zip(jax.tree.leaves(value), leaf_hints(hint, value), strict=True):
            assert isinstance(found, ScalarHint if isinstance(leaf, float) else ArrayHint)


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, lambda pairs: collections.defaultdict(list, pairs)]
)
def test_floats_in_a_dict_with_holes_are_traced(kind):
    """One entry is None, so its neighbours must not be taken for it."""

    def body(rates: dict[str, float | None]):
        return [isinstance(rate, jax.core.Tracer) for rate in rates.values()]

    rates = kind([("b", None), ("c", 2.0), ("a", 1.0)])
    traced = optimize(body)(rates)
    assert traced == [rate is not None for rate in jax.tree.map(lambda x: x, rates).values()]


def test_a_leaf_that_looks_like_a_container_takes_no_hints_of_others():
    """A mapping that JAX does not know is one static leaf; the number behind it is traced as
    annotated.
    """

    def body(config: Mapping[str, float], scale: float):
        return isinstance(scale, jax.core.Tracer), isinstance(config["a"], jax.core.Tracer)

    for options in ({}, {"static": "config"}):
        assert optimize(body, **options)(Frozen({"a": 1.0, "b": 2.0}), 2.0) == (True, False)


@pytest.mark.parametrize(
    ("hint", "rank"),
    [
        (Float[Array, ""], 0),
        (Float[Array, "n m"], 2),
        (Float[Array, "... n"], None),
        (float, 0),
        (Any, None),
        (Float[Array, "n"] | None, 1),
    ],
)
def test_the_declared_rank_is_that_of_the_annotation(hint, rank):
    """Fixed, open, or none at all."""
    found = leaf_hints(read(hint), X)[0]
    assert (
        Leaf("x", "x", (3,), jnp.dtype("float32"), weak_type=False, hint=found).declared_rank
        == rank
    )


def test_of_a_union_the_alternative_of_that_rank_is_taken():
    """A matrix or a vector: both as annotated, so neither is mapped; with one axis more than both,
    neither alternative is chosen.
    """
    hint = read(Float[Array, "n"] | Float[Array, "n m"])
    for rank in (1, 2):
        assert leaf_hints(hint, np.ones((2,) * rank))[0].rank == rank
    assert leaf_hints(hint, np.ones((2, 2, 2))) == [None]


def test_of_a_union_the_alternatives_of_the_dtype_are_compared():
    """A stack of floats is of the floats; one of booleans of neither, so no rank is known."""
    hint = read(Float[Array, "n"] | Int[Array, "n m"])
    assert leaf_hints(hint, np.ones((2, 2)))[0].text.startswith("Float")
    assert leaf_hints(hint, np.ones((2, 2), np.int64))[0].text.startswith("Int")
    assert leaf_hints(hint, np.ones((2, 2, 2), np.int32))[0].rank == 2
    assert leaf_hints(hint, np.ones((2, 2, 2), np.bool_)) == [None]


@pytest.mark.parametrize(
    ("keys", "rank"),
    [
        (jax.random.key(0), 0),
        (jax.random.split(jax.random.key(0), 3), 0),
        (jax.random.PRNGKey(0), 1),
        (jax.random.split(jax.random.PRNGKey(0), 2), 1),
        (np.zeros((4, 4), np.uint32), 1),
    ],
)
def test_a_stack_of_keys_has_the_rank_of_one(keys, rank):
    """Of typed keys 0, of raw ones 1, whichever of their two lengths they have."""
    assert leaf_hints(read(PRNGKeyArray), keys)[0].rank == rank


def test_a_number_that_a_union_takes_as_static_is_static():
    """`int | float`: an int is as annotated, a float is traced."""
    hint = read(float | int)
    assert leaf_hints(hint, 1) == [None]
    assert isinstance(leaf_hints(hint, 1.5)[0], ScalarHint)


def test_abstract_values_count_as_what_they_stand_for():
    """Arrays of JAX and NumPy, NumPy's scalars and `jax.ShapeDtypeStruct`; no Python number."""
    assert all(
        map(
            is_array,
            (
                X,
                jnp.asarray(X),
                np.float32(1),
                np.bool_(True),
                jax.ShapeDtypeStruct((), jnp.float32),
            ),
        )
    )
    assert not any(map(is_array, (1, 1.0, True, None, "a", [X], jnp.float32)))


def test_a_view_knows_where_the_arrays_of_an_argument_are():
    """Positions among all arrays, none for an argument without any."""
    leaves = [
        Leaf(path, path[0], (), jnp.dtype("int32"), weak_type=False)
        for path in ("x", "y[0]", "x.a", "y[1]")
    ]
    view = View(tuple(leaves))
    assert (view.of("x"), view.of("y"), view.of("z")) == ((0, 2), (1, 3), ())


def test_a_leaf_reads_as_a_person_would_write_it():
    """Path, dtype and shape, and that it is weak."""
    leaf = Leaf("model.layers[0].weight", "model", (2, 3), jnp.dtype("float32"), weak_type=False)
    assert str(leaf) == "model.layers[0].weight: float32[2,3]"
    assert str(Leaf("x", "x", (), jnp.dtype("int32"), weak_type=True)) == "x: int32[] weak"


def test_a_leaf_stands_for_an_array_of_its_shape():
    """`abstract` keeps shape, dtype and weak type; `reshape` changes only the shape."""
    leaf = Leaf("x", "x", (2, 3), jnp.dtype("float16"), weak_type=True)
    assert leaf.abstract() == jax.ShapeDtypeStruct((2, 3), jnp.float16, weak_type=True)
    assert leaf.reshape((3,)).abstract() == jax.ShapeDtypeStruct((3,), jnp.float16, weak_type=True)
