"""What Python computes of a size: against plain `jax.jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney import optimize
from tests.axes._sizes import V


def pairs(x: V):
    return x.sum() / (x.shape[0] * (x.shape[0] - 1) / 2)


def shrunk(x: V):
    n = x.shape[0]
    return x * (1 - n / (n + 1))


def cubed(x: V):
    return x / (x.shape[0] ** 3 / 7)


def as_integer(x: V):
    return x.astype(jnp.int32) * (x.shape[0] * x.shape[0] // 70_000)


def in_a_loop_too(x: V):
    n = x.shape[0]
    return jax.lax.scan(lambda c, a: (c * (1 - 1 / n) + a / (n * n * n / 7), c), jnp.float32(0), x)


def in_a_branch(x: V):
    n = x.shape[0]
    return jax.lax.cond(x[0] > 0, lambda: x * (n / (n + 1)), lambda: x * (1 / n**3))


def in_half_precision(x: V):
    return x.astype(jnp.float16) * (1 / x.shape[0])


def in_calls(x: V):
    """Of a size that is a symbol, JAX's own jitted functions compute these: a remainder by what
    nearly divides it, a quotient.
    """
    n = x.shape[0]
    return x * (-n % (0.5 / 7)) + n // (0.1 / 7)


NUMBERS = [
    pairs,
    shrunk,
    cubed,
    as_integer,
    in_a_loop_too,
    in_a_branch,
    in_half_precision,
    in_calls,
]


@pytest.mark.core("pairs")
@pytest.mark.parametrize("fn", NUMBERS, ids=lambda fn: fn.__name__)
def test_numbers_made_of_a_size_are_pythons_when_padded(fn):
    """Python's integers have no end and its floats have 64 bits, at sizes beyond 32 bits too."""
    padded, plain = optimize(fn, pad={"n": "pow2"}), jax.jit(fn)
    for n in (300, 301, 60_000, 65_535):
        x = np.random.default_rng(n).normal(size=n).astype(np.float32)
        for got, want in zip(jax.tree.leaves(padded(x)), jax.tree.leaves(plain(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6 if fn is pairs else 1e-12)
    assert padded.stats.traces <= 4  # of two buckets: once to learn of the numbers, once with them


@pytest.mark.core("pairs")
@pytest.mark.parametrize(
    "fn",
    [pairs, shrunk, cubed, as_integer, in_half_precision, in_calls],
    ids=lambda fn: fn.__name__,
)
def test_numbers_made_of_a_size_are_pythons_in_chunks(fn):
    """The size is known there, and so is what Python made of it."""
    chunked, plain = optimize(fn, chunk={"n": 7000}), jax.jit(fn)
    x = np.random.default_rng(0).normal(size=60_000).astype(np.float32)
    np.testing.assert_allclose(chunked(x), plain(x), rtol=2e-5, atol=1e-6 if fn is pairs else 0)


def test_numbers_made_of_a_size_are_pythons_in_streams():
    """As in chunks, from the host."""
    x = np.random.default_rng(0).normal(size=60_000).astype(np.float32)
    got, _ = jitney.stream(optimize(pairs), x, chunk={"n": 7000}, progress=False)
    np.testing.assert_allclose(
        got, x.astype(np.float64).sum() / (60_000 * 59_999 / 2), rtol=1e-4, atol=1e-9
    )


def test_numbers_made_of_a_size_in_a_mapped_function_and_ahead_of_time():
    """Under `vmap`, and compiled before the first call."""
    padded = optimize(shrunk, vmap="row", pad={"n": "pow2"})
    padded.compile(sizes={"n": 300, "row": 2})
    x = np.random.default_rng(0).normal(size=(2, 301)).astype(np.float32)
    np.testing.assert_allclose(padded(x), x * np.float32(1 - 301 / 302), rtol=1e-6)
