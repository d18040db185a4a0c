"""In the style of SciPy's tutorials, of jraph's, and of simulations in JAX."""

import jax
import jax.numpy as jnp

from .case import Case, normal, positive


def ends():
    """Of edges: their senders and receivers."""
    return jnp.arange(2000) * 7 % 300, jnp.arange(2000) * 11 % 300


def message_passing(nodes, edges, w, senders, receivers):
    messages = jnp.tanh(jnp.concatenate([nodes[senders], edges], axis=1) @ w)
    return nodes + jax.ops.segment_sum(messages, receivers, num_segments=nodes.shape[0])


def graph_attention(nodes, w, a, senders, receivers):
    h = nodes @ w
    scores = jax.nn.leaky_relu(jnp.concatenate([h[senders], h[receivers]], axis=1) @ a)
    scores = jnp.exp(
        scores - jax.ops.segment_max(scores, receivers, num_segments=nodes.shape[0])[receivers]
    )
    weights = (
        scores / jax.ops.segment_sum(scores, receivers, num_segments=nodes.shape[0])[receivers]
    )
    return jax.ops.segment_sum(
        weights[:, None] * h[senders], receivers, num_segments=nodes.shape[0]
    )


def page_rank(matrix):
    start = jnp.full(matrix.shape[0], 1 / matrix.shape[0])
    return jax.lax.fori_loop(0, 30, lambda _, r: 0.85 * matrix @ r + 0.15 / r.size, start)


def spline_slopes(x, y):
    h, d = jnp.diff(x), jnp.diff(y)
    inner = 2 * (h[:-1] + h[1:])
    matrix = (
        jnp.diag(jnp.concatenate([jnp.ones(1), inner, jnp.ones(1)]))
        + jnp.diag(jnp.r_[0.0, h[:-1]], 1)
        + jnp.diag(jnp.r_[h[1:], 0.0], -1)
    )
    return jnp.linalg.solve(matrix, jnp.concatenate([d[:1], 3 * (d[:-1] + d[1:]), d[-1:]]))


def k_means(points, centres):
    def step(_, centres):
        nearest = jnp.argmin(jnp.sum((points[:, None] - centres[None]) ** 2, axis=-1), axis=1)
        member = jax.nn.one_hot(nearest, centres.shape[0])
        return (member.T @ points) / jnp.maximum(jnp.sum(member, axis=0)[:, None], 1.0)

    return jax.lax.fori_loop(0, 5, step, centres)


def principal_components(x):
    centred = x - jnp.mean(x, axis=0)
    values, vectors = jnp.linalg.eigh(centred.T @ centred / x.shape[0])
    return centred @ vectors[:, -2:], values


def waves(u, v):
    def step(state, _):
        u, v = state
        v = v + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1))
        return (u + 0.1 * v, v), u[0]

    return jax.lax.scan(step, (u, v), None, length=100)


def lennard_jones(positions):
    def energy(positions):
        squared = jnp.sum((positions[:, None] - positions[None]) ** 2, axis=-1) + 10 * jnp.eye(
            positions.shape[0]
        )
        return jnp.sum(squared**-6 - squared**-3)

    return jax.value_and_grad(energy)(positions)


CASES = [
    Case(
        "jraph",
        message_passing,
        lambda: (normal(300, 16), normal(2000, 8), normal(24, 16), *ends()),
    ),
    Case("jraph", graph_attention, lambda: (normal(300, 16), normal(16, 16), normal(32), *ends())),
    Case("networkx", page_rank, lambda: (positive(200, 200) / 200,)),
    Case("scipy", spline_slopes, lambda: (jnp.linspace(0.0, 1.0, 60), normal(60))),
    Case("scikit-learn", k_means, lambda: (normal(1000, 4), normal(8, 4, seed=1))),
    Case("scikit-learn", principal_components, lambda: (normal(1000, 20),)),
    Case("simulation", waves, lambda: (normal(1000), normal(1000, seed=1))),
    Case("jax-md", lennard_jones, lambda: (3 * normal(100, 3),)),
]
