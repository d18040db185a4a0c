"""Arrays of a trace in objects of plain classes: a result that holds one is refused, an attribute that is set to one is named."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

X = np.arange(3, dtype=np.float32)


class Counter:
    """A plain object with an array and a number."""

    def __init__(self, total=0.0):
        self.total = total
        self.last = None
        self.calls = 0

    @jitney.optimize
    def add(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        self.last = {"doubled": 2 * x}
        return jnp.sum(x)

    @jitney.optimize
    def restored(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        before, self.last = self.last, x
        total = jnp.sum(2 * self.last)
        self.last, self.calls = before, 1
        return total


def test_a_result_with_an_array_inside_of_a_plain_object_is_refused():
    """JAX cannot take it out; the sentence names the class and the attribute."""
    f = jitney.optimize(lambda x: (x, Counter(jnp.sum(x))))
    with pytest.raises(jitney.StaticError, match="the result is or holds a Counter, whose 'total' is an array of the trace") as caught:
        f(X)
    assert caught.value.code == "J311"


def test_a_plain_object_without_arrays_is_a_result():
    """What it holds is what the body gave it."""
    x, counter = jitney.optimize(lambda x: (x + 1, Counter(2.0)))(X)
    np.testing.assert_array_equal(x, X + 1)
    assert counter.total == 2.0


def test_an_attribute_that_is_set_to_an_array_of_the_trace_is_named_once():
    """With class and attribute, in the call that sets it; the result is right."""
    counter = Counter()
    with pytest.warns(jitney.JitneyWarning, match=r"it writes an array of the trace into 'Counter\.last'") as told:
        assert counter.add(X) == 3
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counter.add(X + 1) == 6


def test_an_attribute_that_is_put_back_is_not_named():
    """Nor one that is set to a number."""
    counter = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counter.restored(X) == 6
    assert counter.last is None


def test_un_jitted_such_an_object_is_a_result():
    """Its arrays have numbers then."""
    f = jitney.optimize(lambda x: Counter(2 * x))
    with jax.disable_jit():
        np.testing.assert_array_equal(f(X).total, 2 * X)
