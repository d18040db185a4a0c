"""Arrays of a trace in objects of plain classes: a result that holds one is refused, an attribute
that is read later is named.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

X = np.arange(3, dtype=np.float32)


class Counter:
    """A plain object with a number, or an array."""

    def __init__(self, total=0.0):
        self.total = total

    @jitney.optimize
    def add(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        self.total = self.total + jnp.sum(x)
        return 2 * self.total

    @jitney.optimize
    def parts(self, x: Float[Array, "n"]) -> Float[Array, ""]:
        self.kept = {"half": x / 2}
        return jnp.sum(self.kept["half"])


def test_a_result_with_an_array_inside_of_a_plain_object_is_refused():
    """JAX cannot take it out; the sentence names the class and the attribute."""
    f = jitney.optimize(lambda x: (x, Counter(jnp.sum(x))))
    with pytest.raises(
        jitney.errors.StaticError,
        match="the result is or holds a Counter, whose 'total' is or holds an array of the trace",
    ) as caught:
        f(X)
    assert caught.value.code == "J311"


def test_a_plain_object_without_arrays_is_a_result():
    """What it holds is what the body gave it."""
    x, counter = jitney.optimize(lambda x: (x + 1, Counter(2.0)))(X)
    np.testing.assert_array_equal(x, X + 1)
    assert counter.total == 2.0


def test_reading_what_a_trace_before_has_left_is_an_error_that_names_the_attribute():
    """With the fix, where JAX would name a file of jitney's."""
    counter = Counter()
    assert counter.add(X) == 6
    with pytest.raises(
        jitney.errors.TraceError,
        match=r"it reads 'Counter\.total', where a trace before this one has left an array",
    ) as caught:
        counter.add(X)
    assert caught.value.code == "J272"
    assert isinstance(caught.value.__cause__, jax.errors.UnexpectedTracerError)


def test_an_attribute_that_the_body_alone_reads_is_fine():
    """It is set before it is read, at every size."""
    counter = Counter()
    for size in (3, 5, 3, 5):
        assert counter.parts(np.ones(size, np.float32)) == size / 2


def test_un_jitted_such_an_object_is_a_result():
    """Its arrays have numbers then."""
    f = jitney.optimize(lambda x: Counter(2 * x))
    with jax.disable_jit():
        np.testing.assert_array_equal(f(X).total, 2 * X)
