"""A call is accepted just where jaxtyping with beartype accepts it."""

from typing import Any

import hypothesis.strategies as st
import jax.numpy as jnp
import jaxtyping
import pytest
from beartype import beartype
from hypothesis import given, settings
from jaxtyping import Array, Bool, Float, Float32, Int, PyTree, Shaped, jaxtyped

from jitney._errors import ContractError
from tests.contract._contracts import Linear, check, z

MANY = settings(max_examples=max(100, settings.default.max_examples))


def agree(annotations, values):
    """Whether jitney and jaxtyping with beartype say the same of a call."""
    names = [f"a{i}" for i in range(len(values))]

    def body(a0=None, a1=None, a2=None): ...

    body.__annotations__ = dict(zip(names, annotations, strict=True))
    try:
        jaxtyped(body, typechecker=beartype)(*values)
        theirs = True
    except jaxtyping.TypeCheckError:
        theirs = False
    try:
        check(body, *values)
        ours = True
    except ContractError:
        ours = False
    return ours == theirs


DIMS = st.sampled_from(["", "n", "m", "n m", "3 n", "#n m", "*b n", "*#b", "... n", "_ n", "_k", "n n", "rows=2 m", "#3", "*b"])
SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
ARRAYS = st.builds(jnp.zeros, SHAPES, st.sampled_from(["float32", "int32", "bool", "bfloat16"]))
ARRAY_HINTS = st.builds(lambda kind, dims: kind[Array, dims], st.sampled_from([Float, Float32, Int, Bool, Shaped]), DIMS)
TREES = st.recursive(ARRAYS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2))


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=3))
def test_arrays_are_accepted_as_jaxtyping_does(pairs):
    """Shapes and dtypes over several arguments."""
    hints, values = zip(*pairs, strict=True)
    assert agree(hints, values)


@MANY
@given(st.lists(st.tuples(ARRAY_HINTS, ARRAYS), min_size=1, max_size=2), ARRAYS | st.none())
def test_optionals_are_accepted_as_jaxtyping_does(pairs, last):
    """An array or None."""
    hints, values = zip(*pairs, strict=True)
    assert agree([*hints, hints[0] | None], [*values, last])


@MANY
@given(ARRAY_HINTS, TREES)
def test_trees_are_accepted_as_jaxtyping_does(hint, tree):
    """Every leaf fits, and they share their names."""
    assert agree([PyTree[hint]], [tree])


@MANY
@given(TREES, TREES, TREES, st.sampled_from(["S", "T", "S T", "T S", "... T", "T ...", "S T ...", "... S T"]))
def test_structures_are_accepted_as_jaxtyping_does(first, second, third, structure):
    """Equal, composed, prefix and suffix structures."""
    leaf = Shaped[Array, "..."]
    assert agree([PyTree[leaf, "S"], PyTree[leaf, "T"], PyTree[leaf, structure]], [first, second, third])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([z(2), z(3)], [z(2), z(3)]),
        ([z(2), z(3)], [z(3), z(2)]),
        ([z(2)], [z(2), z(2)]),
        ({"a": z(2)}, {"a": z(3)}),
        ({"a": z(2)}, {"b": z(2)}),
        (z(2), z(2)),
        (None, z(2)),
    ],
)
def test_names_per_leaf_are_bound_as_jaxtyping_does(first, second):
    """`?n` is one size per position."""
    hint = PyTree[Float[Array, "?n"], "T"]
    assert agree([hint, hint], [first, second])


@pytest.mark.parametrize("hint", [PyTree[Float[Array, "..."]], PyTree[int], PyTree[Any], PyTree[Float[Array, "..."] | int], PyTree])
@pytest.mark.parametrize("tree", [[1, 2], [z(2), 1], z(2), None, [None, z(3)], {"a": "b"}, Linear(z(2, 3), None, 4, 1), ()])
def test_other_leaves_are_accepted_as_jaxtyping_does(hint, tree):
    """None is an empty tree; every other leaf must fit."""
    assert agree([hint], [tree])
