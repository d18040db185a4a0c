"""Trials of `auto`: what they run is what calls run, and they wait for nothing else."""

import threading
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import tests._machine
from jitney import optimize
from jitney._program.auto.auto_calls import AutoCalls
from jitney._program.runners.workers.parts import PartialResult
from tests.program.auto.test_auto_calls import AUTO, LONG, MANY, W, auto_line, by_hand, residual

ALONE = {"64 at a time": 0.1, "64 at a time in threads": 0.5}


@pytest.fixture
def copied(monkeypatch):
    """Rows that are copied into one array of the result, each by its part."""
    rows = []
    add = PartialResult.add

    def counted(result, number, part):
        rows.append(len(part))
        add(result, number, part)

    monkeypatch.setattr(PartialResult, "add", counted)
    return rows


@pytest.fixture
def alone(monkeypatch, copied):
    """Rows that each run with one worker copied, and its results."""
    runs = []
    run = AutoCalls.run_alone

    def counted(calls, way, arrays):
        before = len(copied)
        out = run(calls, way, arrays)
        runs.append((len(copied) - before, arrays, out))
        return out

    monkeypatch.setattr(AutoCalls, "run_alone", counted)
    return runs


def test_a_trial_with_one_worker_copies_no_more_than_a_call(alone, machine, copied):
    """Nothing, where a call in that way is one program that computes all elements."""
    machine.rates = ALONE
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        f(W, LONG)
    assert auto_line(f, W, LONG).startswith("64 at a time: ")
    assert alone
    assert [rows for rows, _, _ in alone] == [0] * len(alone)

    copied.clear()
    f(W, LONG)
    assert copied == []


def test_threads_copy_in_a_trial_as_in_a_call(machine, copied):
    """Each part copies its own rows, once."""
    machine.rates = {"64 at a time in threads": 0.1}
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        f(W, LONG)
    assert auto_line(f, W, LONG).startswith("64 at a time in threads: ")
    of_trials = [*copied]
    copied.clear()
    f(W, LONG)
    assert copied == [320, 320]
    assert 320 in of_trials


def test_parts_in_turn_compute_all_rows(alone, machine):
    """The parts of a run with one worker have the rows of a slice, each in its place."""
    machine.rates = ALONE
    f = optimize(**AUTO)(residual)
    for _ in range(MANY):
        f(W, LONG)
    _, (w, rows), parts = alone[0]
    assert len(parts) == 2
    np.testing.assert_allclose(np.concatenate(parts), by_hand(w, rows), rtol=1e-6, atol=1e-5)


def test_a_check_fails_in_a_call_whose_way_was_tried_with_one_worker(alone, machine):
    """The parts in turn look at no check; the call does, in Equinox's words."""
    machine.rates = ALONE

    def checked(y: Float[Array, "n"]) -> Float[Array, "n"]:
        y = eqx.error_if(y, y[0] > 1e6, "too much")
        return jnp.exp(y)

    f = optimize(**AUTO)(checked)
    rows = np.zeros_like(LONG)
    for _ in range(MANY):
        f(rows)
    assert alone
    rows[-1] = 1e7
    with pytest.raises(RuntimeError, match="too much"):
        f(rows)


def test_a_call_with_a_trial_waits_for_its_slice_alone(machine, monkeypatch):
    """A call that tries a way returns before the device is done; the one that decides waits."""
    wait = jax.block_until_ready
    # The machine without a clock waits for each run; what the trial waits for is seen here.
    monkeypatch.setattr(tests._machine, "jax", SimpleNamespace(block_until_ready=wait))
    waited, here = [], threading.get_ident()

    def seen(tree):
        if threading.get_ident() == here:  # another thread times calls
            waited.extend(jax.tree.leaves(tree))
        return wait(tree)

    monkeypatch.setattr(jax, "block_until_ready", seen)
    machine.rates = {"64 at a time": 0.1}
    f = optimize(**AUTO)(residual)
    f(W, LONG)  # a call that traces waits, with and without `auto`
    tried = 0
    for _ in range(MANY):
        waited.clear()
        before = len(machine.tried)
        out = f(W, LONG)
        if "learns" not in auto_line(f, W, LONG):
            break
        tried += len(machine.tried) > before
        assert not any(out is each for each in waited)
    assert tried > 1
    assert any(out is each for each in waited)
