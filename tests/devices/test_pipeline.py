"""`jitney.pipeline`: layers over devices, against the same layers one after the other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from tests._arrays import array


class Layer(eqx.Module):
    linear: eqx.nn.Linear
    floor: jax.Array

    def __init__(self, key):
        self.linear, self.floor = eqx.nn.Linear(6, 6, key=key), jnp.float32(0.1)

    def __call__(self, x):
        # of zeros it would be an infinity
        return jnp.log(jnp.abs(self.linear(x)) + x * x) * self.floor + x


def layers(count=8):
    return [Layer(key) for key in jax.random.split(jax.random.key(0), count)]


X = array(np.random.default_rng(1).normal(size=(24, 6)))


def in_turn(stack, x):
    for layer in stack:
        x = jax.vmap(layer)(x)
    return x


def mesh(**axes):
    return jitney.mesh(devices=jax.devices()[:8], **axes)


@pytest.mark.parametrize(
    ("axes", "microbatches", "batch"),
    [({"stage": 4}, 3, None), ({"stage": 4, "data": 2}, 6, "data"), ({"stage": 2}, 1, None)],
)
def test_forward_and_gradient_are_those_of_the_stack(axes, microbatches, batch):
    """Of every layer, whatever the schedule."""
    stack = layers()
    with mesh(**axes):
        piped = jitney.pipeline(stack, microbatches=microbatches, batch=batch)
        value, found = eqx.filter_jit(eqx.filter_value_and_grad(lambda p: jnp.sum(p(X) ** 2)))(
            piped
        )
    expected, each = eqx.filter_jit(
        eqx.filter_value_and_grad(lambda stack: jnp.sum(in_turn(stack, X) ** 2))
    )(stack)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(
        found.layers.linear.weight, jnp.stack([g.linear.weight for g in each]), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(
        found.layers.floor, jnp.stack([g.floor for g in each]), rtol=1e-3, atol=1e-3
    )


def test_one_device_is_a_plain_loop():
    """No stage to hand to."""
    with mesh(stage=1):
        np.testing.assert_allclose(
            jitney.pipeline(layers(2), microbatches=2)(X),
            in_turn(layers(2), X),
            rtol=1e-4,
            atol=1e-5,
        )


def test_layers_may_come_stacked_and_recomputed():
    """As `eqx.filter_vmap` makes them; the mesh may be given."""
    keys = jax.random.split(jax.random.key(0), 4)
    piped = jitney.pipeline(
        eqx.filter_vmap(Layer)(keys), axis="rank", microbatches=2, mesh=mesh(rank=4), remat=True
    )
    gradient = eqx.filter_jit(eqx.filter_grad(lambda p: jnp.sum(p(X))))(piped).layers.floor
    each = eqx.filter_jit(eqx.filter_grad(lambda stack: jnp.sum(in_turn(stack, X))))(layers(4))
    np.testing.assert_allclose(gradient, jnp.stack([g.floor for g in each]), rtol=1e-3, atol=1e-3)


def test_the_schedule_waits_as_theory_says():
    """(S-1)/(M+S-1), counted from the picture."""
    with mesh(stage=4):
        schedule = jitney.pipeline(layers(4), microbatches=8).schedule()
    assert schedule.bubble == pytest.approx(3 / 11)
    assert [schedule.at(2, tick) for tick in range(4)] == [None, None, 0, 1]
    assert "27.3% of the time" in str(schedule)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: jitney.pipeline(layers(6), microbatches=2)(X),
            jitney.errors.MeshError,
            "the 6 layers cannot be cut into stages along 'stage'",
        ),
        (
            lambda: jitney.pipeline(layers(4), microbatches=5)(X),
            jitney.errors.MeshError,
            "a batch of 24 cannot be cut into 5 microbatches",
        ),
        (
            lambda: jitney.pipeline(layers(4), microbatches=2, axis="deep")(X),
            jitney.errors.MeshError,
            "no axis 'deep'",
        ),
        (
            lambda: jitney.pipeline([*layers(1), eqx.nn.Identity()], microbatches=2),
            jitney.errors.OptionError,
            "layer 1 .Identity. differs",
        ),
        (
            lambda: jitney.pipeline([], microbatches=2),
            jitney.errors.OptionError,
            "there is no layer",
        ),
        (
            lambda: jitney.pipeline([jnp.tanh] * 4, microbatches=2),
            jitney.errors.OptionError,
            "layers hold no arrays",
        ),
        (
            lambda: jitney.pipeline([layers(1)] * 4, microbatches=2),
            jitney.errors.OptionError,
            "a layer is of type list, which cannot be called",
        ),
        (
            lambda: jitney.pipeline(layers(1)[0], microbatches=2),
            jitney.errors.OptionError,
            "the first axes of its arrays are",
        ),
        (
            lambda: jitney.pipeline(layers(4), microbatches=2)(1.0),
            jitney.errors.MeshError,
            "it is called with a float",
        ),
        (
            lambda: jitney.pipeline(layers(4), microbatches=2)(X[0, 0]),
            jitney.errors.MeshError,
            r"it is called with float32\[\]",
        ),
        (
            lambda: jitney.pipeline(layers(4), microbatches=0),
            jitney.errors.OptionError,
            "microbatches=0 is not a number",
        ),
        (
            lambda: jitney.pipeline(
                [eqx.nn.Linear(6, 5, key=jax.random.key(i)) for i in range(4)], microbatches=2
            )(X),
            jitney.errors.OptionError,
            "a layer makes",
        ),
    ],
)
def test_what_cannot_be_piped_says_so(make, kind, message):
    """With sizes and what to do."""
    with mesh(stage=4), pytest.raises(kind, match=message):
        make()


def test_without_a_mesh_it_says_where_to_get_one():
    """Not a run on one device."""
    with pytest.raises(jitney.errors.MeshError, match="there is no mesh"):
        jitney.pipeline(layers(4), microbatches=2)(X)
