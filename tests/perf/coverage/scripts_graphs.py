"""Losses as in the examples of jraph and of reinforcement learning, written anew: graph
convolutions and attention, advantages.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._arrays import KEY, normal, uniform, whole
from ._model import Model, never


class Convolution(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.first = eqx.nn.Linear(3, 4, key=one)
        self.second = eqx.nn.Linear(4, 2, key=two)


def convolved(
    net: Convolution,
    node: Float[Array, "nodes 3"],
    sender: Int[Array, "edges"],
    receiver: Int[Array, "edges"],
    label: Int[Array, "nodes"],
) -> Float[Array, ""]:
    """A graph convolution with symmetric normalisation, and a label at each node."""
    n = node.shape[0]

    def layer(linear: Any, x: Any) -> Any:
        ones = jnp.ones(sender.shape)
        out = jax.ops.segment_sum(ones, sender, num_segments=n) + 1
        into = jax.ops.segment_sum(ones, receiver, num_segments=n) + 1
        x = jax.vmap(linear)(x) * jax.lax.rsqrt(out)[:, None]
        return (x + jax.ops.segment_sum(x[sender], receiver, num_segments=n)) * jax.lax.rsqrt(into)[
            :, None
        ]

    logits = layer(net.second, jax.nn.relu(layer(net.first, node)))
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], axis=1))


class GraphAttention(eqx.Module):
    query: eqx.nn.Linear
    weight: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.query = eqx.nn.Linear(3, 4, key=one)
        self.weight = eqx.nn.Linear(8, 1, key=two)
        self.head = eqx.nn.Linear(4, 1, key=three)


def graph_attention(
    net: GraphAttention,
    node: Float[Array, "nodes 3"],
    sender: Int[Array, "edges"],
    receiver: Int[Array, "edges"],
    target: Float[Array, "nodes 1"],
) -> Float[Array, ""]:
    """Messages weighted by a softmax over the edges of each receiver."""
    n = node.shape[0]
    h = jax.vmap(net.query)(node)
    logits = jax.nn.leaky_relu(
        jax.vmap(net.weight)(jnp.concatenate([h[sender], h[receiver]], axis=1))
    )[:, 0]
    largest = jax.ops.segment_max(logits, receiver, num_segments=n)
    weight = jnp.exp(logits - largest[receiver])
    weight = weight / jax.ops.segment_sum(weight, receiver, num_segments=n)[receiver]
    gathered = jax.ops.segment_sum(weight[:, None] * h[sender], receiver, num_segments=n)
    return jnp.mean((jax.vmap(net.head)(jax.nn.elu(gathered)) - target) ** 2)


class Sets(eqx.Module):
    inner: eqx.nn.MLP
    outer: eqx.nn.MLP

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.inner = eqx.nn.MLP(3, 4, 8, 1, key=one)
        self.outer = eqx.nn.MLP(4, 1, 8, 1, key=two)


def classified_graphs(
    net: Sets,
    node: Float[Array, "nodes 3"],
    graph: Int[Array, "nodes"],
    label: Float[Array, "graphs"],
) -> Float[Array, ""]:
    """A label for each graph of a batch, from the mean over its nodes."""
    n = label.shape[0]
    total = jax.ops.segment_sum(jax.vmap(net.inner)(node), graph, num_segments=n)
    count = jax.ops.segment_sum(jnp.ones(node.shape[0]), graph, num_segments=n)
    logits = jax.vmap(net.outer)(total / jnp.maximum(count, 1.0)[:, None])[:, 0]
    return jnp.mean(jax.nn.softplus(logits) - label * logits)


class ActorCritic(eqx.Module):
    actor: eqx.nn.MLP
    critic: eqx.nn.MLP

    def __init__(self):
        one, two = jax.random.split(KEY)
        self.actor = eqx.nn.MLP(3, 2, 8, 1, activation=jnp.tanh, key=one)
        self.critic = eqx.nn.MLP(3, "scalar", 8, 1, activation=jnp.tanh, key=two)


def policy(
    net: ActorCritic,
    seen: Float[Array, "games time 3"],
    action: Int[Array, "games time"],
    reward: Float[Array, "games time"],
    before: Float[Array, "games time"],
) -> Float[Array, ""]:
    """Proximal policy optimisation, with generalised advantages that go backwards in time."""

    def one(seen: Any, action: Any, reward: Any, before: Any) -> Any:
        value = jax.vmap(net.critic)(seen)
        fixed = jax.lax.stop_gradient(value)
        delta = reward + 0.9 * jnp.append(fixed[1:], 0.0) - fixed
        _, advantage = jax.lax.scan(
            lambda a, d: (d + 0.8 * a, d + 0.8 * a), 0.0, delta, reverse=True
        )
        logp = jnp.take_along_axis(
            jax.nn.log_softmax(jax.vmap(net.actor)(seen)), action[:, None], axis=1
        )[:, 0]
        ratio = jnp.exp(logp - before)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
        return jnp.mean(0.5 * (value - advantage - fixed) ** 2 - gain)

    return jnp.mean(jax.vmap(one)(seen, action, reward, before))


def temporal_difference(
    net: eqx.nn.MLP,
    target: eqx.nn.MLP,
    seen: Float[Array, "batch 3"],
    action: Int[Array, "batch"],
    reward: Float[Array, "batch"],
    after: Float[Array, "batch 3"],
) -> Float[Array, ""]:
    """Double Q-learning with Huber's loss."""
    q = jnp.take_along_axis(jax.vmap(net)(seen), action[:, None], axis=1)[:, 0]
    best = jnp.argmax(jax.vmap(net)(after), axis=1)
    future = jnp.take_along_axis(jax.vmap(target)(after), best[:, None], axis=1)[:, 0]
    error = jnp.abs(q - jax.lax.stop_gradient(reward + 0.9 * future))
    return jnp.mean(jnp.where(error < 1, 0.5 * error**2, error - 0.5))


_NODES = (
    "a node's term needs those of the nodes that are joined to it: the loss is no sum of terms of"
    " one node each"
)
_ROUNDS = (
    "sums over all edges are put into edges again: the loss is no sum of terms of one edge each"
)
_ADVANTAGE = (
    "an advantage is of all rewards that follow: the loss is no sum of terms of one step each"
)


def _edges(n: Any) -> dict[str, Any]:
    return {
        "node": normal(n["nodes"], 3),
        "sender": whole(n["edges"], below=n["nodes"], seed=1),
        "receiver": whole(n["edges"], below=n["nodes"], seed=2),
    }


_GRAPH = {"nodes": 11, "edges": 21}
_GRAPH_NEVER = never("nodes", ("accumulate",), _NODES) | never("edges", ("accumulate",), _ROUNDS)


def _moves(n: Any) -> dict[str, Any]:
    net, target = (eqx.nn.MLP(3, 2, 8, 1, key=key) for key in jax.random.split(KEY))
    return {
        "net": net,
        "target": target,
        "seen": normal(n["batch"], 3),
        "action": whole(n["batch"], below=2),
        "reward": normal(n["batch"]),
        "after": normal(n["batch"], 3, seed=1),
    }


MODELS = tuple(
    Model(*parts, group="scripts", **options)
    for *parts, options in (
        (
            "graph convolution",
            convolved,
            lambda n: {
                "net": Convolution(),
                **_edges(n),
                "label": whole(n["nodes"], below=2, seed=3),
            },
            _GRAPH,
            "net",
            {"never": _GRAPH_NEVER},
        ),
        (
            "graph attention",
            graph_attention,
            lambda n: {
                "net": GraphAttention(),
                **_edges(n),
                "target": normal(n["nodes"], 1, seed=3),
            },
            _GRAPH,
            "net",
            {"never": _GRAPH_NEVER},
        ),
        (
            "graph classification",
            classified_graphs,
            lambda n: {
                "net": Sets(),
                "node": normal(n["nodes"], 3),
                "graph": whole(n["nodes"], below=n["graphs"], seed=1),
                "label": (normal(n["graphs"]) > 0).astype("f"),
            },
            {"nodes": 11, "graphs": 5},
            "net",
            {},
        ),
        (
            "proximal policy",
            policy,
            lambda n: {
                "net": ActorCritic(),
                "seen": normal(n["games"], n["time"], 3),
                "action": whole(n["games"], n["time"], below=2),
                "reward": normal(n["games"], n["time"], seed=1),
                "before": -uniform(n["games"], n["time"], seed=2),
            },
            {"games": 11, "time": 7},
            "net",
            {"never": never("time", ("accumulate",), _ADVANTAGE)},
        ),
        (
            "double Q-learning",
            temporal_difference,
            _moves,
            {"batch": 11},
            "net",
            {},
        ),
    )
)
