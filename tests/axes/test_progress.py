"""`progress`: a bar that counts the chunks of a call, and costs nothing where it is off."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._jax.ticks import Ticks
from jitney._text import console

X = np.linspace(0.0, 1.0, 103, dtype=np.float32)


@pytest.fixture
def bars(monkeypatch):
    """Each bar that was opened: name, length, how far it went, and whether it is open."""
    seen = []

    @contextmanager
    def bar(name, total, done, size, *, of="chunks", each="rows"):
        own = {"name": name, "total": total, "done": done, "each": each, "is_open": True}
        own["moves"] = 0
        seen.append(own)

        def advance(count=1):
            own["done"] += count
            own["moves"] += 1

        yield advance
        own["is_open"] = False

    monkeypatch.setattr(console, "bar", bar)
    return seen


def spread(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """Two passes: the mean, then the rest."""
    return (x - jnp.mean(x)) ** 2


def last(x: Float[Array, "n"]) -> Float[Array, "n"]:
    """A pass from the end."""
    return jnp.cumsum(x[::-1])[::-1]


def fit(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sin(x) * 2


@pytest.mark.core("fits")
@pytest.mark.parametrize(
    ("body", "options", "chunks"),
    [
        (fit, {"vmap": "fit", "chunk": {"fit": 16}}, 7),
        (spread, {"chunk": {"n": 20}}, 12),
        (last, {"chunk": {"n": 20}}, 6),
        (spread, {"chunk": {"n": 103}}, 0),
    ],
    ids=["fits", "passes", "backward", "whole"],
)
def test_a_bar_counts_the_chunks_of_each_call(bars, body, options, chunks):
    """With the results of the function without it."""
    f = jitney.optimize(body, progress=True, **options)
    expected = jitney.optimize(body, **options)(X)
    for calls in (1, 2):
        np.testing.assert_array_equal(f(X), expected)
        jax.effects_barrier()
        assert len(bars) == (calls if chunks else 0)
    for bar in bars:
        assert bar == {
            "name": body.__name__,
            "total": chunks,
            "done": chunks,
            "each": "chunks",
            "is_open": False,
            "moves": chunks,
        }


def test_nothing_is_called_where_it_is_off(bars):
    """It is another program than that with a bar."""
    f = jitney.optimize(spread, chunk={"n": 20})
    f(X)
    jitney.optimize(spread, chunk={"n": 20}, progress=True)(X)
    jax.effects_barrier()
    assert len(bars) == 1


@pytest.mark.rest
def test_more_than_a_hundred_chunks_move_the_bar_a_hundred_times_at_most(bars):
    f = jitney.optimize(fit, vmap="fit", chunk={"fit": 16}, progress=True)
    f(np.zeros(16 * 333, np.float32))
    jax.effects_barrier()
    assert bars[0]["done"] == bars[0]["total"] == 333
    assert bars[0]["moves"] == 333 // 4


@pytest.mark.rest
def test_a_derivative_counts_its_chunks(bars):
    """The gradient of a sum over chunks, as without a bar."""

    def loss(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(w * x) ** 2)

    with_bar = jitney.optimize(loss, chunk={"n": 20}, progress=True)
    plain = jitney.optimize(loss, chunk={"n": 20})
    w = np.float32(0.3)
    expected = plain.grad(w, X, wrt="w")
    np.testing.assert_array_equal(with_bar.grad(w, X, wrt="w"), expected)
    jax.effects_barrier()
    assert bars
    assert not any(bar["is_open"] for bar in bars)
    np.testing.assert_allclose(jax.grad(with_bar)(w, X), expected, rtol=1e-6)


def test_a_call_that_fails_midway_leaves_the_next_one_its_own_bar(bars):
    """Its bar is closed, and the next one counts from its first chunk on."""
    ticks = Ticks("fit", 4)
    for at in (1, 2):
        ticks._tick(at)
    for at in (1, 2, 3, 4):
        ticks._tick(at)
    assert [(bar["done"], bar["is_open"]) for bar in bars] == [(2, False), (4, False)]
