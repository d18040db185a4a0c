"""Python that looks at a size in code that the body does not name. To list what is in reach of its
names gave wrong numbers for half of these; the code that runs is observed instead.
"""

import functools
import importlib
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from tests.axes import _hidden

Scalar = Float[Array, ""]
SIZES = (3, 5, 11, 60, 1)


MODULES = [_hidden]


def called(space, x):
    return space.hidden(x)


def handed_on(x):
    return called(_hidden, x)


def in_a_list(x):
    return called(MODULES[0], x)


def by_attrgetter(x):
    return operator.attrgetter("hidden")(_hidden)(x)


def by_methodcaller(x):
    return operator.methodcaller("hidden", x)(_hidden)


def by_import(x):
    return importlib.import_module("tests.axes._hidden").hidden(x)


@functools.wraps(jnp.sin)
def renamed(x):
    return _hidden.hidden(x)


def by_another_name(x):
    return renamed(x)


def sized(op, x):
    n = x.shape[0]
    return x * (float(n % 7) if op.is_(type(n), int) else 3.0)


def by_an_operator(x):
    return sized(operator, x)


mapped = jax.vmap(_hidden.hidden)


def in_vmap(x):
    return mapped(x[None])[0]


@pytest.mark.filterwarnings("ignore::jitney.errors.PaddingWarning")
@pytest.mark.core("handed_on", "by_attrgetter")
@pytest.mark.parametrize(
    "inner",
    [
        handed_on,
        in_a_list,
        by_attrgetter,
        by_methodcaller,
        by_import,
        by_another_name,
        by_an_operator,
        in_vmap,
    ],
    ids=lambda f: f.__name__,
)
def test_padded_calls_are_those_of_plain_jax(inner):
    def total(x: Float[Array, "n"]) -> Scalar:
        return jnp.sum(inner(x))

    padded = optimize(pad={"n": [64]})(total)
    for n in SIZES:
        x = np.arange(1, n + 1, dtype=np.float32)
        np.testing.assert_array_equal(padded(x), total(x))
