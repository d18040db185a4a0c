"""Sizes as expressions: which of them are largest at the largest sizes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jaxtyping import Array, Float

from jitney import optimize
from jitney._axes.dims import Extent
from jitney._extent import read
from tests._examples import examples

GROW = {
    "n": True,
    "2*n + m": True,
    "n*m": True,
    "n**2 + 3": True,
    "floordiv(n, 2)*m": True,
    "max(n - 5, 0)**2": True,
    "(n - 1)*(m - 1)": True,
    "(n - 5)**2": False,
    "floordiv(n - 5, 2)**2": False,
    "floordiv(n - 5, 2)*floordiv(m - 7, 2)": False,
    "(n - 5)*m": False,
    "min(n - 5, m)*(m - 7)": False,
    "m - n": False,
}
RANGES = {"n": (1, 6), "m": (1, 9)}


@pytest.mark.parametrize("text", GROW)
def test_which_sizes_grow(text):
    """A product of terms that may be negative may be larger at smaller sizes."""
    expression = read(text)
    ranges = {name: RANGES[name] for name in expression.names}
    assert Extent(expression).grows(ranges) == GROW[text]


def expressions():
    """Texts of sizes over `n` and `m`, as JAX writes them."""
    return st.recursive(
        st.sampled_from(["n", "m", "2", "3"]),
        lambda parts: st.one_of(
            st.builds("({} + {})".format, parts, parts),
            st.builds("({} - {})".format, parts, st.integers(0, 9)),
            st.builds("{}*{}".format, parts, parts),
            st.builds("({})**{}".format, parts, st.integers(1, 3)),
            st.builds("floordiv({}, {})".format, parts, st.integers(1, 4)),
            st.builds("max({}, {})".format, parts, parts),
            st.builds("min({}, {})".format, parts, parts),
            st.builds("({} - {})".format, parts, parts),
        ),
        max_leaves=6,
    )


@given(expressions(), st.integers(0, 4), st.integers(1, 6))
@examples(
    {"text": "(n - 5)**2", "low": 1, "length": 6},
    {"text": "floordiv(n - 5, 2)*floordiv(m - 7, 2)", "low": 1, "length": 6},
    {"text": "max((n - 3), 1)*(m + 2)", "low": 0, "length": 5},
    {"text": "(min(n, m) - 2)**3", "low": 0, "length": 6},
)
def test_any_size_that_grows_is_largest_at_the_largest(text, low, length):
    """Against all sizes of a small range."""
    expression = read(text)
    span = range(low, low + length)
    if Extent(expression).grows(dict.fromkeys(expression.names, (low, span[-1]))):
        top = expression.at({"n": span[-1], "m": span[-1]})
        assert all(expression.at({"n": n, "m": m}) <= top for n, m in itertools.product(span, span))


def squared(x: Float[Array, "n"]):
    return jnp.sum(jnp.ones(((x.shape[0] - 5) // 2) ** 2)) + 0 * jnp.sum(x)


def cut_in_front(x: Float[Array, "n"]):
    return jnp.cumsum(lax.pad(x, jnp.float32(0), ((x.shape[0] - 5, 9, 0),)))


@pytest.mark.filterwarnings("ignore::jitney.JitneyWarning")  # some sizes run exact
@pytest.mark.parametrize("body", [squared, cut_in_front])
def test_what_is_negative_at_small_sizes_is_not_cut_off(body):
    """At 1 of 6 the square of a negative half has four elements, and none at 6; a padding of -1
    in front drops an element.
    """
    padded = optimize(pad={"n": [6, 16]})(body)
    for n in (1, 2, 4, 6, 7, 16):
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(padded(x), body(x))


@pytest.mark.core("rolled")
@pytest.mark.parametrize(
    "joined", [lambda k: jnp.concatenate([k, k]), lambda k: jnp.roll(k, 1)], ids=["twice", "rolled"]
)
def test_random_keys_of_an_axis_are_joined(joined):
    """Keys have a dtype of their own, of which NumPy knows nothing."""

    def body(x: Float[Array, "n"]):
        keys = joined(jax.random.split(jax.random.key(0), x.shape[0]))
        return jnp.cumsum(jax.vmap(jax.random.normal)(keys))

    x = np.ones(5, np.float32)
    np.testing.assert_allclose(optimize(pad={"n": [8]})(body)(x), body(x), rtol=1e-6)
