"""Updates in place that a body makes of its arguments: one warning that names them; a copy may be
changed.
"""

import collections
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import JitneyWarning, optimize
from tests._arrays import array

X = array(np.ones(3, np.float32))


class Model(eqx.Module):
    w: object
    names: list = eqx.field(static=True, default_factory=list)


class Optimizer:
    """Of a plain class."""

    def __init__(self):
        self.step, self.history = 0, [1]

    def sets(self, x):
        self.last = x.shape
        return x

    def appends(self, x):
        self.history.append(2)
        return x * len(self.history)

    def counts(self, x):
        self.step += 1
        return x * self.step

    @functools.cached_property
    def scale(self):
        return 2.0

    def looks_up(self, x):
        return x * self.scale


def pops(b):
    b.pop("y")
    return b["x"] * 2


def sets(b):
    b["x"] = b["x"] * 2
    return b["x"]


def puts(b):
    b["z"] = b["x"]
    return b["x"]


def appends(items):
    items.append(items[0])
    return items[0]


def counts(c, x):
    c["a"] += 1
    return x * c["a"]


def writes(t, x):
    t[0] = 9
    return x * t[0]


def forces(model):
    object.__setattr__(model, "w", model.w * 2)
    return model.w


def names(model):
    model.names.append("a")
    return model.w


UPDATES = {
    "an item that is taken out": (
        optimize(pops),
        lambda: ({"x": X, "y": X},),
        r"\"b\['y'\]\" is gone",
    ),
    "an item that is set": (optimize(sets), lambda: ({"x": X},), r"\"b\['x'\]\" has changed"),
    "a new item": (optimize(puts), lambda: ({"x": X},), r"\"b\['z'\]\" is new"),
    "an item of a list": (optimize(appends), lambda: ([X],), r"'items\[1\]' is new"),
    "a static container": (
        optimize(counts, static="c"),
        lambda: (collections.Counter("a"), 1.0),
        "'c' has changed",
    ),
    "a static array": (
        optimize(writes, static="t"),
        lambda: (np.arange(2), 1.0),
        "'t' has changed",
    ),
    "a field of a module": (optimize(forces), lambda: (Model(X),), "'model.w' has changed"),
    "a static field": (optimize(names), lambda: (Model(X),), "'a static field' has changed"),
    "padded and mapped": (
        optimize(pops, vmap={"row": {"b": 0}}, pad={"row": "pow2"}),
        lambda: ({"x": X, "y": X},),
        r"\"b\['y'\]\" is gone",
    ),
    "an attribute that is set": (
        optimize(Optimizer.sets),
        lambda: (Optimizer(), X),
        "'self.last' is new",
    ),
    "a list in an attribute": (
        optimize(Optimizer.appends),
        lambda: (Optimizer(), X),
        "'self.history' has changed",
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_in_place_is_said_once(name):
    """With its path, whatever it is made in; the caller has what it had."""
    program, given, said = UPDATES[name]
    with pytest.warns(JitneyWarning, match=said) as warned:
        program(*given())
    program(*given())
    assert len(warned) == 1


def change_a_copy(b):
    b = dict(b)
    b.pop("y")
    return b["x"] * 2


def change_keywords(x, **rest):
    rest["a"] = 2
    return x * rest["a"]


def change_items(x, *rest):
    items = [*rest]
    items.append(x)
    return items[-1]


def test_what_is_the_bodys_own_may_be_changed():
    """A copy; `**kwargs`, which Python makes for each call; what was read before it was set, which
    is traced anew; a cached property.
    """
    np.testing.assert_array_equal(optimize(change_a_copy)({"x": X, "y": X}), [2, 2, 2])
    np.testing.assert_array_equal(optimize(change_keywords)(X, a=3), [2, 2, 2])
    np.testing.assert_array_equal(optimize(change_items)(X, X), X)
    optimizer = Optimizer()
    step = optimize(optimizer.counts)
    assert [float(step(X)[0]) for _ in range(3)] == [1, 2, 3]
    np.testing.assert_array_equal(optimize(optimizer.looks_up)(X), 2 * jnp.ones(3))
