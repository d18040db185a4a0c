"""Modules that a Program returns: as Equinox makes them, and not flattened by Equinox when they
come back.
"""

import gc
import weakref
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jitney import optimize
from jitney._values.copies import snapshot
from jitney._view.flatten import Flattener
from jitney._view.result import Outcome, is_computed
from jitney._view.result_codegen import builder, holds_modules
from tests._arrays import array
from tests._examples import examples
from tests._tracing import count_traces
from tests.view.test_result import BY_HAND, TREES

MANY = settings(max_examples=max(100, settings.default.max_examples))
X = array(np.ones(2))


class Leaf(eqx.Module):
    weight: Any
    name: str = eqx.field(static=True, default="leaf")

    def doubled(self):
        return self.weight * 2


class Model(eqx.Module):
    parts: Any
    act: Any = jnp.tanh


class Pair(NamedTuple):
    a: Any
    b: Any


class Slotted(eqx.Module):
    __slots__ = ("hidden",)
    weight: Any


@jax.tree_util.register_pytree_node_class
class Box:
    """A node of the user's own."""

    def __init__(self, inner):
        self.inner = inner

    def tree_flatten(self):
        return (self.inner,), None

    @classmethod
    def tree_unflatten(cls, aux, parts):
        return cls(*parts)


def scaled(model):
    return jax.tree.map(lambda leaf: leaf * np.float32(2) if eqx.is_array(leaf) else leaf, model)


def models():
    inner = Leaf(X), Leaf(array(np.full(2, 3.0)), "other")
    return {
        "tuple": Model(inner),
        "list": Model(list(inner)),
        "dict": Model({"b": inner[0], "a": inner[1]}),
        "named tuple": Model(Pair(*inner)),
        "nested": Model((Model([inner[0]], None), {"x": (inner[1], None, ())})),
        "a node of one's own": Model((Leaf(X), Box(Leaf(X)))),
        "an empty list": Model(([], Leaf(X))),
        "a method": Model((eqx.nn.Lambda(jnp.sin), Leaf(X).doubled)),
    }


def assert_same(got, want):
    leaves, treedef = jax.tree.flatten(got)
    expected, structure = jax.tree.flatten(want)
    assert treedef == structure
    for a, b in zip(leaves, expected, strict=True):
        if eqx.is_array(b):
            np.testing.assert_array_equal(a, b)
        else:
            assert a is b


@MANY
@given(TREES)
@examples(*({"result": result} for result in BY_HAND))
def test_any_result_is_built_as_jax_builds_it(result):
    """The same nodes with the same leaves."""
    leaves, treedef = jax.tree.flatten(result)
    rest = [(i, leaf) for i, leaf in enumerate(leaves) if not is_computed(leaf)]
    arrays = [leaf for leaf in leaves if is_computed(leaf)]
    build = builder(treedef, rest, snapshot)
    for _ in range(2):
        got, structure = jax.tree.flatten(build(arrays))
        assert structure == treedef
        assert [type(leaf) for leaf in got] == [type(leaf) for leaf in leaves]
        assert all(a is b for a, b in zip(got, leaves, strict=True) if is_computed(b))


@pytest.mark.parametrize("kind", models())
def test_a_model_that_goes_round_is_traced_once(kind):
    """Call after call with the model of the last one, as in training; numbers and structure are
    JAX's.
    """
    model = models()[kind]
    counted = count_traces(scaled)
    f, want = optimize(counted), model
    for _ in range(6):
        model, want = f(model), scaled(want)
        assert_same(model, want)
    assert counted.traces == 1


def test_a_model_and_its_state_go_round():
    """Modules in tuples and named tuples, beside arrays."""

    def step(model, state, x):
        return scaled(model), Pair(state.a + 1, (scaled(state.b[0]), ())), jnp.sum(x)

    f = optimize(step)
    model, state = Model((Leaf(X), Leaf(X))), Pair(jnp.zeros(()), (Model((Leaf(X), Leaf(X))), ()))
    want = model, state
    for _ in range(5):
        model, state, total = f(model, state, X)
        want = step(*want, X)[:2]
        assert_same((model, state), want)
        assert float(total) == 2.0


@pytest.mark.parametrize("kind", models())
def test_a_model_that_comes_back_is_not_flattened(kind, monkeypatch):
    """Once calls of its structure are known."""
    f = optimize(lambda model: scaled(model))
    model = want = models()[kind]
    for _ in range(4):
        model, want = f(model), scaled(want)
    monkeypatch.setattr(Flattener, "__call__", None)
    monkeypatch.setattr("jitney._program.core.tree_flatten", None)
    assert_same(f(model), scaled(want))


def test_a_change_of_a_returned_model_is_seen():
    """Of a field, behind its back; of a list in it; of which list holds what; of a key."""
    f = optimize(scaled)
    made = lambda: f(f(f(Model(([Leaf(X)], [Leaf(X * 3), Leaf(X * 5)], {"k": Leaf(X)})))))
    changes = [
        lambda model: object.__setattr__(model.parts[0][0], "weight", X * 9),
        lambda model: object.__setattr__(model.parts[0][0], "weight", np.float32([7, 8])),
        lambda model: object.__setattr__(model.parts[0][0], "weight", None),
        lambda model: object.__setattr__(model.parts[0][0], "weight", (X, X * 4)),
        lambda model: object.__setattr__(model.parts[0][0], "name", "another"),
        lambda model: object.__delattr__(model.parts[0][0], "name"),
        lambda model: object.__setattr__(model, "act", jnp.sin),
        lambda model: object.__setattr__(model, "parts", [*model.parts]),
        lambda model: model.parts[1].append(Leaf(X)),
        lambda model: model.parts[1].reverse(),
        lambda model: model.parts[0].append(model.parts[1].pop(0)),
        lambda model: model.parts[2].update(j=model.parts[2].pop("k")),
        lambda model: model.parts[2].clear(),
    ]
    for change in changes:
        model = made()
        change(model)
        for _ in range(3):
            assert_same(f(model), scaled(model))


@pytest.mark.rest
def test_a_returned_model_that_is_let_go_is_forgotten():
    """With its arrays."""
    f = optimize(scaled)
    model = f(f(f(Model((Leaf(X), Leaf(X))))))
    gone = weakref.ref(model), weakref.ref(model.parts[0].weight)
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_a_field_in_a_slot_is_left_to_jax():
    """Such a module has not all of its fields in `vars`."""
    module = Slotted(X)
    build = builder(jax.tree.structure(module), [], snapshot)
    assert_same(build([X]), module)


@pytest.mark.rest
def test_a_method_of_a_returned_model_can_be_called():
    """It is a module as any other: hashing, printing, `tree_at`, `vars`."""
    f = optimize(scaled)
    model = f(f(eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))))
    want = scaled(scaled(eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))))
    np.testing.assert_array_equal(model(X), want(X))
    assert repr(model) == repr(want)
    assert vars(model).keys() == vars(want).keys()
    changed = eqx.tree_at(lambda m: m.layers[0].weight, model, jnp.zeros((4, 2)))
    assert float(jnp.sum(changed.layers[0].weight)) == 0.0
    with pytest.raises(AttributeError):
        model.depth = 3


def test_what_holds_modules_is_told_by_its_structure():
    """At any depth."""
    assert holds_modules(jax.tree.structure([{"a": (Leaf(X),)}]))
    assert not holds_modules(jax.tree.structure([{"a": (X, None)}]))


def test_a_result_that_is_made_anew_is_built_anew():
    """A second trace has a structure of its own."""
    outcome = Outcome()
    for tree in ((Leaf(X), Leaf(X)), [Leaf(X)], {"a": Model((Leaf(X),))}):
        arrays = outcome.take_apart(tree)
        for _ in range(3):
            assert_same(outcome.build(arrays), tree)
