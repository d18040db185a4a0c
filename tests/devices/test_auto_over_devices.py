"""`auto` over the CPU devices of one process: two of eight, and all eight."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._program.auto import choice_record
from jitney._program.runners.workers import device_parts
from tests._machine import Machine, run_by
from tests.program.auto.test_auto_calls import auto_line, learnt
from tests.program.auto.test_choice_record import fresh

DEVICES = "64 at a time over devices"
RATES = {"64 at a time": 0.5, "64 at a time in threads": 0.2, DEVICES: 0.1}
W = np.linspace(-1, 1, 5, dtype=np.float32)
ROWS = np.random.default_rng(0).normal(size=(640, 5)).astype(np.float32)
AUTO = {"vmap": "row", "auto": True}


def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return jnp.exp(-w * w) - y


def by_hand(w, y):
    return np.exp(-(np.float64(w) ** 2)) - y


@pytest.fixture
def machine(request, monkeypatch):
    """A machine without a clock, of so many cores, which are as many devices."""
    monkeypatch.setattr(choice_record, "folder", lambda _: None)
    it = Machine()
    it.rates, it.compiling = dict(RATES), 1e-3
    it.cores = getattr(request, "param", 2)
    with run_by(it):
        yield it


@pytest.mark.parametrize(("machine", "size"), [(2, 333), (8, 640)], indirect=["machine"])
def test_devices_are_taken_where_they_are_quickest(machine, size):
    """The result is that of the whole, of its type, and where the whole would be; the last part
    shares some elements with the part before it.
    """
    f = optimize(**AUTO)(residual)
    want = jax.jit(jax.vmap(residual, (None, 0)))(W, ROWS[:size])
    out = learnt(f, W, ROWS[:size])
    assert auto_line(f, W, ROWS[:size]).startswith(f"{DEVICES}: ")
    np.testing.assert_allclose(out, by_hand(W, ROWS[:size]), rtol=1e-6, atol=1e-6)
    assert (out.aval, out.sharding, out.committed) == (want.aval, want.sharding, want.committed)


@pytest.mark.parametrize("machine", [2, 8], indirect=True)
def test_devices_give_the_bits_of_threads(machine):
    """Each runs the program that a thread would run."""

    def last(y: Float[Array, "n"]) -> Float[Array, "n m"]:
        a = jnp.outer(jnp.sin(y), y) + 5 * jnp.eye(5, dtype=y.dtype)
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ a), a)

    f = optimize(**AUTO)(last)
    out = learnt(f, ROWS)
    assert auto_line(f, ROWS).startswith(DEVICES)
    threads = optimize(vmap="row", workers=len(device_parts.cpu_devices()), chunk={"row": 64})(last)
    np.testing.assert_array_equal(out, threads(ROWS))


def test_devices_are_left_where_threads_are_quicker(machine):
    """They are tried last, with the width that is best in threads."""
    machine.rates[DEVICES] = 0.3
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    assert machine.tried[-1] == DEVICES
    assert auto_line(f, W, ROWS).startswith("64 at a time in threads: ")


def test_exact_takes_devices_whose_bits_are_equal(machine):
    """Those of an elementwise body are."""
    f = optimize(vmap="row", auto="exact")(residual)
    want = jax.jit(jax.vmap(residual, (None, 0)))(W, ROWS)
    np.testing.assert_array_equal(learnt(f, W, ROWS), want)
    assert auto_line(f, W, ROWS).startswith(f"{DEVICES}: ")


def test_exact_leaves_devices_whose_bits_differ(machine, monkeypatch):
    """A result of devices that is a bit off is not taken."""
    run = device_parts.DeviceParts.run

    def off(self, parts, results):
        return jax.tree.map(lambda x: jnp.nextafter(x, jnp.inf), run(self, parts, results))

    monkeypatch.setattr(device_parts.DeviceParts, "run", off)
    f = optimize(vmap="row", auto="exact")(residual)
    want = jax.jit(jax.vmap(residual, (None, 0)))(W, ROWS)
    np.testing.assert_array_equal(learnt(f, W, ROWS), want)
    assert f"{DEVICES}: other bits" in auto_line(f, W, ROWS)


def checked(y: Float[Array, "n"]) -> Float[Array, "n"]:
    return eqx.error_if(y, y[0] > 100, "far")


def weak(y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.where(y[0] > 0, 1.0, 2.0)


def test_what_devices_cannot_run_is_said(machine):
    """A run-time check, a weak type, an array that was put on a device: threads run it."""
    calls = {
        "which run-time check": (checked, ROWS),
        "a result is not an array of the host": (weak, ROWS),
        "put on a device on purpose": (residual, W, jax.device_put(ROWS, jax.devices()[0])),
    }
    machine.rates = {"whole in threads": 0.5}
    for why, (body, *args) in calls.items():
        f = optimize(**AUTO, chunk={"row": 64})(body)
        learnt(f, *args)
        line = auto_line(f, *args)
        assert line.startswith("whole in threads: ")
        assert why in line


def test_devices_change_nothing_under_a_transform(machine):
    """Within the user's own `jit`, `grad` or `vmap` the body is one with the program around it."""
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    machine.runs.clear()
    want = jax.grad(lambda w: jax.vmap(residual, (None, 0))(w, ROWS).sum())(W)
    np.testing.assert_allclose(jax.grad(lambda w: f(w, ROWS).sum())(W), want, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(f)(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    two = jnp.stack([W, 2 * W])
    np.testing.assert_allclose(
        jax.vmap(f, (0, None))(two, ROWS)[1], by_hand(2 * W, ROWS), rtol=1e-6, atol=1e-6
    )
    assert not any("devices" in way for way, _ in machine.runs)


def test_the_whole_runs_within_a_mesh(machine):
    """The same devices may be a part of it."""
    f = optimize(**AUTO)(residual)
    learnt(f, W, ROWS)
    with jitney.mesh(rows=-1):
        inside = f(W, ROWS)
    np.testing.assert_allclose(inside, by_hand(W, ROWS), rtol=1e-6, atol=1e-6)


def test_a_record_of_devices_is_for_processes_that_have_them(machine, monkeypatch, tmp_path):
    """The next one with as many starts with it; another one learns, and says why."""
    monkeypatch.setattr(choice_record, "folder", lambda name: tmp_path / name)
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    machine.runs.clear()
    f = optimize(**AUTO)(fresh())
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert auto_line(f, W, ROWS).startswith(f"{DEVICES}, as an earlier process has measured")

    monkeypatch.setattr(device_parts, "cpu_devices", lambda: jax.devices()[:1])
    f = optimize(**AUTO)(fresh())
    f(W, ROWS)
    why = f"an earlier process has chosen {DEVICES}, and this process has one CPU device"
    assert auto_line(f, W, ROWS).endswith(why)
