"""Callbacks that hold a size: they are called at run time, with no size but the one they hold."""

from collections import deque
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney.errors import AxisError

RESULT = jax.ShapeDtypeStruct((), np.float32)


class Times:
    """A callable with the size in an attribute."""

    def __init__(self, size):
        self.size = size

    def __call__(self, s):
        return np.asarray(s * self.size, np.float32)


def in_a_closure(n):
    return lambda s: np.asarray(s * n, np.float32)


def compared(n):
    return lambda s: np.asarray(s if n == 5 else -s, np.float32)


def in_a_list(n):
    box = [n]
    return lambda s: np.asarray(s * box[0], np.float32)


def as_a_default(n):
    def inner(s, k=n):
        return np.asarray(s * k, np.float32)

    return lambda s: inner(s)


def in_a_partial(n):
    return partial(lambda k, s: np.asarray(s * k, np.float32), n)


def in_a_namespace(n):
    box = SimpleNamespace(inner=SimpleNamespace(n=n))
    return lambda s: np.asarray(s if box.inner.n == 5 else -s, np.float32)


def in_a_deque(n):
    box = deque([n])
    return lambda s: np.asarray(s if box[0] == 5 else -s, np.float32)


def in_an_array(n):
    box = np.array([n], object)
    return lambda s: np.asarray(s if box[0] == 5 else -s, np.float32)


def as_an_attribute(n):
    def made(s):
        return np.asarray(s if made.n == 5 else -s, np.float32)

    made.n = n
    return made


class Box:
    """A slot whose name Python mangles."""

    __slots__ = ("__n",)

    def __init__(self, n):
        self.__n = n

    def is_five(self):
        return self.__n == 5


def in_a_private_slot(n):
    box = Box(n)
    return lambda s: np.asarray(s if box.is_five() else -s, np.float32)


HOLDERS = [
    in_a_private_slot,
    in_a_namespace,
    in_a_deque,
    in_an_array,
    as_an_attribute,
    compared,
    in_a_closure,
    in_a_list,
    as_a_default,
    in_a_partial,
    Times,
]


def calling(made):
    def body(x: Float[Array, "n"]):
        return jax.pure_callback(made(x.shape[0]), RESULT, x.sum())

    return body


@pytest.mark.core("compared", "in_a_namespace")
@pytest.mark.parametrize("made", HOLDERS)
@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
def test_each_size_has_its_own(made):
    body = calling(made)
    f = optimize(pad={"n": "pow2"})(body)
    for n in (5, 6, 8):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), body(jnp.asarray(x)))


@pytest.mark.core("compared")
@pytest.mark.parametrize("made", HOLDERS)
def test_it_is_not_cut(made):
    f = optimize(chunk={"n": 4})(calling(made))
    with pytest.raises(AxisError, match="`pure_callback` holds the size in `callback`"):
        f(np.arange(9, dtype=np.float32))


def test_one_that_holds_other_numbers_is_padded():
    """One program for the bucket."""
    scale = 2.5

    def body(x: Float[Array, "n"]):
        return jax.pure_callback(lambda s: np.asarray(s * scale, np.float32), RESULT, x.sum())

    f = optimize(pad={"n": "pow2"})(body)
    for n in (5, 6, 8):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x), scale * x.sum())
    assert f.stats.compiles == 1
