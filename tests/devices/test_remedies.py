"""Remedies of arrays that lie over several devices, followed to their end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import AxisError, MeshError

ROWS = np.arange(107, dtype=np.float32)


def doubled(x: Float[Array, "n"]):
    return x * 2


def spectrum(x: Float[Array, "n"]):
    return jnp.fft.fft(x).real


def on(devices, **options):
    return {
        "shard": {"n": "d"},
        "mesh": jax.make_mesh((devices,), ("d",), devices=jax.devices()[:devices]),
        **options,
    }


def test_the_message_names_pad_and_each_remedy_helps():
    """Padded, of a size that divides, on fewer devices, and without `shard`."""
    fix = (
        r'Fix: pad it, pad=\{"n": \[112\]\}, make it 112, make the mesh such that its part along'
        r" \'d\' divides 107, or take"
    )
    with pytest.raises(MeshError, match=fix):
        optimize(**on(8))(doubled)(ROWS)
    for options in (on(8, pad={"n": [112]}), on(1), {}):
        np.testing.assert_array_equal(optimize(**options)(doubled)(ROWS), ROWS * 2)
    np.testing.assert_array_equal(
        optimize(**on(8))(doubled)(ROWS.repeat(2)[:112]), ROWS.repeat(2)[:112] * 2
    )


@pytest.mark.filterwarnings("ignore:.*cannot be padded")
def test_what_is_padded_already_is_not_told_to_be():
    """It is refused along the axis, so that another remedy helps."""
    with pytest.raises(MeshError, match="Fix: make it 112, "):
        optimize(**on(8, pad={"n": [112]}))(spectrum)(ROWS)


def cumulated(x: Float[Array, "n"]):
    return jnp.cumsum(x, axis=0)


def halved(x: Float[Array, "n"]):
    return x / 2


def test_what_goes_on_from_device_to_device_is_told_what_helps():
    """Out of `shard`, with that line outside of the function, or without `chunk`."""
    rows = np.arange(64, dtype=np.float32)
    with pytest.raises(
        AxisError,
        match="Fix: take 'n' out of `shard`, move that line out of the function, or drop the axis",
    ):
        optimize(**on(8, chunk={"n": 2}))(cumulated)(rows)
    for helped in (
        optimize(chunk={"n": 2})(cumulated)(rows),
        2 * np.cumsum(np.asarray(optimize(**on(8, chunk={"n": 2}))(halved)(rows))),
        optimize(**on(8))(cumulated)(rows),
    ):
        np.testing.assert_allclose(helped, np.cumsum(rows), rtol=1e-6)


def test_parts_are_multiples_of_the_devices():
    """Of this process; here it is alone."""
    with jitney.mesh(data=8, devices=jax.devices()[:8]):
        with pytest.raises(MeshError, match="Fix: pass a multiple of 8"):
            jitney.processes.from_processes(ROWS, "data")
        np.testing.assert_array_equal(
            jitney.processes.from_processes(ROWS[:104], "data"), ROWS[:104]
        )
