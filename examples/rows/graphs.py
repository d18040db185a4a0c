"""Graphs with unlike numbers of nodes and of edges: two steps of messages along the edges, and a
number for each graph.
"""

# %% Imports
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import jitney

from ._by_hand import blocks, in_order
from ._sides import SMALL, Lengths, Work

WIDTH, STEPS = 16, 2


# %% The function of one row
def energy(
    weights: Float[Array, "2 width width"],
    read: Float[Array, "width"],
    nodes: Float[Array, "node width"],
    senders: Int[Array, "edge"],
    receivers: Int[Array, "edge"],
) -> Float[Array, ""]:
    """Mean over nodes of what is read off each after two steps."""
    for _ in range(STEPS):
        messages = jax.nn.relu(nodes @ weights[0])[senders]
        got = jax.ops.segment_sum(messages, receivers, num_segments=nodes.shape[0])
        nodes = jnp.tanh(nodes + got @ weights[1])
    return jnp.mean(nodes @ read)


# %% With jitney
energies = jitney.optimize(vmap="graph", pad={"node": "pow2", "edge": "pow2"})(energy)


# %% By hand: masks, the same buckets
@jax.jit
def of_block(weights, read, nodes, senders, receivers, count, edges):
    def masked(nodes, senders, receivers, count, edges):
        size = nodes.shape[0]
        inside = jnp.arange(size) < count
        # beyond the last node a message is dropped
        receivers = jnp.where(jnp.arange(receivers.shape[0]) < edges, receivers, size)
        for _ in range(STEPS):
            messages = jax.nn.relu(nodes @ weights[0])[senders]
            got = jax.ops.segment_sum(messages, receivers, num_segments=size)
            nodes = jnp.tanh(nodes + got @ weights[1])
        return jnp.sum(jnp.where(inside, nodes @ read, 0)) / count

    return jax.vmap(masked)(nodes, senders, receivers, count, edges)


def by_hand(weights, read, nodes, senders, receivers):
    parts = [
        (rows, of_block(weights, read, *given))
        for rows, _, given in blocks([nodes, senders, receivers], axes=[0, 1, 1])
    ]
    return in_order(len(nodes), parts)


# %% One graph of all, as libraries for graphs do it
@jax.jit
def of_all(weights, read, nodes, senders, receivers, graph, sizes):
    for _ in range(STEPS):
        messages = jax.nn.relu(nodes @ weights[0])[senders]
        got = jax.ops.segment_sum(messages, receivers, num_segments=nodes.shape[0])
        nodes = jnp.tanh(nodes + got @ weights[1])
    return jax.ops.segment_sum(nodes @ read, graph, num_segments=sizes.shape[0]) / sizes


def pow2(count: int) -> int:
    """The power of two that holds so many and one more."""
    return 1 << count.bit_length()


def at_once(weights, read, nodes, senders, receivers):
    counts = np.array([len(each) for each in nodes])
    edges = np.array([len(each) for each in senders])
    begins = np.repeat(np.cumsum(counts) - counts, edges)
    total, wires, graphs = pow2(counts.sum().item()), pow2(edges.sum().item()), pow2(len(nodes))

    def longer(values, size, fill):
        out = np.full((size, *values.shape[1:]), fill, values.dtype)
        out[: len(values)] = values
        return out

    return np.asarray(
        of_all(
            weights,
            read,
            longer(np.concatenate(nodes), total, 0),
            longer((np.concatenate(senders) + begins).astype(np.int32), wires, total - 1),
            longer((np.concatenate(receivers) + begins).astype(np.int32), wires, total - 1),
            longer(np.repeat(np.arange(len(nodes), dtype=np.int32), counts), total, graphs - 1),
            longer(counts.astype(np.float32), graphs, 1),
        )
    )[: len(nodes)]


# %% A compile for each length
alone = jax.jit(energy)


def a_length(weights, read, *graphs):
    return np.stack([alone(weights, read, *graph) for graph in zip(*graphs, strict=True)])


# %% Data
def weights() -> tuple[np.ndarray, np.ndarray]:
    """Of messages and of their sum; of the number that is read."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(2, WIDTH, WIDTH)) / WIDTH
    return mix.astype(np.float32), rng.normal(size=WIDTH).astype(np.float32)


def graphs(sizes: Lengths, seed: int) -> tuple[list[np.ndarray], ...]:
    """Nodes with features; edges between random ones, two to four for each node."""
    rng, counts = sizes.draw(seed)
    made = [[], [], []]
    for n in counts:
        edges = rng.integers(2 * n, 4 * n)
        made[0].append(rng.normal(size=(n, WIDTH)).astype(np.float32))
        for ends in made[1:]:
            ends.append(rng.integers(n, size=edges).astype(np.int32))
    return tuple(made)


def works(*, full: bool) -> tuple[Work, ...]:
    """Two ragged axes."""
    sizes = Lengths(2000, 20, 4, 60) if full else SMALL
    return (
        Work(
            "graphs",
            "graphs, two steps of messages",
            weights(),
            lambda seed: graphs(sizes, seed),
            {
                "jitney": energies,
                "by hand": by_hand,
                "one graph": at_once,
                "a length": a_length,
            },
            (energies,),
            rtol=1e-4,
            atol=1e-5,
        ),
    )
