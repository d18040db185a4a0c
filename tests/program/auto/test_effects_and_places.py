"""`auto` beside ordered effects, on a GPU, over several processes, and by bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._program.runners.workers import worker_calls
from tests.program.auto.test_auto_calls import (
    AUTO,
    FAST_64,
    LONG,
    MANY,
    ROWS,
    W,
    auto_line,
    by_hand,
    residual,
)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_ordered_io_callbacks_of_a_jacobian_are_called_once_each_and_in_order(machine, mode):
    """Of a call of a hundred directions, of which 16 at a time would be the quickest by far: a
    trial would call them again, and so would chunks of directions.
    """
    machine.rates = {"16 directions at a time": 0.1, "64 directions at a time": 0.5}
    w = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32) / 10
    seen = []

    def tells(x: Float[Array, "n"], step: Float[Array, ""]) -> Float[Array, "n"]:
        for name in ("before", "between", "after"):
            io_callback(
                lambda at, name=name: seen.append((name, int(at))), None, step, ordered=True
            )
            x = jnp.sin(w @ x)
        return x

    def by_hand(x):
        slopes, x, matrix = np.eye(100), np.float64(x), np.float64(w)
        for _ in range(3):
            slopes = np.cos(matrix @ x)[:, None] * (matrix @ slopes)
            x = np.sin(matrix @ x)
        return slopes

    f = jitney.lazy_derivatives(wrt="x", mode=mode)(optimize(auto=True)(tells)).jacobian
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    for step in range(MANY):
        x[0] = step
        out = f(x.copy(), np.float32(step))
        np.testing.assert_allclose(out, by_hand(x), rtol=1e-3, atol=1e-4)
    jax.effects_barrier()
    each = ("before", "between", "after")
    assert seen == [(name, step) for step in range(MANY) for name in each]
    assert machine.tried == []
    assert "io_callback" in auto_line(f, x, np.float32(0))


def test_an_ordered_io_callback_within_memory_is_called_once_in_each_call(machine):
    """Of a call that fits into `memory`, so that nothing is cut."""
    seen = []

    def writes(x: Float[Array, "n"]) -> Float[Array, ""]:
        io_callback(lambda value: seen.append(float(value)), None, x[0], ordered=True)
        return jnp.mean(jnp.sin(x) * jnp.exp(-x * x))

    f = optimize(auto=True, memory="1GiB")(writes)
    x = np.linspace(0, 1, 40_000, dtype=np.float32)
    want = np.mean(np.sin(np.float64(x)) * np.exp(-(np.float64(x) ** 2)))
    for number in range(6):
        x[0] = number  # one element of 40,000
        np.testing.assert_allclose(f(x.copy()), want, rtol=1e-4)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert machine.tried == []


def test_an_io_callback_of_each_element_is_called_once_for_each(machine):
    """A trial, or a part whose elements are computed twice, would call it again."""
    machine.rates = FAST_64
    seen = []

    def writes(y: Float[Array, "n"], step: Float[Array, ""]) -> Float[Array, "n"]:
        io_callback(lambda value, at: seen.append((int(at), float(value))), None, y[0], step)
        return jnp.sin(y)

    f = optimize(**AUTO)(writes)
    for step in range(MANY):
        np.testing.assert_allclose(f(LONG, np.float32(step)), np.sin(LONG), rtol=1e-5, atol=1e-6)
    jax.effects_barrier()
    rows = [float(value) for value in LONG[:, 0]]
    assert sorted(seen) == sorted((step, value) for step in range(MANY) for value in rows)
    assert machine.tried == []


def test_an_ordered_debug_callback_is_called_once_in_each_call(machine):
    """A trial would call it again."""
    seen = []

    def tells(x: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.callback(lambda value: seen.append(float(value)), x[0], ordered=True)
        return jnp.sin(x) * jnp.sum(x)

    f = optimize(auto=True)(tells).jacobian
    for number in range(6):
        f(np.arange(40, dtype=np.float32) + number)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert machine.tried == []


def test_several_processes_stay_whole(machine, monkeypatch):
    """Each would choose for itself, and their programs must be the same."""
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    machine.rates = FAST_64
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-5)
    assert machine.tried == []
    assert auto_line(f, W, ROWS) == "whole, since each of several processes would choose for itself"


def test_a_gpu_takes_the_width_alone(machine, monkeypatch):
    """Its threads would wait for one device: widths in one thread are tried, and one is taken."""
    monkeypatch.setattr(worker_calls, "default_platform", lambda: "gpu")
    machine.rates = {"64 at a time": 0.1, "64 at a time in threads": 0.01}
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        f(W, LONG)
    assert auto_line(f, W, LONG).startswith("64 at a time: ")
    assert not [way for way in machine.tried if "threads" in way or "devices" in way]


@pytest.mark.parametrize("chosen", ["64 at a time", "whole in threads"])
def test_bits_change_once_when_the_choice_falls(machine, chosen):
    """Before, those of `jax.jit(jax.vmap(...))`; from the call that decides on, those of the
    options by hand.
    """
    a = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)

    def body(y: Float[Array, "n"]) -> Float[Array, "m"]:
        return jnp.tanh(a @ y) / jnp.sum(jnp.exp(y))

    machine.rates = {chosen: 0.1}
    options = {"workers": 2} if "threads" in chosen else {"chunk": {"row": 64}}
    whole = np.asarray(jax.jit(jax.vmap(body))(LONG))
    hand = np.asarray(optimize(vmap="row", **options)(body)(LONG))
    f = optimize(**AUTO)(body)
    fell = False
    for _ in range(MANY):
        out = f(LONG)
        fell = fell or "learns" not in auto_line(f, LONG)
        np.testing.assert_array_equal(out, hand if fell else whole)
    assert auto_line(f, LONG).startswith(f"{chosen}: ")
