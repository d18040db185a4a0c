"""A program with a number that is bound to the calling thread: it is done when the call returns,
and its operations are those of the program without.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jitney._jax.xla.calling_thread import in_calling_thread
from tests._arrays import array

X = array(np.linspace(0.9, 1.1, 300 * 300, dtype=np.float32).reshape(300, 300))


def long(x):
    """Some milliseconds, and a number."""
    y = jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(y @ x), x)
    return y, jnp.sum(y > 0, dtype=np.int32)


def bound(x):
    y, number = long(x)
    return y, in_calling_thread(number)


def test_result_is_there_when_the_call_returns():
    """No other thread computes it."""
    f = jax.jit(bound)
    f(X)
    for _ in range(3):
        y, number = f(X)
        assert y.is_ready()
        assert number.is_ready()


def test_numbers_are_the_same():
    """To the bit, negative ones too."""
    for ours, theirs in zip(jax.jit(bound)(X), jax.jit(long)(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for number in (0, 1, -1, 2**31 - 1, -(2**31)):
        assert jax.jit(in_calling_thread)(np.int32(number)) == number


def test_compiled_program_calls_no_python():
    """XLA drops the callback."""
    compiled = jax.jit(bound).lower(X).compile().as_text()
    plain = jax.jit(long).lower(X).compile().as_text()
    assert "callback" not in compiled
    assert compiled.count("custom-call") == plain.count("custom-call")
