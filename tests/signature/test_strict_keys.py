"""What `==` of structures does not tell: a call, a layer or a result is never taken for another
that is merely equal to it.
"""

import collections
import enum
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._jax.trees import aux_data, beside_leaves_by_node
from jitney._values.strict_keys import are_one, strict_key
from tests._arrays import array
from tests._tracing import count_traces

X = array(np.arange(3))


class Text(enum.StrEnum):
    ONE = "one"


@dataclass(frozen=True)
class Config:
    n: Any
    text: str = "a"


class Layer(eqx.Module):
    weight: Any
    by: Any = eqx.field(static=True)


class Bare(eqx.Module):
    by: Any = eqx.field(static=True)


@partial(jax.tree_util.register_dataclass, data_fields=["weight"], meta_fields=["by"])
@dataclass
class Registered:
    weight: Any
    by: Any


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a static field": lambda by: Layer(X, by),
    "a static field of a module in a list": lambda by: [Layer(X, by)],
    "a module without leaves": lambda by: (Bare(by), Layer(X, None)),
    "a registered dataclass": lambda by: Registered(X, by),
    "a key of a dict": lambda by: {by: X},
    "a key of an ordered dict": lambda by: collections.OrderedDict({by: X}),
}
EQUALS = [
    (1, True),
    (1.0, True),
    (complex(0.0, 0.0), complex(0.0, -0.0)),
    ((1, 2), (1.0, 2)),
    ((0.0,), (-0.0,)),
    ("one", Text.ONE),
    (Fraction(1), 1),
    (frozenset({1}), frozenset({1.0})),
    (Config(1), Config(1.0)),
    (Config((0.0,)), Config((-0.0,))),
    (range(0, 3, 2), range(0, 4, 2)),
    (np.float64(1.0), 1.0),
    (np.float32(0.0), np.float32(-0.0)),
    (np.float32, np.dtype(np.float32)),
]


def seen_by(tree: Any) -> list[str]:
    """What a body can see of the values beside the leaves."""
    if isinstance(tree, dict):
        return [f"{type(key).__name__} {key!r}" for key in tree]
    if isinstance(tree, (list, tuple)):
        return [said for part in tree for said in seen_by(part)]
    return [f"{type(tree.by).__name__} {tree.by!r}"]


CASES = [(holder, pair) for holder in HOLDERS for pair in ((1, 1.0), (0.0, -0.0))] + [
    ("a static field", pair) for pair in EQUALS
]


@pytest.mark.core(
    "a static field-(1, True)",
    "a static field-(0.0, -0.0)",
    "a static field-(0j, -0j)",
    "a static field-(Fraction(1, 1), 1)",
    "a static field-((1, 2), (1.0, 2))",
    "a static field-(frozenset({1}), frozenset({1.0}))",
    "a static field-(range*",
    "a static field-(Config(n=1,*",
    "a static field-('one'*",
    "a static field of a module in a list-(1, 1.0)",
    "a key of a dict-(1, 1.0)",
    "a key of an ordered dict-(0.0, -0.0)",
    "a module without leaves-(1, 1.0)",
    "a registered dataclass-(1, 1.0)",
)
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize(("holder", "pair"), CASES, ids=str)
def test_values_that_are_equal_are_not_one(holder, pair):
    """Whichever came first, each body sees what it was called with; warm calls too."""
    make = HOLDERS[holder]
    for order in (pair, pair[::-1]):
        values = [make(by) for by in order]
        program = optimize(lambda tree, x: (seen_by(tree), x))
        for _ in range(4):
            for value in values:
                assert program(value, X)[0] == seen_by(value)


def test_values_that_are_one_share_a_program():
    """Modules made anew with the same static values, whatever these are, are traced once."""
    body = count_traces(lambda layer, x: layer.weight * x)
    program = optimize(body)
    for _ in range(3):
        program(
            Layer(
                X, (1, 2.0, "a", Config(1), np.float32, jnp.tanh, None, frozenset({1}), {"a": 1})
            ),
            X,
        )
    assert body.traces == 1


def test_the_cause_names_the_static_field():
    """1 and 1.0 are two programs, and the second says why."""
    program = optimize(lambda layer: (layer.weight, jnp.full(3, layer.by)))
    assert [program(Layer(X, by))[1].dtype for by in (1, 1.0)] == [jnp.int32, jnp.float32]
    assert "layer.by" in str(program.stats)


@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"cache": "program"}, {"donate": "x"}], ids=str
)
def test_under_other_options(options):
    """Padded, kept and donating programs are no others' either."""

    def body(layer: Layer, x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x / layer.by

    program = optimize(**options)(body)
    for by in (0.0, -0.0, 0.0, -0.0):
        np.testing.assert_array_equal(
            program(Layer(None, by), jnp.ones(3)), np.full(3, np.copysign(np.inf, by))
        )


def test_layers_that_are_merely_equal_are_not_stacked():
    """A loop over the stack would compute all with the static values of the first."""
    with pytest.raises(jitney.errors.OptionError, match="another structure"):
        jitney.stack([Layer(X, 0.0), Layer(X, -0.0)])


class Held(eqx.Module):
    x: jax.Array
    by: float


def test_steps_that_hand_on_what_is_merely_equal_are_refused():
    """A loop would hand on the static value of the first step."""
    with np.testing.assert_raises_regex(jitney.errors.ContractError, "another structure"):
        jitney.scan_steps(lambda layer: Layer(layer.weight, float(layer.by)), 3)(Layer(X, 1))
    with np.testing.assert_raises_regex(jitney.errors.ContractError, "goes out as -0.0"):
        jitney.scan_steps(lambda held: Held(held.x, -held.by), 3)(Held(X, 0.0))


def test_the_fast_way_says_what_the_documented_one_says():
    """Of every kind of node."""
    tree = {
        "a": [
            1,
            (
                2,
                None,
                collections.OrderedDict(a=1),
                collections.defaultdict(int, a=1),
                jax.tree_util.Partial(jnp.sin, 1, a=2),
            ),
        ],
        "b": {2: Layer(X, 1), 1: eqx.nn.MLP(2, 2, 2, 2, key=jax.random.key(0))},
        "c": jax.tree_util.Partial(jnp.sin),
    }
    structure = jax.tree.structure(tree)
    assert aux_data(structure) == beside_leaves_by_node(structure)
    assert len(aux_data(structure)) >= 10


def test_structures_of_text_and_functions_are_told_by_their_equality():
    """Nothing more is asked of them in a warm call."""
    assert strict_key([jax.tree.structure({"a": 1, "b": (2, None)})]) == ()
    assert not are_one(jax.tree.structure({1: 0}), jax.tree.structure({1.0: 0}))
