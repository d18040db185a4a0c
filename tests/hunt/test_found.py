"""What the hunt has found, each as few lines as it was shrunk to: equal to plain `jax.jit`, padded
and in chunks, or refused.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxtyping import Array, Shaped

from jitney import JitneyWarning, optimize
from jitney.errors import AxisError
from tests._arrays import random_key
from tests.hunt._judge import difference, leaves_of

KEY = random_key(1)
ROWS = lax.ScatterDimensionNumbers((), (0,), (0,))


def numbers(n, dtype, most=7):
    return (np.arange(n) * 5 % most).astype(dtype)


def normal(x):
    return jax.random.normal(KEY, x.shape)


FOUND = {
    "a key made inside": (
        lambda x, i: jnp.nonzero(jax.random.randint(jax.random.key(3), x.shape, 0, 100), size=3),
        7,
        "f4",
        "i4",
    ),
    "a loop over what the size makes": (
        lambda x, i: jnp.interp(jnp.arange(1, len(x) + 1), np.arange(4), np.arange(4)),
        6,
        "f4",
        "i4",
    ),
    "a class of the size": (lambda x, i: (x > 0) & (x.shape[0].__class__ is int), 6, "f4", "i4"),
    "a maximum without infinity": (
        lambda x, i: (jnp.max(x), jnp.argmax(x), lax.cummax(x, reverse=True)),
        7,
        jnp.float8_e4m3fn,
        "i4",
    ),
    "an axis that is padded to": (
        lambda x, i: x + lax.pad(x[:1], 0.0, [(0, len(x) - 1, 0)]),
        8,
        "f4",
        "i4",
    ),
    "a narrow literal": (lambda x, i: x[np.uint8(200)], 300, "u1", "u1"),
    "narrow places": (lambda x, i: (jnp.take(x, i[:3], mode="fill"), x[i]), 300, "f4", "u1"),
    "a slice at a narrow place": (
        lambda x, i: lax.dynamic_slice_in_dim(x, i[299], 1),
        300,
        "f4",
        "u1",
    ),
    "a scatter at narrow places": (
        lambda x, i: lax.scatter_max(x, i[:, None], x, ROWS),
        4096,
        "i1",
        "i1",
    ),
    "places that wrap": (lambda x, i: lax.argmin(x, 0, jnp.uint8), 4096, "u1", "i4"),
    "a sum in eight bits": (lambda x, i: jnp.sum(x), 1000, jnp.float8_e4m3fn, "i4"),
    "draws in a branch": (
        lambda x, i: lax.cond(jnp.sum(x) > 0, lambda: normal(x), lambda: x),
        7,
        "f4",
        "i4",
    ),
    "draws added up in a branch": (
        lambda x, i: x * lax.cond(i[0] < 9, lambda: normal(x).sum(), lambda: 0.0),
        7,
        "f4",
        "i4",
    ),
    "draws in each turn": (
        lambda x, i: lax.fori_loop(0, 3, lambda k, s: s + normal(x).sum(), 0.0),
        7,
        "f4",
        "i4",
    ),
    "one value in two roles": (
        lambda x, i: (lambda w: lax.scan(lambda c, a: (c * w + a, c), w, x))(jnp.sum(x) / 9),
        7,
        "f4",
        "i4",
    ),
    "a slope of one value in two roles": (
        lambda x, i: jax.grad(lambda w: lax.scan(lambda c, a: (c * w + a, None), w, x)[0])(
            jnp.sum(x) / 9
        ),
        7,
        "f4",
        "i4",
    ),
    "draws in a loop": (
        lambda x, i: lax.fori_loop(0, 3, lambda k, s: s + normal(x), x),
        7,
        "f4",
        "i4",
    ),
    "a mean in sixteen bits": (lambda x, i: jnp.mean(x * 0 + 1), 4096, jnp.bfloat16, "i4"),
}


@pytest.mark.core(
    "a sum in eight bits-{'pad*",
    "draws in a loop-{'pad*",
    "narrow places-{'pad*",
    "a maximum without infinity-{'pad*",
    "a loop over what the size makes-{'pad*",
    "one value in two roles-{'pad*",
    "a mean in sixteen bits-{'pad*",
)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize(
    "options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 2}}, {"chunk": {"n": 300}}], ids=str
)
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


@pytest.mark.core("array")
@pytest.mark.parametrize("rate", [0.5, np.float32(0.5)], ids=["number", "array"])
def test_what_a_derivative_returns_as_it_came(rate):
    """Under an outer derivative JAX returns arguments from the host that nothing changes as they
    are: filled ones are cut too.
    """

    def f(rate: float, x: Shaped[Array, "n"], w: Shaped[Array, "k"]):
        return rate, x, w * rate, x * 2

    def along(f, shapes, w):
        out = f(rate, numbers(7, "f4"), w)
        shapes += [np.shape(leaf) for leaf in out]
        return sum(jnp.sum(leaf) for leaf in out)

    shapes, w = [], np.ones(3, np.float32)
    got = jax.value_and_grad(lambda w: along(optimize(pad={"n": "pow2"})(f), shapes, w))(w)
    assert (
        difference(
            leaves_of(got), leaves_of(jax.value_and_grad(lambda w: along(f, [], w))(w)), "close"
        )
        is None
    )
    assert shapes == [(), (7,), (3,), (7,)]


@pytest.mark.core("<lambda>1-{'chunk*")
@pytest.mark.parametrize("options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 3}}], ids=str)
@pytest.mark.parametrize(
    "read",
    [
        lambda x, i, w: w[i],
        lambda x, i, w: x[np.array([0, 0, -1, 99, -30])],
        lambda x, i, w: x[i[:3] * 9],
    ],
)
def test_what_is_beyond_an_array_is_dropped_on_the_way_back(read, options):
    """JAX's `x[i]` reads the last element where `i` is beyond all of them, and gives it no
    gradient.
    """

    def f(x: Shaped[Array, "n"], i: Shaped[Array, "n"], w: Shaped[Array, "k"]):
        return jnp.sum(jnp.sin(read(x, i, w)))

    given = numbers(7, "f4"), numbers(7, "i4"), np.ones(3, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitneyWarning)
        got = jax.value_and_grad(optimize(**options)(f), (0, 2))(*given)
    assert (
        difference(leaves_of(got), leaves_of(jax.value_and_grad(f, (0, 2))(*given)), "close")
        is None
    )


@pytest.mark.rest
@pytest.mark.parametrize("options", [{"pad": {"n": "pow2"}}, {"chunk": {"n": 3}}], ids=str)
@pytest.mark.parametrize("count", [2, 7, 8])
def test_the_derivative_of_a_map_has_its_axes_where_they_are(count, options):
    """JAX takes the axis of what a rule made for where the function has it:
    `_axes/derivative.py`.
    """

    def f(w: Shaped[Array, "k"], x: Shaped[Array, "n k"]):
        return (
            *jax.lax.scan(lambda c, a: (c * 0.9 + a @ w, c), jnp.zeros((), x.dtype), x),
            jnp.tanh(w),
        )

    def total(f, w, x):
        return sum(
            jnp.sum(jnp.sin(leaf) * jnp.arange(1, leaf.size + 1).reshape(leaf.shape))
            for leaf in jax.vmap(f, (None, 0))(w, x)
        )

    given = numbers(3, "f4"), numbers(count * 21, "f4").reshape(count, 7, 3)
    with jax.numpy_dtype_promotion("standard"):
        got = jax.value_and_grad(lambda *at: total(optimize(**options)(f), *at), (0, 1))(*given)
        assert (
            difference(
                leaves_of(got),
                leaves_of(jax.value_and_grad(lambda *at: total(f, *at), (0, 1))(*given)),
                "close",
            )
            is None
        )


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_what_no_rule_makes_of_sizes_is_no_known_number(mode):
    """`rng_bit_generator` of a size: its numbers are read as positions, which the proof asks
    for.
    """

    def f(x: Shaped[Array, "n"]):
        bits = jax.lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), x.shape)[1]
        return bits.at[bits].get(mode=mode)

    x = numbers(2, "i1")
    with pytest.warns(JitneyWarning, match="'n' cannot be padded here"):
        got = optimize(pad={"n": "aligned"})(f)(x)
    assert got.tolist() == jax.jit(f)(x).tolist()
