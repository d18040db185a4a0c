"""Random programs, put together from the families of rules: padded, in chunks, and as they are,
forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitney._axes import Refused, plan_passes, run_chunked, trace
from tests._examples import examples
from tests.axes import _cases as cases
from tests.axes.test_padded import GARBAGE, agree, drawn, run_of

pytestmark = pytest.mark.sweep
LOW, HIGH = 5, 8
# what values have: the axis, the axis and another, neither, the other
V, M, S, K = "n", "n k", "", "k"


@dataclass(frozen=True)
class Part:
    """One operation: what it takes and makes, and whether a gradient goes through it."""

    takes: tuple[str, ...]
    makes: str
    fn: Callable[..., Any]


def tame(x):
    """Keep values and slopes near one, so that rounding does not grow from part to part."""
    return jnp.tanh(x / 2)


def scanned(x, reverse):
    return jax.lax.scan(lambda c, a: ((c + a) / 2, jnp.tanh(c * a)), x[0] * 0, x, reverse=reverse)[
        1
    ]


def branch(x, s):
    return jax.lax.cond(s > 0, lambda: jnp.sin(x), lambda: jnp.cumsum(x) / 4)


def rounds(x):
    return jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c + jnp.mean(x)), jnp.float32(0))


@jax.custom_jvp
def softened(x):
    return jnp.logaddexp(x, 0)


softened.defjvp(
    lambda primals, tangents: (softened(*primals), jax.nn.sigmoid(primals[0]) * tangents[0])
)

SIMPLE = {
    "sin": jnp.sin,
    "negative": jnp.negative,
    "bell": lambda x: jnp.exp(-(x**2)),
    "softened": softened,
}
JOINS = {"add": jnp.add, "multiply": jnp.multiply, "maximum": jnp.maximum}
SUMMARIES = {
    "mean": jnp.mean,
    "max": jnp.max,
    "min": jnp.min,
    "variance": jnp.var,
    "sum": lambda x: jnp.sum(x) / 8,
}
PARTS = {
    # Elementwise, comparisons, selections, conversions, types of other kinds.
    **{
        f"{name} of {kind or 'a number'}": Part((kind,), kind, fn)
        for kind in (V, M, S)
        for name, fn in SIMPLE.items()
    },
    **{
        f"{name} of {kind or 'numbers'}": Part((kind, kind), kind, fn)
        for kind in (V, M, S, K)
        for name, fn in JOINS.items()
    },
    "where": Part((V, V), V, lambda x, y: jnp.where(x > y, x, y * 2)),
    "through ints": Part(
        (V,), V, lambda x: jnp.floor(x * 4).astype(jnp.int32).astype(jnp.float32) / 4
    ),
    "clip": Part((M,), M, lambda x: jnp.clip(x, -0.5, 0.5)),
    "places modulo 3": Part(
        (V,), V, lambda x: x / (1 + jnp.abs(x)) + (jnp.arange(x.shape[0]) % 3).astype(jnp.float32)
    ),
    # Between the shapes.
    "outer product": Part((V, K), M, lambda x, w: x[:, None] * w),
    "add a row": Part((M, K), M, lambda x, w: x + w),
    "times a number": Part((V, S), V, lambda x, s: x * s),
    "row less a number": Part((K, S), K, lambda w, s: w - s),
    "transposed twice": Part((M,), M, lambda x: x.T.reshape(x.T.shape).T),
    "a column": Part((M,), V, lambda x: x[:, 1]),
    "max of rows": Part((M,), V, lambda x: jnp.max(x, axis=1)),
    "sort of rows": Part((M,), M, lambda x: jnp.sort(x, axis=1)),
    "softmax of rows": Part((M,), M, lambda x: jax.nn.softmax(x, axis=1)),
    "turned rows": Part((M,), M, lambda x: jnp.concatenate([x[:, 1:], x[:, :1]], axis=1)),
    # Reductions, of one level and more.
    **{name: Part((V,), S, fn) for name, fn in SUMMARIES.items()},
    "log-sum-exp": Part((V,), S, lambda x: jax.nn.logsumexp(x)),
    "product": Part((V,), S, lambda x: jnp.prod(1 + x / 8)),
    "argmax": Part((V,), S, lambda x: jnp.argmax(x).astype(jnp.float32) / 8),
    "any": Part((V,), S, lambda x: jnp.any(x > 0.9).astype(jnp.float32)),
    **{
        f"{name} of columns": Part((M,), K, partial(fn, axis=0))
        for name, fn in SUMMARIES.items()
        if name in ("mean", "max", "variance")
    },
    "softmax": Part((V,), V, jax.nn.softmax),
    "centred": Part((M,), M, lambda x: x - x.mean(0)),
    # Products.
    "dot": Part((V, V), S, lambda x, y: x @ y / 8),
    "matrix times row": Part((M, K), V, lambda x, w: x @ w),
    "vector times matrix": Part((V, M), K, lambda x, y: x @ y / 8),
    "Gram diagonal": Part((M, M), K, lambda x, y: jnp.diag(x.T @ y) / 8),
    # Orders and places.
    "sort": Part((V,), V, jnp.sort),
    "by argsort": Part((V,), V, lambda x: x[jnp.argsort(x)]),
    "backwards": Part((V,), V, lambda x: x[::-1]),
    "flip": Part((M,), M, lambda x: jnp.flip(x, 0)),
    "first less last": Part((V,), S, lambda x: x[0] - x[-1]),
    "roll": Part((V,), V, lambda x: jnp.roll(x, 1)),
    # Cumulative, loops, branches.
    "cumulative sum": Part((V,), V, lambda x: jnp.cumsum(x) / 8),
    "cumulative max from the end": Part((V,), V, lambda x: jax.lax.cummax(x, reverse=True)),
    "cumulative sum of columns": Part((M,), M, lambda x: jnp.cumsum(x, axis=0) / 8),
    "scan": Part((V,), V, partial(scanned, reverse=False)),
    "scan from the end": Part((V,), V, partial(scanned, reverse=True)),
    "branch": Part((V, S), V, branch),
    "rounds": Part((V,), S, rounds),
    "checkpoint": Part((V,), V, jax.checkpoint(lambda x: jnp.sin(x) * jnp.mean(x))),
    "jit": Part((V,), V, jax.jit(lambda x: x * jnp.max(x))),
}
GARBAGES = st.sampled_from([np.nan, np.inf, -np.inf, 1e30])
SHAPES = [(("n",), np.float32), (("n",), np.float32), (("n", 3), np.float32), ((3,), np.float32)]


@st.composite
def programs(draw):
    """A program of a few parts, each of values that are there: the names of the parts, and the
    values that each takes.
    """
    kinds = [V, V, M, K]
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        fitting = [
            name for name, part in PARTS.items() if all(kind in kinds for kind in part.takes)
        ]
        chosen = draw(st.sampled_from(fitting))
        # The newest values are the likelier ones, so that parts stand upon each other.
        operands = tuple(
            draw(st.sampled_from([i for i, k in enumerate(kinds) if k == kind][-2:]))
            for kind in PARTS[chosen].takes
        )
        steps.append((chosen, operands))
        kinds.append(PARTS[chosen].makes)
    return tuple(steps)


def run(steps, x, y, m, w):
    """All that the parts make."""
    values = [x, y, m, w]
    for name, operands in steps:
        values.append(tame(PARTS[name].fn(*(values[i] for i in operands))))
    return values[4:]


def loss(steps, *arrays):
    return sum(jnp.sum(value * (1 + i)) / 8 for i, value in enumerate(run(steps, *arrays)))


def case_of(steps, backward):
    """The values of a program, and its gradient."""
    gradient = jax.grad(partial(loss, steps), argnums=(0, 2, 3))
    fn = (
        (lambda *arrays: (run(steps, *arrays), gradient(*arrays)))
        if backward
        else partial(run, steps)
    )
    return cases.Case("generated", fn, SHAPES, 2e-4)


def agrees_in_chunks(case, n, chunk, exact, wants):
    ranges = {"d0": (n, n)}
    try:
        passes = plan_passes(
            trace(case.flat, lambda sizes: case.avals(sizes["d0"]), ranges).jaxpr, "d0", ranges
        )
    except Refused:
        return
    got = jax.jit(lambda *arrays: run_chunked(passes, arrays, n, chunk))(*exact)
    for a, b in zip(got, wants, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=case.tolerance, atol=case.tolerance)


def agrees(steps, backward, n, chunk, garbage):
    case = case_of(steps, backward)
    groups = drawn(case, n)
    try:
        run = run_of(case, LOW, HIGH)
    except Refused:
        pass
    else:
        agree(case, run, groups, HIGH, garbages=[{**GARBAGE, "f": garbage}])
    agrees_in_chunks(case, n, chunk, groups[n], *case.exact([*groups.values()]))


@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone(name):
    """Of each part, its values and its gradient."""
    takes = {V: 0, M: 2, K: 3}
    first = (("mean", (0,)),) if S in PARTS[name].takes else ()
    operands = tuple(4 if kind == S else takes[kind] for kind in PARTS[name].takes)
    agrees((*first, (name, operands)), True, 6, 2, np.nan)


# The arguments are the values 0 to 3, of the kinds V, V, M and K; what the first part makes is 4.
ORDERS = (
    ("by argsort", (0,)),
    ("roll", (4,)),
    ("cumulative max from the end", (5,)),
    ("sort", (6,)),
)
LEVELS = (
    ("softmax", (0,)),
    ("variance", (4,)),
    ("times a number", (4, 5)),
    ("log-sum-exp", (6,)),
    ("branch", (6, 7)),
)
BOTH_WAYS = (("scan", (0,)), ("scan from the end", (4,)), ("cumulative sum", (5,)), ("max", (6,)))
MATRICES = (
    *(("outer product", (0, 3)), ("flip", (4,)), ("softmax of rows", (5,))),
    *(("vector times matrix", (0, 6)), ("matrix times row", (6, 7))),
)
OWN_RULES = (
    *(("softened of n", (0,)), ("checkpoint", (4,)), ("jit", (5,))),
    *(("places modulo 3", (6,)), ("first less last", (7,))),
)
PLACES = (
    ("through ints", (1,)),
    ("where", (4, 0)),
    ("argmax", (5,)),
    ("any", (5,)),
    ("multiply of numbers", (6, 7)),
)


@settings(max_examples=25, deadline=None)
@given(
    steps=programs(),
    backward=st.booleans(),
    n=st.integers(LOW, HIGH),
    chunk=st.integers(1, 4),
    garbage=GARBAGES,
)
@examples(
    {"steps": ORDERS, "backward": False, "n": 5, "chunk": 4, "garbage": np.inf},
    {"steps": LEVELS, "backward": True, "n": 5, "chunk": 2, "garbage": np.nan},
    {"steps": BOTH_WAYS, "backward": False, "n": 7, "chunk": 3, "garbage": -np.inf},
    {"steps": MATRICES, "backward": True, "n": 8, "chunk": 4, "garbage": np.nan},
    {"steps": OWN_RULES, "backward": True, "n": 7, "chunk": 2, "garbage": -np.inf},
    {"steps": PLACES, "backward": False, "n": 6, "chunk": 1, "garbage": 1e30},
)
def test_any_program(steps, backward, n, chunk, garbage):
    """With NaN and infinity behind what is valid: equal, or refused."""
    agrees(steps, backward, n, chunk, garbage)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(
    steps=programs(),
    backward=st.booleans(),
    n=st.integers(LOW, HIGH),
    chunk=st.integers(1, 4),
    garbage=GARBAGES,
)
def test_very_many_programs(steps, backward, n, chunk, garbage):
    """The same for hours."""
    agrees(steps, backward, n, chunk, garbage)
