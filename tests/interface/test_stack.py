"""`jitney.stack`: layers whose weights are one array each, used like the list of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney.errors import OptionError
from tests._arrays import array, filled, random_key, weak

KEYS = [random_key(seed) for seed in range(4)]
LAYERS = [filled(lambda: eqx.nn.Linear(3, 3, key=KEYS[0]), seed) for seed in range(4)]


class Gated(eqx.Module):
    """Weights, a mask, a number of steps, a key and an activation."""

    weight: jax.Array
    mask: jax.Array
    steps: np.ndarray
    key: jax.Array
    activation: object


GATED = [
    Gated(array(np.ones(2) * k), array([True, k > 1]), np.int32([k]), KEYS[k], jnp.tanh)
    for k in range(4)
]


def same(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        jnp.array_equal(jax.random.key_data(x), jax.random.key_data(y))
        if eqx.is_array(x) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        else np.array_equal(x, y)
        if isinstance(x, (jax.Array, np.ndarray))
        else x is y
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.rest
@pytest.mark.parametrize("layers", [LAYERS, GATED], ids=["linear", "gated"])
def test_it_is_iterated_indexed_and_measured_like_the_list(layers):
    """From either end, and by slices; behind the last it ends."""
    stacked = jitney.stack(layers)
    assert len(stacked) == 4
    assert all(map(same, stacked, layers))
    assert same(stacked[-1], layers[-1])
    assert all(map(same, stacked[1:3], layers[1:3]))
    with pytest.raises(IndexError):
        stacked[4]


def test_a_model_computes_and_learns_with_it_as_with_the_list():
    """The value, and the gradient, which is stacked too."""

    def loss(layers, x):
        for layer in layers:
            x = jnp.tanh(layer(x))
        return jnp.sum(x**2)

    x = jnp.arange(3.0)
    value, grads = eqx.filter_value_and_grad(loss)(jitney.stack(LAYERS), x)
    expected, plain = eqx.filter_value_and_grad(loss)(LAYERS, x)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for ours, theirs in zip(grads, plain, strict=True):
        np.testing.assert_allclose(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ([], "there are no layers"),
        ([LAYERS[0], filled(lambda: eqx.nn.Linear(3, 2, key=KEYS[0]))], "another structure"),
        (
            [array(np.ones(2)), array(np.ones(3))],
            r"layer 1 differs from layer 0 in layers\[1\]: float32\[3\] for float32\[2\]",
        ),
        ([array(np.ones(2)), array(np.ones(2), np.int32)], r"int32\[2\] for float32\[2\]"),
        ([array(1.0), weak(1.0)], r"float32\[\] \(weak\) for float32\[\]"),
        ([np.array(["a"]), np.array(["b"])], r"differs from layer 0 in layers\[1\]"),
        ([{"f": 1.0}, {"f": 2.0}], r"layers\[1\]\['f'\]: 2.0 for 1.0"),
    ],
    ids=str,
)
def test_layers_that_differ_are_refused_with_the_place(layers, says):
    """In structure, shape, dtype, or what is not an array."""
    with pytest.raises(OptionError, match=says):
        jitney.stack(layers)
