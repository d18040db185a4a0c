"""Models that go through time by themselves, and graphs: neural differential equations and message
passing.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._arrays import KEY, normal, uniform, whole
from ._model import Model, never


def solved(field: Any, y: Any, end: Any) -> Any:
    """Heun's method with steps of its own from 0 to `end`: a loop as diffrax has it, which is
    differentiable by checkpoints.
    """

    def unfinished(carry: Any) -> Any:
        return carry[0] < end

    def step(carry: Any) -> Any:
        t, y, h = carry
        h = jnp.minimum(h, end - t)
        first = field(y)
        second = field(y + h * first)
        error = jnp.max(jnp.abs(second - first)) * h / 2
        good = error < 1e-2
        y = jnp.where(good, y + h * (first + second) / 2, y)
        t = jnp.where(good, jnp.where(end - t <= h, end, t + h), t)
        return t, y, h * jnp.where(good, 1.5, 0.5)

    start, longest = jnp.zeros((), y.dtype), jnp.asarray(0.3, y.dtype)
    return eqxi.while_loop(
        unfinished, step, (start, y, longest), max_steps=64, kind="checkpointed"
    )[1]


def neural_ode(
    net: eqx.nn.MLP, y0: Float[Array, "batch 2"], y1: Float[Array, "batch 2"]
) -> Float[Array, ""]:
    ends = jax.vmap(lambda y: solved(net, y, jnp.ones((), y.dtype)))(y0)
    return jnp.mean((ends - y1) ** 2)


def steered(
    net: eqx.nn.MLP, y0: Float[Array, "batch 2"], y1: Float[Array, "batch 2"]
) -> Float[Array, ""]:
    """The same equation in a given number of steps."""

    def end(y: Any) -> Any:
        return jax.lax.fori_loop(0, 8, lambda _, y: y + 0.125 * net(y + 0.0625 * net(y)), y)

    return jnp.mean((jax.vmap(end)(y0) - y1) ** 2)


class Messages(eqx.Module):
    message: eqx.nn.MLP
    update: eqx.nn.MLP
    head: eqx.nn.Linear

    def __init__(self):
        one, two, three = jax.random.split(KEY, 3)
        self.message = eqx.nn.MLP(7, 4, 8, 1, key=one)
        self.update = eqx.nn.MLP(7, 3, 8, 1, key=two)
        self.head = eqx.nn.Linear(3, 1, key=three)


def graph(
    net: Messages,
    node: Float[Array, "nodes 3"],
    edge: Float[Array, "edges 1"],
    sender: Int[Array, "edges"],
    receiver: Int[Array, "edges"],
    target: Float[Array, "nodes 1"],
) -> Float[Array, ""]:
    """Two rounds of messages, summed at their receivers, and a loss at each node."""
    for _ in range(2):
        sent = jax.vmap(net.message)(jnp.concatenate([node[sender], node[receiver], edge], axis=1))
        gathered = jax.ops.segment_sum(sent, receiver, num_segments=node.shape[0])
        node = node + jax.vmap(net.update)(jnp.concatenate([node, gathered], axis=1))
    return jnp.mean((jax.vmap(net.head)(node) - target) ** 2)


def _graph(n: Any) -> dict[str, Any]:
    return {
        "net": Messages(),
        "node": normal(n["nodes"], 3),
        "edge": uniform(n["edges"], 1),
        "sender": whole(n["edges"], below=n["nodes"], seed=1),
        "receiver": whole(n["edges"], below=n["nodes"], seed=2),
        "target": normal(n["nodes"], 1, seed=3),
    }


def _ends(n: Any) -> dict[str, Any]:
    field = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=KEY)
    return {"net": field, "y0": normal(n["batch"], 2), "y1": normal(n["batch"], 2, seed=1)}


_NODES = (
    "a node's term needs those of the nodes that are joined to it: the loss is no sum of terms of"
    " one node each"
)
_ROUNDS = (
    "an edge of the second round reads the sums of all edges in the first: the loss is no sum over"
    " edges"
)

MODELS = (
    Model(
        "neural ODE, adaptive steps",
        neural_ode,
        _ends,
        {"batch": 11},
        "net",
    ),
    Model(
        "neural ODE, given steps",
        steered,
        _ends,
        {"batch": 11},
        "net",
    ),
    Model(
        "graph network",
        graph,
        _graph,
        {"nodes": 11, "edges": 21},
        "net",
        never("nodes", ("accumulate",), _NODES) | never("edges", ("accumulate",), _ROUNDS),
    ),
)
