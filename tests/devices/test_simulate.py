"""`jitney.simulation.simulate` against programs that are really compiled for eight devices, and
against counts by hand.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

MESH = {"data": 4, "model": 2}
ROWS, WIDE = 64, 32


@jitney.optimize(shard={"batch": "data", "out": "model"})
def loss(model, x: Float[Array, "batch n"], y: Float[Array, "batch m"]) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@pytest.fixture(scope="module")
def network():
    return eqx.nn.MLP(16, 8, WIDE, 2, use_bias=False, use_final_bias=False, key=jax.random.key(0))


@pytest.fixture(scope="module")
def gradient(network):
    """Simulated, and compiled here."""
    sizes = {"batch": ROWS, "n": 16, "m": 8}
    found = jitney.simulation.simulate(
        loss.grad, network, sizes=sizes, mesh=MESH, device="h100", wrt="model"
    )
    x, y = np.ones((ROWS, 16), np.float32), np.ones((ROWS, 8), np.float32)
    with jitney.mesh(**MESH, devices=jax.devices()[:8]):
        compiled = loss.grad.program(wrt="model").lower(network, x, y).compile()
        return (
            found,
            compiled.memory_analysis(),
            jitney.analysis.communication(loss.grad, network, x, y, wrt="model"),
        )


def test_bytes_are_those_of_the_compiled_program(gradient):
    """On each device: arguments, results and temporaries."""
    found, memory, _ = gradient
    assert (found.arguments, found.results) == (
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
    )
    assert found.temporaries == memory.temp_size_in_bytes


def test_arguments_are_what_is_laid_on_each_device(gradient):
    """Weights by `model`, the batch by `data`."""
    weights = 4 * (WIDE * 16 + WIDE * WIDE + 8 * WIDE) // MESH["model"]
    assert gradient[0].arguments == weights + 4 * ROWS * (16 + 8) // MESH["data"]


def test_collectives_are_those_of_the_compiled_program(gradient):
    """By kind and axis, in number and bytes; here, on CPUs, a reduce-scatter is an all-reduce and a
    cut.
    """
    found, _, communication = gradient
    here = {}
    for each in found.collectives:
        scatter = each.kind == "reduce-scatter"
        key = ("all-reduce" if scatter else each.kind, each.along)
        count, size = here.get(key, (0, 0))
        here[key] = (count + each.count, size + each.bytes * (each.devices if scatter else 1))
    expected = {}
    for each in communication.collectives:
        count, size = expected.get((each.kind, each.along), (0, 0))
        expected[each.kind, each.along] = (count + each.count, size + each.bytes)
    assert here == expected


def test_operations_are_those_that_are_counted_by_hand(gradient):
    """Two for each multiplied number, forward, and backward for weights and, but of the first
    layer, inputs; an eighth on each device.
    """
    layers = [16 * WIDE, WIDE * WIDE, WIDE * 8]
    assert gradient[0].products == {"tf32": 2 * ROWS * (3 * sum(layers) - layers[0]) // 8}


def test_loops_are_counted_with_their_turns():
    """Operations and collectives, unlike in what XLA tells: a mean over the batch in each of five
    turns, and a sum behind.
    """

    @jitney.optimize(shard={"batch": "data"})
    def power(w: Float[Array, "n n"], x: Float[Array, "batch n"]) -> Float[Array, "n"]:
        out, _ = jax.lax.scan(
            lambda x, _: (jnp.tanh((x - jnp.mean(x, 0)) @ w), None), x, None, length=5
        )
        return jnp.sum(out, 0)

    found = jitney.simulation.simulate(
        power, sizes={"batch": 16, "n": 4}, mesh={"data": 4}, device="h100"
    )
    assert found.products == {"tf32": 5 * 2 * 16 * 4 * 4 // 4}
    assert [(each.kind, each.count, each.bytes) for each in found.collectives] == [
        ("all-reduce", 6, 6 * 4 * 4)
    ]


def test_what_is_given_up_is_not_counted_twice():
    """A donated argument's place is that of a result."""

    @jitney.optimize(shard={"batch": "data"}, donate="x")
    def step(x: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
        return x + 1.0

    found = jitney.simulation.simulate(
        step, sizes={"batch": 64, "n": 4}, mesh={"data": 8}, device="h100"
    )
    assert (found.arguments, found.results, found.collectives) == (4 * 8 * 4, 0, ())


def test_gradients_under_fsdp_are_scattered(network):
    """Each device gets its part of each, and sends the others: as for a reduce-scatter, not for an
    all-reduce.
    """
    f = jitney.optimize(loss.__wrapped__, shard=("fsdp", {"batch": "data"}))
    found = jitney.simulation.simulate(
        f.grad,
        network,
        sizes={"batch": 512, "n": 16, "m": 8},
        mesh={"data": 8},
        device="h100",
        wrt="model",
    )
    weights = 4 * (WIDE * 16 + WIDE * WIDE + 8 * WIDE)
    sums = {each.kind: (each.bytes, each.sent) for each in found.collectives}
    assert sums["reduce-scatter"] == (weights // 8, 7 * weights // 8)
    assert "all-reduce" not in sums


def test_the_mesh_that_is_asked_for_is_the_one_that_counts(network):
    """Whatever mesh the call stands in, and a program inside names."""
    own = jitney.optimize(
        loss.__wrapped__,
        shard={"batch": "data"},
        mesh=jitney.mesh(data=4, devices=jax.devices()[:8]),
    )

    @jitney.optimize(shard={"batch": "data"}, donate="model")
    def step(model, x: Float[Array, "batch n"], y: Float[Array, "batch m"]):
        return eqx.apply_updates(model, own.grad(model, x, y, wrt="model"))

    with jitney.mesh(data=2, model=2, devices=jax.devices()[:8]):
        found = jitney.simulation.simulate(
            step, network, sizes={"batch": 256, "n": 16, "m": 8}, mesh={"data": 16}, device="h100"
        )
    weights = 4 * (WIDE * 16 + WIDE * WIDE + 8 * WIDE)
    # a pointer for each array that takes the place of a weight
    assert (found.devices, found.results) == (16, 3 * 8)
    assert [(each.kind, each.devices, each.bytes) for each in found.collectives] == [
        ("all-reduce", 16, weights)
    ]


def test_a_mesh_serves_as_its_sizes(network):
    """That of jitney, as one would call the function in it."""
    found = jitney.simulation.simulate(
        jitney.optimize(loss.__wrapped__, shard={"batch": "data"}),
        network,
        sizes={"batch": 256, "n": 16, "m": 8},
        mesh=jitney.mesh(data=4, devices=jax.devices()[:4]),
        device="h100",
    )
    assert found.mesh == {"data": 4}
