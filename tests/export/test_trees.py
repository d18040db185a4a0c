"""Any tree of arguments, of any dtypes, goes through a file as it goes through the program."""

from collections import OrderedDict

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from tests._arrays import array

from .._examples import examples
from ._models import Decay, Mode, Pair, to_the_bit

_DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint16", "bool", "complex64")
_STATIC = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(-2, 2),
    st.text(max_size=3),
    st.sampled_from(Mode),
    st.binary(max_size=3),
)


@st.composite
def _array(draw):
    dtype, shape = draw(st.sampled_from(_DTYPES)), draw(st.sampled_from([(), (0,), (2,), (1, 3)]))
    numbers = draw(st.integers(0, 3)) + np.arange(int(np.prod(shape))).reshape(shape)
    return jnp.asarray(numbers).astype(dtype)


_TREES = st.recursive(
    st.one_of(_array(), _array(), _STATIC),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=2).map(OrderedDict),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.tuples(inner, st.integers(0, 3)).map(lambda parts: Decay(*parts)),
    ),
    max_leaves=8,
)


def _of(dtype, *shape):
    return array(np.ones(shape, dtype))


def _changed(tree):
    """Something of each array, in the structure as it is."""
    return jax.tree.map(lambda x: (x + x, x.T) if isinstance(x, jax.Array) else x, tree), tree


@pytest.mark.sweep
@hypothesis.given(tree=_TREES)
@examples(
    {"tree": []},
    {"tree": [*(_of(dtype, 1, 3) for dtype in _DTYPES), _of("bool"), _of("bfloat16", 0)]},
    {"tree": (None, True, 1, 1.0, -0.0, "", "ab", b"\0", Mode.SQUARED, Mode.PLAIN)},
    {"tree": {"b": (_of("int8", 2), [], {}), "a": [None, {"c": 2, "b": _of("bool")}], "c": ()}},
    {"tree": OrderedDict(z=_of("float16", 2), x=OrderedDict(y="y", x=_of("bfloat16", 0)))},
    {"tree": Pair(Decay(_of("float32"), 2), [Decay("a", 0), Pair(None, {"a": _of("complex64")})])},
)
def test_any_tree_goes_through_a_file(tmp_path_factory, tree):
    """Lists, tuples, dicts in their order, named tuples and modules of arrays and static values: to
    the bit what the program gives.
    """
    path = tmp_path_factory.mktemp("export") / "f.jitney"
    f = jitney.optimize(lambda tree: _changed(tree))
    f.export(path, tree)
    to_the_bit(jitney.load(path)(tree), f(tree))
    to_the_bit(jax.tree.leaves(jitney.load(path)(tree)), jax.tree.leaves(f(tree)))


@pytest.mark.sweep
@hypothesis.given(tree=_TREES, place=st.integers(0, 7), leaf=st.one_of(_array(), _STATIC, _TREES))
@examples(
    {"tree": [_of("float32", 2), 1], "place": 0, "leaf": array([3, 3], "float32")},
    {"tree": [_of("float32", 2), 1], "place": 0, "leaf": array([-0.0, np.nan], "float32")},
    {"tree": [_of("float32", 2), 1], "place": 0, "leaf": _of("float32", 1, 3)},
    {"tree": {"b": _of("int32"), "a": 1}, "place": 1, "leaf": _of("bool")},
    {"tree": {"b": _of("int32"), "a": 1}, "place": 1, "leaf": 1},
    {"tree": {"b": _of("int32"), "a": 1}, "place": 0, "leaf": True},
    {"tree": {"b": _of("int32"), "a": 1}, "place": 2, "leaf": 1},
    {"tree": (0.0, Mode.PLAIN), "place": 0, "leaf": -0.0},
    {"tree": (0.0, Mode.PLAIN), "place": 1, "leaf": Mode.SQUARED},
    {"tree": Pair("a", b"a"), "place": 1, "leaf": "a"},
    {"tree": Decay(_of("float16"), 2), "place": 0, "leaf": array(0, "float16")},
    {"tree": Decay(_of("float16"), 2), "place": 0, "leaf": None},
    {"tree": OrderedDict(y=_of("complex64", 0), x=2), "place": 7, "leaf": [2]},
    {"tree": _of("uint16", 2), "place": 0, "leaf": OrderedDict(x=_of("uint16", 2))},
)
def test_what_is_exported_for_one_tree_is_right_for_another_or_a_sentence(
    tmp_path_factory, tree, place, leaf
):
    """One leaf of the arguments is another: its value or its type, its shape, a tree in its
    place.
    """
    path = tmp_path_factory.mktemp("export") / "f.jitney"
    f = jitney.optimize(lambda tree: _changed(tree))
    f.export(path, tree)
    leaves, structure = jax.tree.flatten(tree)
    hypothesis.assume(leaves)
    leaves[place % len(leaves)] = leaf
    other = jax.tree.unflatten(structure, leaves)
    try:
        ours = jitney.load(path)(other)
    except jitney.errors.ContractError:
        return
    to_the_bit(ours, jitney.optimize(lambda tree: _changed(tree))(other))
    # Floats outside of modules are data, as under `jax.jit`.
    traced = jax.tree.map(
        lambda x: jnp.asarray(x) if type(x) is float else x,
        other,
        is_leaf=lambda x: isinstance(x, eqx.Module),
    )
    to_the_bit(jax.tree.leaves(ours), jax.tree.leaves(_changed(traced)))
