"""Streams of `examples/homodyne` over eight devices, against one device and against `shard_map` and
`psum` by hand.
"""

import jax
import numpy as np
import pytest

import jitney
from examples.homodyne import Data, by_hand, in_memory, streamed
from examples.homodyne._fit import START, at_once
from examples.homodyne.model import Setup
from tests.devices.examples._collectives import sent

CHUNK = 800


def mesh():
    return jitney.mesh(points=8, devices=jax.devices()[:8])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    found = Data.make(tmp_path_factory.mktemp("homodyne"), 6_000, angles=3)
    assert found.pairs % 8  # a rest that the devices do not divide
    return found


@pytest.fixture(scope="module")
def products(data):
    with mesh():
        return streamed(data, chunk=CHUNK)(START)


def test_products_over_devices_are_those_of_one(data, products):
    """At once, and as by hand; sums in another order."""
    scale = np.sqrt(np.diag(products))
    for one in (in_memory(data)(START), by_hand.streamed(data, CHUNK, mesh().mesh)(START)):
        np.testing.assert_allclose(
            products / np.outer(scale, scale), one / np.outer(scale, scale), atol=1e-12
        )


@pytest.mark.usefixtures("products")
def test_a_step_sends_nothing_and_the_end_what_is_sent_by_hand(data):
    """One psum of the upper triangles of the products of each angle, but for that of the offset
    with itself: it is the same at each angle, which by hand is sent for each.
    """
    on, arrays = mesh(), {name: data.mapped(name) for name in ("t1", "t2", "measured")}
    with jax.enable_x64(True), on:
        entry, _ = at_once.abstract(
            (),
            {"vector": START, "setup": Setup(), "phi": data.phi.astype(np.float32), **arrays},
            None,
        )
        (steps,) = entry.streams.values()
        leaves = dict(
            zip(
                steps.passes.flat.takes,
                (leaf.abstract() for leaf in steps.stage.view.leaves),
                strict=True,
            )
        )
        values = {n: x for n, x in leaves.items() if n not in steps.passes.streamed}
        new, state = jax.eval_shape(steps.begin[0], values)
        state, chunk = (
            steps.laid.shard_carry(state),
            {n: steps._chunk_aval(n) for n in leaves if n not in values},
        )
        ours = [
            steps.step[0].lower(values | new, state, chunk, np.int32(0)),
            steps.join[0].lower(state),
        ]
        step, end = by_hand.programs(on.mesh)
        sums = jax.ShapeDtypeStruct((8, 3, 55), np.float64)
        piece = [
            jax.ShapeDtypeStruct(shape, np.float32) for shape in ((CHUNK,), (CHUNK,), (3, CHUNK))
        ]
        hand = [step.lower(sums, START, np.zeros(3), *piece), end.lower(sums)]
        assert sent(ours[0], on) == sent(hand[0], on) == {}
        assert sent(ours[1], on) == {("all-reduce", ("points",), (54 * 3 + 1) * 8, False): 1}
        assert sent(hand[1], on) == {("all-reduce", ("points",), 55 * 3 * 8, False): 1}
