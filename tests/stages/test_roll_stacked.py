"""`roll="auto"` of layers whose weights are stacked: their slices, and the gradients that a step
takes of them itself.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._arrays import array

LAYERS, ROWS, WIDTH = 14, 4, 6
RNG = np.random.default_rng(1)
WS = [RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH**0.5 for _ in range(LAYERS)]
BS = [RNG.normal(size=WIDTH).astype(np.float32) / 8 for _ in range(LAYERS)]
X = array(RNG.normal(size=(ROWS, WIDTH)))


def small(x, w, b):
    """A layer of few operations."""
    return jnp.sin(x @ w + b)


def plain(layers, x):
    for w, b in layers:
        x = small(x, w, b)
    return jnp.sum(x**2)


def decayed(layers, x):
    """The stacked weights are read as a whole too."""
    return plain(layers, x) + 1e-3 * sum(jnp.sum(w**2) for w, _ in layers)


def tied(layers, x):
    """The weights of one layer are read twice, so that one row has two gradients."""
    return plain([*layers, layers[3]], x)


def without_one(layers, x):
    """One row has no gradient."""
    return plain([layer for k, layer in enumerate(layers) if k != 5], x)


def backwards(layers, x):
    return plain([*layers][::-1], x)


LOSSES = [decayed, tied, without_one, backwards]


def in_float64(loss, ws, bs):
    """The reference, by hand: the gradients of weights and biases."""
    order = {
        plain: [*range(LAYERS)],
        decayed: [*range(LAYERS)],
        tied: [*range(LAYERS), 3],
        without_one: [k for k in range(LAYERS) if k != 5],
        backwards: [*range(LAYERS)][::-1],
    }[loss]
    x, inputs, sums = np.asarray(X, np.float64), [], []
    for k in order:
        inputs.append(x)
        sums.append(x @ ws[k].astype(np.float64) + bs[k])
        x = np.sin(sums[-1])
    dw, db, g = np.zeros((LAYERS, WIDTH, WIDTH)), np.zeros((LAYERS, WIDTH)), 2 * x
    for k, before, total in reversed([*zip(order, inputs, sums, strict=True)]):
        g = g * np.cos(total)
        dw[k] += before.T @ g
        db[k] += g.sum(0)
        g = g @ ws[k].astype(np.float64).T
    if loss is decayed:
        dw += 2e-3 * np.stack(ws)
    return dw, db


def step_of(loss):
    def step(layers, x: Float[Array, "batch n"]):
        return jax.grad(loss)(layers, x)

    return step


def stacked():
    return jitney.stack([*zip(map(jnp.asarray, WS), map(jnp.asarray, BS), strict=True)])


def taken(report):
    """The turns of the loops of a plan."""
    lines = [
        d["why"] for d in report.to_dict()["decisions"] if d["name"] == "layers" and d["taken"]
    ]
    return [int(re.match(r"\d+", line).group()) for line in lines]


@pytest.mark.core("decayed")
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_stacked_layers_is_each_rows_own(loss):
    """Taken by the step itself, beside NumPy in float64; also where a row has two gradients, none,
    or another part.
    """
    made = optimize(roll="auto")(step_of(loss))(stacked(), X)
    for ours, theirs in zip(made.layers, in_float64(loss, WS, BS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.rest
@pytest.mark.parametrize("loss", [tied])
def test_of_a_derivative_too(loss):
    """`f.grad`, where the loop itself is differentiated."""

    def annotated(layers, x: Float[Array, "batch n"]):
        return loss(layers, x)

    made = optimize(roll="auto")(annotated).grad(stacked(), X, wrt="layers")
    for ours, theirs in zip(made.layers, in_float64(loss, WS, BS), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


def test_a_step_with_stacked_layers_has_loops_both_ways():
    """And no zeros are added up for them."""
    f = optimize(roll="auto")(step_of(plain))
    forward, back = taken(f.plan(stacked(), X))
    assert forward >= LAYERS - 1
    assert back >= LAYERS - 2
    text = str(jax.make_jaxpr(f)(stacked(), X))
    assert " pad[" not in text
    assert " pad[" in str(jax.make_jaxpr(step_of(plain))(stacked(), X))


def test_small_layers_are_rolled_where_their_weights_are_stacked():
    """On a CPU, from twelve on; those of a list compile as fast as they are."""
    if jax.default_backend() != "cpu":
        pytest.skip("on a CPU")

    def annotated(layers, x: Float[Array, "batch n"]):
        return plain(layers, x)

    f = optimize(roll="auto")(annotated)
    few = [*zip(map(jnp.asarray, WS), map(jnp.asarray, BS), strict=True)]
    assert taken(f.plan(stacked(), X)) == [LAYERS]
    assert not taken(f.plan(few, X))
    assert not taken(f.plan(jitney.stack(few[:11]), X))


@pytest.mark.rest
@pytest.mark.parametrize("order", [slice(None, None, -1), slice(2, 9, 2)], ids=str)
def test_states_that_are_put_together_again_are_those_of_each_layer(order):
    """In any order, and with others between them: to the bit, since nothing is computed."""

    def hidden(layers, x: Float[Array, "batch n"]):
        states = [x]
        for w, b in layers:
            states.append(small(states[-1], w, b))
        return jnp.concatenate(states[1:][order]), jnp.stack([*states[order], x]), states

    together, stack, states = optimize(roll="auto")(hidden)(stacked(), X)
    np.testing.assert_array_equal(together, np.concatenate(states[1:][order]))
    np.testing.assert_array_equal(stack, np.stack([*states[order], X]))


def test_a_sum_of_gradients_that_are_numbers_is_no_sum_of_rows():
    """The derivative of `x + x` adds two ones, which are no rows of a stack."""
    slope = optimize(roll="auto")(lambda x: jax.grad(lambda x: x + x)(x))
    assert slope(jnp.float32(1.0)) == 2
