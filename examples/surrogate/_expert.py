"""The exact posterior over the parent sets of one variable, for few variables: what the network
learns to imitate.

A parent set alone is judged by a closed form: the evidence of a Bayesian linear regression of a
variable on its parents, or on sine and cosine of them, over the samples in which nobody set the
variable (Cooper and Yoo, "Causal discovery from a mixture of experimental and observational data",
1999). Children predict a variable as well as parents do, so a set cannot be judged without the rest
of the graph: graphs are summed over, all orders of the variables and for each order all parent sets
from those before (Koivisto and Sood, "Exact Bayesian structure discovery in Bayesian networks",
2004), with the probabilities by which `_data` draws orders and sets. The logarithm of that sum has
as its derivative with respect to the score of one parent set the posterior probability of that set.
"""

import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import gammaln

import jitney

from ._data import (
    EXACT,
    OMEGA,
    SPREAD,
    Batch,
    Samples,
    arrays_of,
    draw,
    inputs,
    most_parents,
    parent_sets,
    parents,
    true_sets,
)

A0, B0 = 2.0, 0.5  # of the inverse gamma distribution of the variance of the noise
_NEVER = -1e30  # of what is left out of a sum of exponentials; minus infinity has no derivative


def evidence(
    gram: Float[np.ndarray, "*batch k k"],
    moment: Float[np.ndarray, "*batch k"],
    square: Float[np.ndarray, "*batch"],
    count: Float[np.ndarray, "*batch"],
    used: Bool[np.ndarray, "*batch k"],
) -> Float[np.ndarray, "*batch"]:
    """Log marginal likelihood of y = F w + e, with conjugate normal-inverse-gamma priors.

    Bishop, "Pattern recognition and machine learning", 2006, equation 3.118, with m0 = 0 and S0 =
    SPREAD.

    Args:
        gram: F^T F.
        moment: F^T y.
        square: y^T y.
        count: How many samples.
        used: Which features are in the regression.
    """
    gram = (
        np.where(used[..., :, None] & used[..., None, :], gram, 0.0)
        + np.eye(used.shape[-1]) / SPREAD
    )
    factor = np.linalg.cholesky(gram)
    z = np.linalg.solve(factor, np.where(used, moment, 0.0)[..., None])[..., 0]
    a, b = A0 + count / 2, B0 + (square - np.sum(z * z, axis=-1)) / 2
    volume = -np.sum(np.log(np.diagonal(factor, axis1=-2, axis2=-1)), axis=-1) - used.shape[
        -1
    ] / 2 * np.log(SPREAD)
    return (
        volume
        - count / 2 * np.log(2 * np.pi)
        + A0 * np.log(B0)
        - a * np.log(b)
        + gammaln(a)
        - gammaln(A0)
    )


def scores(
    values: Float[np.ndarray, "example samples vars"],
    intervened: Bool[np.ndarray, "example samples vars"],
) -> Float[np.ndarray, "example vars sets"]:
    """For each variable and each of its parent sets, the log evidence of a mechanism that is linear
    or nonlinear, with equal chance.
    """
    variables, free = values.shape[2], 1.0 - intervened
    features = np.concatenate(
        [np.ones_like(values[:, :, :1]), values, np.sin(OMEGA * values), np.cos(OMEGA * values)],
        axis=2,
    )
    count, square = free.sum(1), np.sum(free * values**2, axis=1)
    out = []
    for variable in range(variables):
        weighted = free[:, :, variable, None] * features
        gram, moment = (
            weighted.mT @ features,
            np.einsum("enk,en->ek", weighted, values[:, :, variable]),
        )
        index, mask = arrays_of(variables, variable)
        always = np.zeros((len(index), 1), int)
        linear, waves = (
            [always, 1 + index],
            [always, 1 + variables + index, 1 + 2 * variables + index],
        )
        found = []
        for places, used in ((linear, [always == 0, mask]), (waves, [always == 0, mask, mask])):
            at, there = np.concatenate(places, axis=1), np.concatenate(used, axis=1)
            shape = (len(values), len(index))
            each = [np.broadcast_to(part[:, variable, None], shape) for part in (square, count)]
            found.append(
                evidence(
                    gram[:, at[:, :, None], at[:, None, :]],
                    moment[:, at],
                    *each,
                    np.broadcast_to(there, (*shape, there.shape[1])),
                )
            )
        out.append(np.logaddexp(*found) - np.log(2))
    return np.stack(out, axis=1)


@lru_cache
def _tables(
    variables: int,
) -> tuple[np.ndarray, tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]]:
    """Log prior of each parent set where a set of variables, as bits, comes before: [variable,
    before, set]. And how subsets are built up: for each size, the subsets, their members, and what
    is left without each member.
    """
    subsets = np.arange(2**variables)
    sizes = np.array([int(s).bit_count() for s in subsets])
    most = most_parents(variables)
    choices = np.array(
        [[_choose(n, k) for k in range(most + 1)] for n in range(variables + 1)], float
    )
    prior = []
    for variable in range(variables):
        sets = parents(variables, variable)
        bits, size = (
            np.array([sum(1 << i for i in s) for s in sets]),
            np.array([len(s) for s in sets]),
        )
        fits = (bits[None] & ~subsets[:, None]) == 0
        chance = 1 / np.maximum(choices[sizes][:, size], 1) / (1 + np.minimum(most, sizes))[:, None]
        prior.append(np.where(fits, np.log(chance), _NEVER))
    levels = []
    for size in range(1, variables + 1):
        here = subsets[sizes == size]
        members = np.array([[i for i in range(variables) if s >> i & 1] for s in here])
        levels.append((here, members, here[:, None] & ~(1 << members)))
    return np.array(prior), tuple(levels)


def _choose(n: int, k: int) -> int:
    return (
        0
        if k > n
        else int(
            np.prod([n - i for i in range(k)], dtype=float)
            / np.prod([i + 1 for i in range(k)], dtype=float)
            + 0.5
        )
    )


@jitney.optimize(vmap="example", pad={"example": [32, 256, 1024]}, precision="f64")
def log_sum(local: Float[Array, "vars sets"]) -> Float[Array, ""]:
    """The logarithm of the mean over orders of the sum over parent sets of products of prior and
    exponential of the score.
    """
    prior, levels = _tables(local.shape[0])
    before = jax.nn.logsumexp(local[:, None, :] + prior, axis=2)  # [variable, those before it]
    total = jnp.full(prior.shape[1], _NEVER, local.dtype).at[0].set(0.0)
    for here, members, left in levels:
        total = total.at[here].set(jax.nn.logsumexp(total[left] + before[members, left], axis=1))
    return total[-1] - math.lgamma(local.shape[0] + 1.0)


def posterior(
    local: Float[np.ndarray, "example vars sets"],
) -> Float[np.ndarray, "example vars sets"]:
    """The probability of each parent set of each variable, from the log evidence of each."""
    return np.asarray(log_sum.grad(local)["local"])


def expert(drawn: Samples) -> Float[np.ndarray, "example sets"]:
    """What to imitate: the exact posterior for up to six variables; above, the true set with
    probability 1.

    In the mean over models, the KL divergence to the true set is smallest for the posterior too.
    """
    examples, _, variables = drawn.values.shape
    if variables > EXACT:
        found = np.zeros((examples, len(parent_sets(variables, 0))), np.float32)
        found[np.arange(examples), true_sets(drawn)] = 1
        return found
    found = posterior(scores(drawn.values, drawn.intervened))
    return found[np.arange(examples), drawn.target].astype(np.float32)


def batch(rng: np.random.Generator, examples: int, variables: int, samples: int = 32) -> Batch:
    """Examples to learn from or to be tested with."""
    drawn = draw(rng, examples, variables, samples)
    x = inputs(drawn)
    index, mask = (
        np.stack(parts)
        for parts in zip(*(arrays_of(variables, int(t)) for t in drawn.target), strict=True)
    )
    return Batch(x, index, mask, expert(drawn), true_sets(drawn), drawn.target)
