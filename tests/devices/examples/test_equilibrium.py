"""Draws of `examples/equilibrium` on eight devices, against one device and against shardings by
hand.
"""

import jax
import numpy as np
import pytest

import jitney
from examples.equilibrium import by_hand
from examples.equilibrium._sweep import arguments, program, sweep
from examples.equilibrium.models.brock_mirman import MODEL, Params, Shocks, States
from tests.devices.examples._collectives import sent

ALPHA, BETA = np.random.default_rng(0).uniform((0.2, 0.8), (0.5, 0.98), (16, 2)).T
GIVEN = (MODEL, Params(ALPHA, BETA), States(-0.5), Shocks(0.1), 5)


def mesh():
    return jitney.mesh(draw=8, devices=jax.devices()[:8])


@pytest.mark.filterwarnings("ignore::examples.equilibrium.NotSettled")  # five dates on both sides
def test_draws_are_those_of_one_device():
    """Steady states, Jacobians and paths, to rounding; steady states as in closed form."""
    with mesh():
        many = sweep(*GIVEN)
    one = sweep(*GIVEN)
    assert many.converged.all()
    np.testing.assert_allclose(many.x[:, 0], np.log(ALPHA * BETA) / (1 - ALPHA), rtol=1e-10)
    for name in ("u", "x", "path_u", "path_x"):
        np.testing.assert_allclose(getattr(many, name), getattr(one, name), rtol=1e-12, atol=1e-14)
    for name, block in many.blocks.items():
        np.testing.assert_allclose(block, one.blocks[name], rtol=1e-12, atol=1e-14)


def test_they_send_what_is_sent_by_hand():
    """Whether any draw is not done, one byte, in each turn of Newton's two loops. The results are
    the same.
    """
    on = mesh()
    with jax.enable_x64(True), on:
        given = arguments(*GIVEN)
        draws, by = program(MODEL), by_hand.program(MODEL, on.mesh)
        ours = sent(draws.lower(*given), on)
        assert ours == sent(by.lower(*given), on) == {("all-reduce", ("draw",), 1, True): 2}
        pairs = zip(
            jax.tree.leaves(jax.block_until_ready(draws(*given))),
            jax.tree.leaves(jax.block_until_ready(by(*given))),
            strict=True,
        )
        for found, hand in pairs:
            assert found.sharding.is_equivalent_to(hand.sharding, hand.ndim)
            np.testing.assert_array_equal(found, hand)


def test_draws_that_the_devices_do_not_divide_are_refused():
    """With the sizes."""
    with (
        mesh(),
        pytest.raises(
            jitney.errors.MeshError, match="axis 'draw' of theta has size 12, which the 8 devices"
        ),
    ):
        sweep(MODEL, Params(ALPHA[:12], BETA[:12]), dates=3)
