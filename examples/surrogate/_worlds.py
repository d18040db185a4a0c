"""Causal models that a belief over parent sets holds possible: graphs drawn from it, mechanisms
drawn given the graph, and what an intervention would do in each.

A belief has one distribution for each variable, and a product of these may have circles. So a graph
is drawn along an order: a variable whose parents stand before it comes next, with the probability
that they do. The weight of what is drawn brings it back to the product of the distributions,
without circles; `log_weight` says how.

Given a graph, the mechanism of each variable is a Bayesian linear regression in its parents, or in
sine and cosine of these: the same priors as in `_expert`, and the same closed form. All random
numbers are arguments, so that a size that is padded draws what it draws at exact size.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._data import OMEGA, SPREAD, WIDTH
from ._expert import A0, B0

FLOOR = 1e-6  # of a parent set's probability: a belief that is sure of a circle still has graphs
TERMS = 1 + 3 * WIDTH  # a constant, then parents, their sines, their cosines


class Draws(eqx.Module):
    """Random numbers for one round: standard normal, Gumbel or uniform."""

    next: Float[Array, "world vars vars"]  # Gumbel: which variable comes next
    chosen: Float[Array, "world vars"]  # uniform: which parent set
    kind: Float[Array, "world vars"]  # uniform: linear or waves
    spread: Float[Array, "world vars"]  # normal: the variance of the noise
    weight: Float[Array, "world vars terms"]  # normal
    noise: Float[Array, "world repeat vars"]  # normal: of what is simulated

    @classmethod
    def of(cls, rng: np.random.Generator, worlds: int, variables: int, repeats: int) -> "Draws":
        """Noise comes in pairs of opposite sign, so that the means of linear models are exact."""
        shape = (worlds, variables)
        half = rng.normal(size=(worlds, repeats // 2, variables))
        parts = (
            rng.gumbel(size=(*shape, variables)),
            rng.random(shape),
            rng.random(shape),
            rng.normal(size=shape),
            rng.normal(size=(*shape, TERMS)),
            np.concatenate([half, -half], axis=1),
        )
        return cls(*(part.astype(np.float32) for part in parts))


class Graphs(eqx.Module):
    """Along the order of each: the first variable, the second, ..., with the parents of each."""

    order: Int[Array, "world vars"]
    index: Int[Array, "world vars parents"]
    mask: Bool[Array, "world vars parents"]
    log_weight: Float[Array, "world"]


class Worlds(eqx.Module):
    """Graphs with mechanisms."""

    graphs: Graphs
    weight: Float[Array, "world vars terms"]
    spread: Float[Array, "world vars"]  # standard deviation of the noise
    evidence: Float[Array, "world"]  # the logarithm, up to a constant


def drawn(
    log_q: Float[Array, "vars sets"],
    index: Int[Array, "vars sets parents"],
    mask: Bool[Array, "vars sets parents"],
    draws: Draws,
    weighed: bool = False,
) -> Graphs:
    """Graphs by the product of the beliefs, without circles.

    Args:
        log_q: The belief.
        index: The parent sets.
        mask: Which members count.
        draws: Random numbers.
        weighed: Whether graphs count by a prior instead, that has each size of a parent set and
            then each set with equal chance. The belief is then but where graphs come from.
    """
    q = jnp.exp(log_q) + FLOOR
    instead = log_prior(mask) - jnp.log(q) if weighed else jnp.zeros_like(q)

    def graph(gumbel: Array, uniform: Array) -> Graphs:
        def place(before: Array, numbers: tuple[Array, Array]) -> tuple[Array, tuple[Array, ...]]:
            fits = jnp.all(before[index] | ~mask, axis=2)
            inside = jnp.where(fits, q, 0.0)
            ready = jnp.where(before, 0.0, jnp.sum(inside, axis=1))
            which = jnp.argmax(jnp.log(ready) + numbers[0])
            upto = jnp.cumsum(inside[which])
            chosen = jnp.argmax(upto > numbers[1] * jnp.max(upto))
            members = index[which, chosen], mask[which, chosen]
            before = before | (jnp.arange(q.shape[0]) == which)
            return before, (which, *members, jnp.log(jnp.sum(ready)) + instead[which, chosen])

        nobody = jnp.zeros(q.shape[0], bool)
        order, parents, used, total = jax.lax.scan(place, nobody, (gumbel, uniform))[1]
        return Graphs(order, parents, used, log_weight(order, parents, used, total))

    return jax.vmap(graph)(draws.next, draws.chosen)


def log_prior(mask: Bool[Array, "vars sets parents"]) -> Float[Array, "vars sets"]:
    """Each size of a parent set with equal chance, and each set of a size, up to a constant."""
    size = jnp.sum(mask, axis=2)
    counts = jnp.sum(size[:, :, None] == jnp.arange(WIDTH + 1), axis=1)
    return -jnp.log(jnp.take_along_axis(counts, size, axis=1).astype(jnp.float32))


def log_weight(
    order: Int[Array, "vars"],
    parents: Int[Array, "vars parents"],
    used: Bool[Array, "vars parents"],
    total: Float[Array, "vars"],
) -> Float[Array, ""]:
    """The logarithm of how much a drawn graph counts.

    At each place the draw has divided by `total`, the probability that was left; so that a graph
    with many orders counts once, an order counts as if each variable whose parents stand before it
    came next with equal chance. The weight is the product of the totals over the numbers of these.
    """
    at = jnp.arange(order.shape[0])
    place = jnp.sum(jnp.where(order[:, None] == at[None, :], at[:, None], 0), axis=0)
    last = jnp.max(jnp.where(used, place[parents], -1), axis=1)
    could = (at[None, :] >= at[:, None]) & (last[None, :] < at[:, None])
    return jnp.sum(total - jnp.log(jnp.sum(could, axis=1)))


def features(x: Float[Array, "*any parents"]) -> Float[Array, "*any terms"]:
    """What a mechanism is linear in, without the constant."""
    return jnp.concatenate([x, jnp.sin(OMEGA * x), jnp.cos(OMEGA * x)], axis=-1)


def mechanisms(
    graphs: Graphs,
    values: Float[Array, "samples vars"],
    intervened: Bool[Array, "samples vars"],
    draws: Draws,
) -> Worlds:
    """Each variable's weights and noise, drawn from their posterior given its parents."""

    def fit(
        variable: Array, index: Array, mask: Array, uniform: Array, spread: Array, weight: Array
    ) -> tuple[Array, Array, Array]:
        y, free = values[:, variable], 1.0 - intervened[:, variable]
        design = features(values[:, index])
        design = jnp.concatenate([jnp.ones_like(design[:, :1]), design], axis=1)
        linear = jnp.concatenate([jnp.ones(1, bool), mask, jnp.zeros(2 * WIDTH, bool)])
        waves = jnp.concatenate([jnp.ones(1, bool), jnp.zeros(WIDTH, bool), mask, mask])
        both = [regression(design, y, free, used, spread, weight) for used in (linear, waves)]
        first = jax.nn.sigmoid(both[0][0] - both[1][0]) > uniform
        (one, weight, spread), (other, *rest) = both
        chosen = jnp.where(first, weight, rest[0]), jnp.where(first, spread, rest[1])
        return *chosen, jnp.logaddexp(one, other)

    given = (graphs.order, graphs.index, graphs.mask, draws.kind, draws.spread, draws.weight)
    weight, spread, evidence = jax.vmap(jax.vmap(fit))(*given)
    return Worlds(graphs, weight, spread, jnp.sum(evidence, axis=1))


def regression(
    design: Float[Array, "samples terms"],
    y: Float[Array, "samples"],
    free: Float[Array, "samples"],
    used: Bool[Array, "terms"],
    spread: Float[Array, ""],
    weight: Float[Array, "terms"],
) -> tuple[Float[Array, ""], Float[Array, "terms"], Float[Array, ""]]:
    """The log evidence up to a constant, and weights and standard deviation of the noise drawn from
    the posterior (Bishop 2006, equation 3.113; a gamma variate by Wilson and Hilferty, 1931).
    """
    design = jnp.where(used, design, 0.0)
    gram = (design * free[:, None]).T @ design + jnp.eye(TERMS) / SPREAD
    factor = jnp.linalg.cholesky(gram)
    half = jax.scipy.linalg.solve_triangular(factor, (design * free[:, None]).T @ y, lower=True)
    shape = A0 + jnp.sum(free) / 2
    rate = B0 + jnp.maximum(jnp.sum(free * y * y) - jnp.sum(half * half), 0.0) / 2
    evidence = -jnp.sum(jnp.log(jnp.diagonal(factor))) - shape * jnp.log(rate)
    gamma = shape * (1 - 1 / (9 * shape) + spread / (3 * jnp.sqrt(shape))) ** 3
    deviation = jnp.sqrt(rate / gamma)
    drawn = jax.scipy.linalg.solve_triangular(factor.T, half + deviation * weight)
    return evidence, jnp.where(used, drawn, 0.0), deviation


def simulated(
    worlds: Worlds, grid: Float[Array, "values"], noise: Float[Array, "world repeat vars"]
) -> Float[Array, "world vars values repeat vars"]:
    """All variables where one is set to a value: [world, which, value, repeat, variable]."""

    def world(graphs: Graphs, weight: Array, spread: Array, noise: Array) -> Array:
        at = jnp.arange(spread.shape[0])

        def place(x: Array, step: tuple[Array, ...]) -> tuple[Array, None]:
            variable, index, mask, weight, spread, noise = step
            y = features(jnp.where(mask, x[..., index], 0.0)) @ weight[1:] + weight[0]
            y = y + spread * noise
            y = jnp.where((at == variable)[:, None, None], grid[None, :, None], y)
            return jnp.where(at == variable, y[..., None], x), None

        x = jnp.zeros((at.shape[0], grid.shape[0], *noise.shape))
        steps = (graphs.order, graphs.index, graphs.mask, weight, spread, noise.T)
        return jax.lax.scan(place, x, steps)[0]

    return jax.vmap(world)(worlds.graphs, worlds.weight, worlds.spread, noise)


def log_likelihood(
    worlds: Worlds, answers: Float[Array, "world vars values vars"]
) -> Float[Array, "world vars values world"]:
    """The log density of the answers that one world gives in each of the others, up to a constant:
    the variable that is set has none.
    """
    variables = answers.shape[-1]
    at = jnp.arange(variables)
    basis = jnp.stack([answers, jnp.sin(OMEGA * answers), jnp.cos(OMEGA * answers)], axis=-2)

    def inside(graphs: Graphs, weight: Array, spread: Array) -> Array:
        # what stands for a parent's place becomes what stands for its name
        names = (graphs.index[:, :, None] == at) & graphs.mask[:, :, None]
        parts = weight[:, 1:].reshape(-1, 3, WIDTH)
        dense = jnp.einsum("tkp,tpv->tkv", parts, jnp.where(names, 1.0, 0.0))
        mean = jnp.einsum("...kv,tkv->...t", basis, dense) + weight[:, 0]
        left = jnp.take(answers, graphs.order, axis=-1) - mean
        log_density = -0.5 * (left / spread) ** 2 - jnp.log(spread)
        is_set = graphs.order == at[:, None, None]
        return jnp.sum(jnp.where(is_set, 0.0, log_density), axis=-1)

    return jnp.moveaxis(jax.vmap(inside)(worlds.graphs, worlds.weight, worlds.spread), 0, -1)
