"""`jitney.mesh`: devices along named axes."""

import jax
import pytest

import jitney


def test_sizes_may_be_left_to_what_there_is():
    """-1 takes all that are left."""
    assert jitney.mesh(data=-1, model=2).shape == {"data": len(jax.devices()) // 2, "model": 2}


def test_fewer_devices_than_there_are():
    """A mesh need not take all."""
    assert jitney.mesh(data=3).mesh.devices.shape == (3,)


def test_chosen_devices():
    """In any number."""
    assert (
        list(jitney.mesh(data=-1, devices=jax.devices()[4:6]).mesh.devices.flat)
        == jax.devices()[4:6]
    )


def test_as_a_context_it_is_jaxs():
    """Plain JAX sees it too, and it ends with the block."""
    mesh = jitney.mesh(data=4)
    with mesh:
        assert jax.sharding.get_mesh() == mesh.mesh
    assert jax.sharding.get_mesh().empty


def test_it_is_a_value():
    """Equal meshes share programs."""
    assert jitney.mesh(data=4) == jitney.mesh(data=4)
    assert len({jitney.mesh(data=4), jitney.mesh(data=4), jitney.mesh(model=4)}) == 2


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"data": 1000}, "1000 devices are needed"),
        ({"data": -1, "model": 3}, "which 3 does not divide"),
        ({"data": -1, "model": -1}, "not a layout"),
        ({"data": 0}, "data=0 is not a number of devices"),
        ({"data": 2.0}, r"data=2\.0 is not a number"),
        ({}, "not a layout"),
    ],
)
def test_what_cannot_be_laid_out_says_so(axes, message):
    """With the numbers."""
    with pytest.raises(jitney.errors.MeshError, match=message):
        jitney.mesh(devices=jax.devices()[:8], **axes)
