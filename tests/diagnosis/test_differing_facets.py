"""Random pairs of calls that differ in one to three facets: exactly those are named."""

import functools
from contextlib import ExitStack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

from jitney import optimize
from jitney._jax.settings import settings_of_programs
from tests._arrays import array, weak
from tests._examples import examples


class Part(eqx.Module):
    """A module with an array and a static field."""

    weight: jax.Array
    power: int = eqx.field(static=True)


STRONG, WEAK = array(1.0), weak(1.0)
FREE = array(np.ones(2))
HELD = jax.device_put(FREE, jax.devices()[0])

FACETS = {
    ("shape", "x", "n", "3", "5"): lambda on: {"x": np.ones(5 if on else 3, np.float32)},
    ("shape", "part.weight", None, "[2]", "[4]"): lambda on: {"weight": jnp.ones(4 if on else 2)},
    ("dtype", "y", None, "float32", "int32"): lambda on: {
        "y": np.ones(2, np.int32 if on else np.float32)
    },
    ("weak type", "w", None, "strong", "weak"): lambda on: {"w": WEAK if on else STRONG},
    ("static value", "scale", None, "2", "3"): lambda on: {"scale": 3 if on else 2},
    ("static value", "mode", None, "'up'", "'down'"): lambda on: {"mode": "down" if on else "up"},
    ("static value", "which", None, "[0, 1]", "[0, 2]"): lambda on: {
        "which": [0, 2] if on else [0, 1]
    },
    ("static value", "part.power", None, "1", "2"): lambda on: {"power": 2 if on else 1},
    ("tree structure", "tree['b']", None, "absent", "float32[2]"): lambda on: {
        "tree": {"a": FREE, "b": FREE} if on else {"a": FREE}
    },
    ("tree structure", "mask", None, "None", "float32[2]"): lambda on: {
        "mask": FREE if on else None
    },
    ("function", "fn", None, "k=1", "k=2"): lambda on: {"fn": closure(2 if on else 1)},
    ("committed", "z", None, None, None): lambda on: {"z": HELD if on else FREE},
    ("setting", "jax_enable_x64", None, "False", "True"): lambda on: {"x64": on},
    ("setting", "jax_default_matmul_precision", None, "None", "'highest'"): lambda on: {
        "precision": on
    },
}


def facets(*arguments):
    """Those of these arguments and settings."""
    assert set(arguments) <= {argument for _, argument, *_ in FACETS}
    return {facet for facet in FACETS if facet[1] in arguments}


@functools.cache
def closure(k):
    return lambda x: x * k


def call(program, which):
    given = {}
    for facet, make in FACETS.items():
        given |= make(facet in which)
    part = Part(given.pop("weight"), given.pop("power"))
    with ExitStack() as stack:
        if given.pop("x64"):
            stack.enter_context(jax.enable_x64(True))
        if given.pop("precision"):
            stack.enter_context(jax.default_matmul_precision("highest"))
        program(part=part, wide=np.ones(2, np.float64), rate=0.5, **given)


def program_of():
    @optimize(static="which")
    def f(
        x: Float[Array, "n"], y, w, scale, mode, which, tree, mask, fn, z, part, wide, rate: float
    ):
        return x, fn(w), z + z

    return f


def told(causes):
    """The facets of causes; where an array is held, in other words on each machine, does not
    count.
    """
    return {(cause.kind, cause.argument, cause.axis, *values(cause)) for cause in causes}


def values(cause):
    return (None, None) if cause.kind == "committed" else (cause.old, cause.new)


def reversed_if(facet, on):
    """The facet, from its old value to its new one, or back."""
    return facet if on else (*facet[:3], facet[4], facet[3])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    before=st.sets(st.sampled_from(sorted(FACETS, key=repr))),
    changed=st.sets(st.sampled_from(sorted(FACETS, key=repr)), min_size=1, max_size=3),
)
@examples(
    {"before": facets(), "changed": facets("x")},
    {"before": facets("x", "z"), "changed": facets("x", "y", "w")},
    {"before": facets("mode", "fn"), "changed": facets("part.weight", "part.power", "mode")},
    {"before": facets("tree['b']", "scale"), "changed": facets("tree['b']", "mask", "fn")},
    {"before": facets("jax_enable_x64", "w"), "changed": facets("scale", "which", "z")},
    {"before": facets("mask", "which"), "changed": facets("jax_default_matmul_precision", "mask")},
    {"before": set(FACETS), "changed": facets("jax_enable_x64", "z", "w")},
)
def test_exactly_what_differs_is_named(before, changed):
    """Whatever the rest of the call is."""
    program = program_of()
    after = before ^ changed
    call(program, before)
    call(program, after)
    assert len(program.stats.causes) == 2
    assert told(program.stats.causes[1]) == {
        reversed_if(facet, facet in after) for facet in changed
    }


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    calls=st.lists(
        st.sets(st.sampled_from(sorted(FACETS, key=repr)), max_size=2),
        min_size=3,
        max_size=5,
        unique_by=frozenset,
    )
)
@examples(
    {"calls": [facets(), facets("x", "scale"), facets("scale")]},
    {"calls": [facets("mode", "w"), facets(), facets("mode"), facets("mode", "mask")]},
    {"calls": [facets("z"), facets("jax_enable_x64"), facets("z", "tree['b']"), facets("fn", "y")]},
)
def test_of_several_calls_the_nearest_is_compared(calls):
    """As few things are named as there are to the nearest call before."""
    program = program_of()
    for which in calls:
        call(program, which)
    assert len(program.stats.causes) == len(calls)
    for i, found in enumerate(program.stats.causes[1:], 1):
        assert len(found) == min(len(calls[i] ^ before) for before in calls[:i])
        assert any(
            told(found) == {reversed_if(facet, facet in calls[i]) for facet in calls[i] ^ before}
            for before in calls[:i]
        )


@pytest.mark.parametrize("name", [name for name, _ in settings_of_programs()])
def test_each_setting_that_is_named_has_a_program_made(name):
    """By itself, whatever the function does: it is never named for nothing."""
    program = program_of_one()
    program(np.ones(3, np.float32))
    config = jax.config
    before = getattr(config, name)
    try:
        config.update(name, not before if isinstance(before, bool) else OTHER[name])
        program(np.ones(3, np.float32))
    finally:
        config.update(name, before)
    assert [(cause.kind, cause.argument) for cause in program.stats.causes[1]] == [
        ("setting", name)
    ]


OTHER = {
    "jax_default_device": jax.devices()[0],
    "jax_default_matmul_precision": "highest",
    "jax_explicit_x64_dtypes": "error",
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "raise",
    "jax_random_seed_offset": 1,
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.ones(3, np.float32), array(np.ones(3))),
        (np.ones(3, np.float32), np.ones(3, np.float64)),
        (array(np.ones(3)), array(np.zeros(3))),
        ([np.ones(3, np.float32)], [array(np.ones(3))]),
        ({"a": FREE, "b": FREE}, {"b": FREE, "a": FREE}),
    ],
)
def test_what_shares_a_program_has_no_cause(first, second):
    """NumPy's arrays and JAX's, other numbers, keys in another order."""
    program = program_of_one()
    program(first)
    program(second)
    assert len(program.stats.causes) == 1


def program_of_one():
    @optimize
    def f(tree):
        return jax.tree.map(lambda leaf: leaf + leaf, tree)

    return f
