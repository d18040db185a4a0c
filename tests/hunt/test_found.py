"""What the hunt has found, each as few lines as it was shrunk to: equal to plain `jax.jit`, padded and in chunks, or refused."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Shaped

from jitney import AxisError, JitneyWarning, optimize
from tests.hunt._judge import difference, leaves_of

KEY = jax.random.key(1)
ROWS = lax.ScatterDimensionNumbers((), (0,), (0,))


def numbers(n, dtype, most=7):
    return (np.arange(n) * 5 % most).astype(dtype)


def normal(x):
    return jax.random.normal(KEY, x.shape)


FOUND = {
    "a key made inside": (lambda x, i: jnp.nonzero(jax.random.randint(jax.random.key(3), x.shape, 0, 100), size=3), 7, "f4", "i4"),
    "a loop over what the size makes": (lambda x, i: jnp.interp(jnp.arange(1, len(x) + 1), np.arange(4), np.arange(4)), 6, "f4", "i4"),
    "a class of the size": (lambda x, i: (x > 0) & (x.shape[0].__class__ is int), 6, "f4", "i4"),
    "a maximum without infinity": (lambda x, i: (jnp.max(x), jnp.argmax(x), lax.cummax(x, reverse=True)), 7, jnp.float8_e4m3fn, "i4"),
    "a narrow literal": (lambda x, i: x[np.uint8(200)], 300, "u1", "u1"),
    "narrow places": (lambda x, i: (jnp.take(x, i[:3], mode="fill"), x[i]), 300, "f4", "u1"),
    "a slice at a narrow place": (lambda x, i: lax.dynamic_slice_in_dim(x, i[299], 1), 300, "f4", "u1"),
    "a scatter at narrow places": (lambda x, i: lax.scatter_max(x, i[:, None], x, ROWS), 4096, "i1", "i1"),
    "places that wrap": (lambda x, i: lax.argmin(x, 0, jnp.uint8), 4096, "u1", "i4"),
    "a sum in eight bits": (lambda x, i: jnp.sum(x), 1000, jnp.float8_e4m3fn, "i4"),
    "draws in a branch": (lambda x, i: lax.cond(jnp.sum(x) > 0, lambda: normal(x), lambda: x), 7, "f4", "i4"),
    "draws added up in a branch": (lambda x, i: x * lax.cond(i[0] < 9, lambda: normal(x).sum(), lambda: 0.0), 7, "f4", "i4"),
    "draws in a loop": (lambda x, i: lax.fori_loop(0, 3, lambda k, s: s + normal(x), x), 7, "f4", "i4"),
    "a mean in sixteen bits": (lambda x, i: jnp.mean(x * 0 + 1), 4096, jnp.bfloat16, "i4"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}, {"chunk": {"n": 300}}], ids=str)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name, options):
    """A refusal is a warning or an `AxisError`, never a number."""
    body, n, dtype, index = FOUND[name]

    def f(x: Shaped[Array, "n"], i: Shaped[Array, "n"]):
        return body(x, i)

    x, i = numbers(n, dtype), numbers(n, index, most=min(n, 120))
    with warnings.catch_warnings(), jax.numpy_dtype_promotion("standard"):
        warnings.simplefilter("ignore", JitneyWarning)
        try:
            got = optimize(**options)(f)(x, i)
        except AxisError:
            return
        assert difference(leaves_of(got), leaves_of(jax.jit(f)(x, i)), "close") is None
