"""What a body does besides its numbers happens as often as in plain JAX where devices share the
axis that is cut.
"""

import jax
import numpy as np
import pytest

import jitney
from jitney import optimize
from jitney.errors import AxisError
from tests.axes.test_effects import (
    ONCE,
    V,
    answered,
    answered_for_each,
    by_io,
    in_a_loop_that_carries,
    in_order,
    note,
    seen,
)

X = np.arange(1.0, 25.0, dtype=np.float32)
# from one device to the next
BODIES = [body for body in ONCE if body not in (answered_for_each, in_a_loop_that_carries)]
MESHES = {"one axis": {"data": 4}, "two axes": {"data": 4, "model": 2}}


@pytest.fixture(params=MESHES)
def mesh(request):
    sizes = MESHES[request.param]
    return jitney.mesh(**sizes, devices=jax.devices()[: int(np.prod(list(sizes.values())))])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_callbacks_happen_once_and_not_on_each_device(body, mesh):
    """What does not touch the axis is called by the first device, which tells the others what it
    was answered.
    """
    program = optimize(body, chunk={"n": 4}, shard={"n": "data"}, mesh=mesh)
    if body in (by_io, answered) and len(mesh.shape) > 1:
        with pytest.raises(AxisError, match="calls back where the mesh has other axes too"):
            program(X)
        return
    want, wanted = seen(jax.jit(body), X)
    got, noted = seen(program, X)
    assert sorted(noted) == sorted(wanted)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("length", [24, 27, 3])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_callbacks_of_a_stream_happen_once_and_not_on_each_device(body, length):
    """Of a rest that the devices do not divide too, which all of them work on and the first
    accumulates.
    """
    x = np.arange(1.0, 1.0 + length, dtype=np.float32)
    program = optimize(
        body, shard={"n": "data"}, mesh=jitney.mesh(data=4, devices=jax.devices()[:4])
    )
    want, wanted = seen(jax.jit(body), x)
    got, noted = seen(lambda x: jitney.stream(program, x, chunk={"n": 8}, progress=False).result, x)
    assert sorted(noted) == sorted(wanted)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "what"),
    [(in_order, "calls back in order"), (answered_for_each, "calls back for each element")],
)
def test_an_order_over_devices_and_answers_for_their_elements_are_refused(body, what):
    """Devices wait for one another at the end of a pass only."""
    mesh = jitney.mesh(data=4, devices=jax.devices()[:4])
    with pytest.raises(AxisError, match=what):
        optimize(body, chunk={"n": 2}, shard={"n": "data"}, mesh=mesh)(X)


def test_a_callback_under_shard_alone_happens_once(mesh):
    """As in plain JAX, for which the arrays are one."""

    def f(x: V) -> V:
        jax.debug.callback(note, x.sum())
        return 2 * x

    assert seen(optimize(f, shard={"n": "data"}, mesh=mesh), X)[1] == [(300.0,)]
