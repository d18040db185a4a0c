"""`examples/surrogate` on eight devices, against one device and against shardings by hand."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest

import jitney
from examples.surrogate import by_hand
from examples.surrogate._expert import batch
from examples.surrogate._step import Recipe, start, step_of
from examples.surrogate._train import Run, train
from examples.surrogate.tests._small import RUN
from tests.devices.examples._collectives import sent

STEPS = 4
RECIPE = Recipe(steps=STEPS)


@functools.cache
def batches():
    return [batch(np.random.default_rng(seed), 8, 3, samples=6).arrays for seed in range(STEPS)]


def mesh(count=8):
    return jitney.mesh(data=count, devices=jax.devices()[:count])


def begin():
    model = Run(hidden=8, depth=1).model()
    return model, start(RECIPE, model)


def steps(step):
    """Loss and gradient norm of each step, and the last state."""
    state, said = begin(), []
    for data in batches():
        *state, metrics = jax.block_until_ready(step(*state, *data))
        said.append([float(metrics["loss"]), float(metrics["norm"])])
    return said, jax.tree.leaves(state)


@pytest.fixture(scope="module")
def one():
    return steps(step_of(RECIPE, pad=None))


@pytest.mark.parametrize("fsdp", [False, True])
def test_steps_on_eight_devices_are_those_on_one_and_send_what_is_sent_by_hand(one, fsdp):
    """Losses, gradient norms, weights and moments after four steps; the same collectives with the
    same bytes as with shardings by hand.
    """
    on = mesh()
    step = step_of(RECIPE, pad=None, fsdp=fsdp)
    with on:
        said, state = steps(step)
    np.testing.assert_allclose(said, one[0], rtol=2e-5)
    for ours, theirs in zip(state, one[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
    assert step.stats.traces == 1

    by, state_lies, _ = by_hand.program(RECIPE, *begin(), on.mesh, fsdp)
    arrays = jax.device_put(eqx.filter(begin(), eqx.is_array), state_lies)
    with on:
        ours = sent(step.lower(*begin(), *batches()[0]), on)
    theirs = sent(by.lower(arrays, *by_hand.padded(False, *batches()[0])), on)
    assert ours == theirs
    kinds = {kind for kind, *_ in ours}
    assert kinds == ({"all-reduce", "all-gather"} if fsdp else {"all-reduce"})
    for data in batches():
        arrays, metrics = jax.block_until_ready(by(arrays, *by_hand.padded(False, *data)))
    np.testing.assert_allclose([metrics["loss"], metrics["norm"]], said[-1], rtol=1e-6)
    for hand, mine in zip(jax.tree.leaves(arrays), state, strict=True):
        assert mine.sharding.is_equivalent_to(hand.sharding, hand.ndim)
        np.testing.assert_allclose(mine, hand, rtol=1e-4, atol=1e-7)


def test_moments_lie_as_their_weights():
    """With `fsdp`, each moment of AdamW is cut as the weight that it is of."""
    model, opt = begin()
    with mesh():
        model, opt, _ = jax.block_until_ready(
            step_of(RECIPE, pad=None, fsdp=True)(model, opt, *batches()[0])
        )
    moments = opt[1][0]
    for tree in (moments.mu, moments.nu):
        for weight, moment in zip(jax.tree.leaves(model), jax.tree.leaves(tree), strict=True):
            assert moment.sharding.is_equivalent_to(weight.sharding, weight.ndim)
    assert not model.first.weight.is_fully_replicated


def test_a_run_goes_on_with_other_devices(tmp_path):
    """Padded and donated: two devices with `fsdp`, broken off, then one: loss, gradient norm and
    weights of one device throughout.
    """
    on = mesh(2)

    def broken(done, loss):
        if done == 2:
            raise KeyboardInterrupt

    with on, pytest.raises(KeyboardInterrupt):
        train(RUN, tmp_path / "run", every=2, progress=broken, fsdp=True)
    resumed, unbroken = train(RUN, tmp_path / "run", every=2), train(RUN)
    np.testing.assert_allclose(resumed.history, unbroken.history, rtol=2e-5)
    for ours, theirs in zip(*map(jax.tree.leaves, (resumed.model, unbroken.model)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
