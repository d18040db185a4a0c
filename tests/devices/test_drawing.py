"""The drawing of a plan over devices: which part of each array each device holds, as JAX has it."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import jax.numpy as jnp
from jaxtyping import Array, Float

import jitney


@jitney.optimize(shard={"batch": "data", "d": "model"})
def linear(
    w: Float[Array, "d k"], x: Float[Array, "batch d"], v: Float[Array, "k"]
) -> Float[Array, "batch k"]:
    return x @ w + v


def test_devices_that_hold_one_part_have_one_number():
    """Of two arrays on a mesh of two axes, one spread along both."""
    with jitney.mesh(data=4, model=2):
        plan = linear.plan(jnp.ones((4, 3)), jnp.ones((8, 4)), jnp.ones(3))
    found = [
        text.text or ""
        for text in ElementTree.fromstring(plan.draw()).iter("{http://www.w3.org/2000/svg}text")
    ]
    place = plan.plan.stage("place")
    for name, leaf, sharding in zip("wx", plan.view.leaves, place.shardings, strict=False):
        drawn = found[found.index(name) + 1 :][:8]
        held = sharding.devices_indices_map(leaf.shape)
        lies = [held[device] for device in place.mesh.devices.flat]
        assert [[a == b for b in drawn] for a in drawn] == [[a == b for b in lies] for a in lies]


def test_the_picture_on_the_page_is_that_of_its_function(tmp_path):
    """`python docs/pictures.py` draws it anew."""
    docs = Path(__file__).parents[2] / "docs"
    made = runpy.run_path(str(docs / "pictures.py"))
    assert (
        made["shards"](made["written"](tmp_path)) == (docs / "pictures" / "shards.svg").read_text()
    )
