"""Modules are flattened as JAX flattens them, whoever does it, and whatever happens to them between
two calls.
"""

import gc
import itertools
import weakref
from typing import Any

import equinox as eqx
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney._view import flatten
from jitney._view.flatten import Flattener
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces

X = array(np.ones(2))
MANY = settings(max_examples=max(100, settings.default.max_examples))


class Leaf(eqx.Module):
    weight: Any
    bias: Any = None
    name: str = eqx.field(static=True, default="leaf")

    def value(self):
        return (
            0.0 if self.weight is None else self.weight + (0.0 if self.bias is None else self.bias)
        )


class Node(eqx.Module):
    left: Any
    right: Any
    scale: Any = eqx.field(static=True, default=1.0)

    def value(self):
        return self.scale * (self.left.value() + self.right.value())


def tree(a=1.0, b=2.0):
    return Node(Leaf(X * a), Leaf(X * b))


def warm(program, *args):
    """Call often enough for a function to be written for calls like it."""
    for _ in range(4):
        out = program(*args)
    return out


def value(node):
    return node.value()


ATOMS = st.one_of(
    st.none(),
    st.integers(0, 3),
    st.text(max_size=1),
    st.builds(lambda n: np.full(2, n), st.integers(0, 3)),
)


@st.composite
def modules(draw):
    """Modules of modules, tuples, lists, dicts and leaves, None and empty ones too."""
    inner = st.recursive(
        st.one_of(ATOMS, st.builds(Leaf, ATOMS, ATOMS, st.sampled_from("ab"))),
        lambda part: st.one_of(
            st.tuples(part, part),
            st.lists(part, max_size=2),
            st.dictionaries(st.sampled_from("xyz"), part, max_size=2),
            st.builds(Node, part, part, st.sampled_from([1.0, 2.0])),
        ),
        max_leaves=5,
    )
    return Node(draw(inner), draw(inner), draw(st.sampled_from([1.0, 2.0])))


def places(node):
    """Every module inside, with the name of each field."""
    found = []
    for part in jax.tree.leaves(
        node, is_leaf=lambda inner: inner is not node and isinstance(inner, eqx.Module)
    ):
        if isinstance(part, eqx.Module):
            found += places(part)
    return [(node, name) for name in vars(node)] + found


ONES, TWOS = np.full(2, 1), np.full(2, 2)


def by_hand():
    """Modules as the strategy draws them, made anew in each call."""
    return (
        Node(None, None),
        Node(1, "a"),
        Node(1, "b"),
        Node(2, "a"),
        Node(ONES, TWOS),
        Node(TWOS, ONES, 2.0),
        Node([], ()),
        Node((), []),
        Node(Leaf(ONES), Leaf(None, TWOS, "b")),
        Node(Leaf(ONES), Leaf(None, TWOS, "a")),
        Node((Leaf(ONES, 3), {"y": Leaf(""), "x": None}), [TWOS, 0]),
        Node((Leaf(ONES, 3), {"y": Leaf(""), "z": None}), [TWOS, 0]),
        Node(Node(Leaf(TWOS, "a", "b"), {}, 2.0), Node(([Leaf(Leaf(0))],), Node(1, None))),
    )


@st.composite
def changes(draw):
    """A module, the place of one of its fields, and what it becomes."""
    module = draw(modules())
    place = draw(st.integers(0, len(places(module)) - 1))
    owner, name = places(module)[place]
    new = st.just("other") if is_static(owner, name) else st.one_of(ATOMS, modules())
    return module, place, draw(new)


def is_static(owner, name):
    return type(owner).__dataclass_fields__[name].metadata.get("static", False)


@MANY
@given(st.lists(st.one_of(modules(), ATOMS, st.tuples(ATOMS), st.tuples(modules())), max_size=3))
@examples(
    {"args": []},
    {"args": [None, "a", ONES]},
    {"args": [(3,), (None,), ("",)]},
    {"args": [*by_hand()[:3]]},
    {"args": [*by_hand()[6:9]]},
    {"args": [by_hand()[10], 0, (by_hand()[12],)]},
    {"args": [(by_hand()[12],), by_hand()[12]]},
)
def test_any_arguments_flatten_as_jax_flattens_them(args):
    """The same leaf objects in the same order, by JAX and by the functions that are written after
    some calls.
    """
    flattener = Flattener()
    expected = jax.tree.leaves(tuple(args))
    for _ in range(6):
        leaves, _ = flattener(tuple(args))
        assert len(leaves) == len(expected)
        assert all(a is b for a, b in zip(leaves, expected, strict=True))


@MANY
@given(changes())
@examples(
    {"change": (Node(1, Leaf(ONES)), 0, 2)},  # `left`
    {"change": (Node(1, Leaf(ONES)), 0, "a")},
    {"change": (Node(1, Leaf(ONES)), 0, None)},
    {"change": (Node(1, Leaf(ONES)), 2, "other")},  # `scale`, which is static
    {"change": (Node(1, Leaf(ONES)), 3, TWOS)},  # `right.weight`
    {"change": (Node(1, Leaf(ONES)), 4, TWOS)},  # `right.bias`, None before
    {"change": (Node(1, Leaf(ONES)), 5, "other")},  # `right.name`, static
    {"change": (Node(None, ONES), 1, Node([], Leaf(TWOS)))},  # `right`
    {"change": (Node([Leaf(ONES)], {"x": (Leaf(1),)}), 6, Node("a", None))},  # of the last leaf
    {"change": (Node(Leaf(0), {"z": Leaf("a"), "y": [TWOS]}), 8, "other")},  # its `name`
)
def test_any_field_changed_behind_its_back_shows_at_once(change):
    """`object.__setattr__` on any module of the tree, new leaf or new subtree, between two
    calls.
    """
    module, place, new = change
    flattener = Flattener()
    for _ in range(5):
        flattener((module,))
    owner, name = places(module)[place]
    object.__setattr__(owner, name, new)
    for _ in range(5):
        leaves, key = flattener((module,))
        expected, treedef = jax.tree.flatten(module)
        assert len(leaves) == len(expected)
        assert all(a is b for a, b in zip(leaves, expected, strict=True))
    rebuilt = jax.tree.unflatten(treedef, expected)
    for _ in range(5):
        fresh = flattener((rebuilt,))
    assert fresh[1] == key


@pytest.mark.rest
@MANY
@given(modules(), modules())
@examples(
    *({"a": a, "b": b} for a, b in itertools.combinations(by_hand(), 2)),
    *({"a": a, "b": b} for a, b in zip(by_hand(), by_hand(), strict=True)),
)
def test_any_two_modules_share_a_key_just_if_jax_says_so(a, b):
    """Structure and types of leaves; of texts, which no call can change, the value may be in it
    too.
    """

    def key_of(module):
        leaves, treedef = jax.tree.flatten(module)
        return treedef, [(type(leaf), leaf if isinstance(leaf, str) else None) for leaf in leaves]

    flattener = Flattener()
    for _ in range(5):
        first = flattener((a,))[1]
    for _ in range(5):
        second = flattener((b,))[1]
    assert (first == second) == (key_of(a) == key_of(b))


def test_a_module_changed_by_setattr_is_seen():
    """New numbers in an old module, at each depth."""
    f = optimize(value)
    model = tree()
    np.testing.assert_array_equal(warm(f, model), [3, 3])
    object.__setattr__(model.left, "weight", X * 10)
    np.testing.assert_array_equal(f(model), [12, 12])
    np.testing.assert_array_equal(warm(f, model), [12, 12])
    object.__setattr__(model, "right", Leaf(X * 20, X))
    np.testing.assert_array_equal(f(model), [31, 31])
    object.__setattr__(model, "scale", 2.0)
    np.testing.assert_array_equal(f(model), [62, 62])


def test_a_field_that_goes_is_missed():
    """Of the last module too: what JAX cannot flatten is an error, not the numbers of before."""
    f = optimize(value)
    model = tree()
    warm(f, model)
    object.__delattr__(model.right, "bias")
    object.__delattr__(model.right, "weight")
    with pytest.raises(AttributeError, match="weight"):
        f(model)


def test_a_module_replaced_by_tree_at_is_another():
    """As every training step does; the old one keeps its numbers."""
    counted = count_traces(value)
    f = optimize(counted)
    model = tree()
    warm(f, model)
    for n in (5.0, 6.0):
        other = eqx.tree_at(lambda m: m.left.weight, model, X * n)
        np.testing.assert_array_equal(f(other), np.full(2, n + 2))
        np.testing.assert_array_equal(warm(f, other), np.full(2, n + 2))
        np.testing.assert_array_equal(f(model), [3, 3])
    assert counted.traces == 1


def test_a_numpy_leaf_changed_in_place_is_read_again():
    """The leaf is the same array; its numbers are read on each call."""
    f = optimize(value)
    weight = np.ones(2, np.float32)
    model = Node(Leaf(weight), Leaf(X))
    np.testing.assert_array_equal(warm(f, model), [2, 2])
    weight[:] = 5
    np.testing.assert_array_equal(f(model), [6, 6])


def test_a_list_inside_a_module_may_change():
    """It is read on each call."""
    f = optimize(lambda model: sum(part.value() for part in model.left))
    model = Node([Leaf(X), Leaf(X)], None)
    np.testing.assert_array_equal(warm(f, model), [2, 2])
    model.left.append(Leaf(X * 3))
    np.testing.assert_array_equal(f(model), [5, 5])
    model.left[0] = Leaf(X * 0)
    np.testing.assert_array_equal(f(model), [4, 4])


class Opaque:
    """A node that JAX takes apart in a way of its own."""

    def __init__(self, value):
        self.value = value


jax.tree_util.register_pytree_node(
    Opaque, lambda node: ((node.value,), None), lambda _, children: Opaque(*children)
)


@pytest.fixture
def by_equinox(monkeypatch):
    """What the flattener has JAX flatten from when it is called on."""
    trees = []

    def start():
        monkeypatch.setattr(
            flatten, "tree_flatten", lambda tree: trees.append(tree) or jax.tree.flatten(tree)
        )
        return trees

    return start


@pytest.mark.parametrize(
    "inner",
    [X, Opaque(X), [X, {"a": (X,)}], Leaf(None)],
    ids=["array", "a node of one's own", "containers", "module"],
)
def test_modules_of_a_known_structure_are_not_flattened_by_equinox(inner, by_equinox):
    """Nor a new one."""
    flattener = Flattener()
    for n in range(4):
        flattener((Node(Leaf(X * n), inner),))
    trees = by_equinox()
    other = Node(Leaf(X * 7), inner)
    leaves, _ = flattener((other,))
    assert not trees
    assert all(a is b for a, b in zip(leaves, jax.tree.leaves(other), strict=True))


def test_a_structure_of_its_own_each_time_writes_a_bounded_number_of_functions(by_equinox):
    """A static field that is another object each time, and no end of lengths."""
    flattener = Flattener()
    trees = by_equinox()
    for n in range(100):
        module = Node([X] * (n % 40), None, (n,))
        leaves, _ = flattener((module,))
        assert len(leaves) == n % 40
    assert len(trees) == 100
    assert len(flattener._classes[Node].takers) <= 8


def test_a_tuple_around_an_array_is_not_that_array():
    """`f((x,))` after `f(x)` and a call with a module: the body sees a tuple."""
    f = optimize(lambda tree: jax.tree.leaves(tree)[0] * (10 if isinstance(tree, tuple) else 1))
    np.testing.assert_array_equal(f(X), [1, 1])
    warm(f, tree())
    np.testing.assert_array_equal(f((X,)), [10, 10])
    np.testing.assert_array_equal(f(X), [1, 1])


def test_a_static_field_is_part_of_the_key():
    """Two values of a static field are two programs; the same value in another module is not a
    third.
    """
    counted = count_traces(value)
    f = optimize(counted)
    for _ in range(3):
        for scale in (1.0, 2.0):
            np.testing.assert_array_equal(f(Node(Leaf(X), Leaf(X), scale)), np.full(2, 2 * scale))
    assert counted.traces == 2


def test_none_and_an_array_are_two_structures():
    """A field that is None has no leaf."""
    counted = count_traces(value)
    f = optimize(counted)
    for _ in range(3):
        np.testing.assert_array_equal(f(Node(Leaf(None), Leaf(X, X))), [2, 2])
        np.testing.assert_array_equal(f(Node(Leaf(X), Leaf(X, None))), [2, 2])
    assert counted.traces == 2


@pytest.mark.rest
def test_a_module_that_is_let_go_is_forgotten():
    """Nothing keeps a module, or its arrays, alive after the call."""
    f = optimize(value)
    model = tree()
    warm(f, model)
    gone = weakref.ref(model), weakref.ref(model.left.weight)
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_modules_made_anew_at_one_address_are_not_confused():
    """A new module may get the address of one that is gone."""
    f = optimize(value)
    for n in range(20):
        model = tree(n, 1.0)
        np.testing.assert_array_equal(warm(f, model), np.full(2, n + 1.0))
        del model


def test_a_module_twice_in_one_call_is_there_twice():
    """Its leaves come twice, in each of its places."""
    f = optimize(lambda a, b: a.value() - 2.0 * b.value())
    model, other = tree(), tree(5.0, 5.0)
    np.testing.assert_array_equal(warm(f, model, model), [-3, -3])
    np.testing.assert_array_equal(warm(f, model, other), [-17, -17])
    np.testing.assert_array_equal(warm(f, other, model), [4, 4])
