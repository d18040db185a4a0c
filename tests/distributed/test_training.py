"""Training in several processes: killed, and resumed by others, against a run that nobody broke."""

import shutil

import equinox as eqx
import jax
import numpy as np
import pytest

import jitney
from tests._patience import patience

from ._jobs import OPTIMISER, begun, rows
from ._processes import start

STEPS = 6


def alone(model, state, step, steps):
    """The losses of plain JAX on one device."""

    @eqx.filter_jit
    def update(model, state, x):
        value, grad = eqx.filter_value_and_grad(
            lambda model: jax.numpy.mean((jax.vmap(model)(x) - jax.numpy.sin(x)) ** 2)
        )(model)
        change, state = OPTIMISER.update(grad, state)
        return eqx.apply_updates(model, change), state, value

    losses = []
    with jax.numpy_dtype_promotion("standard"):  # optax divides by a count
        for i in range(step, steps):
            model, state, value = update(model, state, rows(i))
            losses.append(float(value))
    return losses


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of two processes that loses one at its fifth step, and what four processes made of its
    checkpoint.
    """
    folder = tmp_path_factory.mktemp("runs")
    cache = {"JITNEY_CACHE_DIR": str(folder / "cache")}
    broken = start(
        "train", 2, folder=str(folder / "a"), steps=1000, victim=1, at=5, grace=2.0, env=cache
    )
    shutil.copytree(folder / "a", folder / "b")
    resumed = start(
        "train", 4, devices=1, folder=str(folder / "a"), steps=STEPS, spread=True, env=cache
    )
    again = start("train", 2, folder=str(folder / "b"), steps=STEPS, env=cache)
    return folder, broken, resumed, again


def test_the_survivor_stops(runs):
    """Soon, with a sentence that says which process is gone."""
    _, (survivor, victim), _, _ = runs
    assert survivor.code not in (0, -1000)
    assert survivor.seconds - victim.seconds < patience(10)
    assert "process 1 has stopped: its connection is cut" in survivor.err


def test_others_go_on_from_the_checkpoint(runs):
    """Two processes, or four, each reading its part; the losses are those of an unbroken run of
    plain JAX on one device.
    """
    expected = alone(*begun(), 0, STEPS)
    for run in runs[2:]:
        for process in run:
            assert process.code == 0, process.err
            assert process["resumed"] == 4
            np.testing.assert_allclose(process["losses"], expected[4:], rtol=1e-5)
    assert {process["local"] for process in runs[2]} == {4}


def test_one_process_goes_on_too(runs):
    """On one device, from what four had written."""
    step, (model, state) = jitney.processes.Checkpoints(runs[0] / "a").restore(begun(), step=4)
    np.testing.assert_allclose(
        alone(model, state, step, STEPS), alone(*begun(), 0, STEPS)[4:], rtol=1e-5
    )
    step, _ = jitney.processes.Checkpoints(runs[0] / "a").restore(begun())
    assert step == STEPS


def test_the_step_is_compiled_once_in_each_process(runs):
    """Process 0 finds it in the persistent cache that a run of the same kind has left."""
    _, _, resumed, again = runs
    assert all(process["traces"] == 1 for process in (*resumed, *again))
    assert again[0]["hits"] >= 1


def test_a_save_that_is_cut_leaves_the_one_before(tmp_path):
    """The process is killed while it writes; what was there is there, and a later save goes on."""
    (process,) = start("cut", 1, folder=str(tmp_path))
    assert process.code == -9, process.err
    checkpoints = jitney.processes.Checkpoints(tmp_path)
    step, tree = checkpoints.restore({"w": np.zeros(1 << 20)})
    assert step == 1
    assert tree["w"][-1] == 1.0
    checkpoints.save(2, {"w": np.full(1 << 20, 3.0)})
    assert checkpoints.restore({"w": np.zeros(1 << 20)})[1]["w"][0] == 3.0
