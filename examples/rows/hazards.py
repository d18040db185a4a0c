"""Events in time windows: the cumulative hazard of each group of patients by Nelson and Aalen, and
the likelihood of a Hawkes process for parameters that all windows share.
"""

# %% Imports
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

import jitney

from ._by_hand import blocks, in_order
from ._sides import SMALL, Lengths, Work


# %% The function of one row: of hazard
def cumulative_hazard(
    at: Float[Array, "grid"], time: Float[Array, "patient"], died: Bool[Array, "patient"]
) -> Float[Array, "grid"]:
    """Nelson-Aalen: at each death one over those at risk. No two times are equal."""
    order = jnp.argsort(time)
    at_risk = time.shape[0] - jnp.arange(time.shape[0])
    steps = jnp.where(died[order], 1 / at_risk.astype(time.dtype), 0)
    return (time[order] <= at[:, None]).astype(time.dtype) @ steps


# %% With jitney: of hazard
hazards = jitney.optimize(vmap="group", pad={"patient": "pow2"}, chunk={"group": 64})(
    cumulative_hazard
)


# %% By hand, masks, the same buckets: of hazard
@jax.jit
def hazard_of_block(at, time, died, count):
    def masked(time, died, count):
        rank = jnp.arange(time.shape[0])
        inside = rank < count
        order = jnp.argsort(jnp.where(inside, time, jnp.inf))
        at_risk = jnp.where(inside, count - rank, 1).astype(time.dtype)
        steps = jnp.where(inside & died[order], 1 / at_risk, 0)
        found = jnp.searchsorted(jnp.where(inside, time[order], jnp.inf), at, side="right")
        return jnp.concatenate([jnp.zeros(1, time.dtype), jnp.cumsum(steps)])[found]

    return jax.vmap(masked)(time, died, count)


def hazard_by_hand(at, time, died):
    parts = [(rows, hazard_of_block(at, *given)) for rows, _, given in blocks([time, died])]
    return in_order(len(time), parts)


# %% A compile for each length: of hazard
hazard_alone = jax.jit(cumulative_hazard)


def hazard_a_length(at, time, died):
    return np.stack([hazard_alone(at, *group) for group in zip(time, died, strict=True)])


# %% The function of one row: of hawkes
def hawkes(
    theta: Float[Array, "3"], end: Float[Array, ""], time: Float[Array, "event"]
) -> Float[Array, ""]:
    """Log-likelihood of events from 0 to `end`; each raises the rate, which decays again."""
    rate, jump, decay = jnp.exp(theta)

    def step(raised, gap):
        raised = raised * jnp.exp(-decay * gap)
        return raised + 1, jnp.log(rate + jump * decay * raised)

    _, logs = lax.scan(step, jnp.zeros_like(rate), jnp.diff(time, prepend=0))
    return jnp.sum(logs) - rate * end - jump * jnp.sum(1 - jnp.exp(-decay * (end - time)))


# %% With jitney: of hawkes
bursts = jitney.optimize(vmap="window", pad={"event": "pow2"})(hawkes)


def hawkes_by_jitney(theta, ends, time):
    found = bursts.value_and_grad(theta, ends, time, wrt="theta")
    return jax.tree.map(lambda each: -np.sum(np.asarray(each), axis=0), found)


# %% By hand, masks, the same buckets: of hawkes
@jax.jit
@jax.value_and_grad
def hawkes_of_block(theta, ends, time, count, own):
    rate, jump, decay = jnp.exp(theta)

    def masked(end, time, count):
        inside = jnp.arange(time.shape[0]) < count

        def step(raised, gap):
            raised = raised * jnp.exp(-decay * gap)
            return raised + 1, jnp.log(rate + jump * decay * raised)

        # beyond the last event it goes on with its time, or the gap is negative and `exp` overflows
        time = jnp.where(inside, time, time[count - 1])
        _, logs = lax.scan(step, jnp.zeros_like(rate), jnp.diff(time, prepend=0))
        faded = jnp.where(inside, 1 - jnp.exp(-decay * (end - time)), 0)
        return jnp.sum(jnp.where(inside, logs, 0)) - rate * end - jump * jnp.sum(faded)

    each = jax.vmap(masked)(ends, time, count)
    return -jnp.sum(jnp.where(jnp.arange(len(each)) < own, each, 0))


def hawkes_by_hand(theta, ends, time):
    found = [
        hawkes_of_block(theta, ends[rows], *given, np.int32(count))
        for rows, count, given in blocks([time], most=256)
    ]
    return jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *found)


# %% A compile for each length: of hawkes
hawkes_alone = jax.jit(jax.value_and_grad(lambda theta, end, time: -hawkes(theta, end, time)))


def hawkes_a_length(theta, ends, time):
    found = [hawkes_alone(theta, *window) for window in zip(ends, time, strict=True)]
    return jax.tree.map(lambda *parts: sum(map(np.asarray, parts)), *found)


# %% Data
def groups(sizes: Lengths, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Times in years of deaths, and of patients who left before."""
    rng, counts = sizes.draw(seed)
    times, died = [], []
    for n in counts:
        death, left = rng.exponential(5, n), rng.uniform(0, 10, n)
        times.append(np.minimum(death, left).astype(np.float32))
        died.append(death < left)
    return times, died


def windows(sizes: Lengths, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Ends of the windows, and events."""
    rng, counts = sizes.draw(seed)
    times = [np.cumsum(rng.exponential(1, n)).astype(np.float32) for n in counts]
    return np.array([time[-1] + 1 for time in times], np.float32), times


def works(*, full: bool) -> tuple[Work, ...]:
    """Both."""
    sizes = Lengths(2000, 100, 5, 1000) if full else SMALL
    grid = np.linspace(0, 10, 101, dtype=np.float32)
    return (
        Work(
            "hazard",
            "cumulative hazard of groups (Nelson-Aalen)",
            (grid,),
            lambda seed: groups(sizes, seed),
            {"jitney": hazards, "by hand": hazard_by_hand, "a length": hazard_a_length},
            (hazards,),
            rtol=1e-4,
            atol=1e-5,
        ),
        Work(
            "hawkes",
            "Hawkes process, value and gradient for shared parameters",
            (np.log(np.array([0.5, 0.4, 1.5], np.float32)),),
            lambda seed: windows(sizes, seed),
            {"jitney": hawkes_by_jitney, "by hand": hawkes_by_hand, "a length": hawkes_a_length},
            (bursts,),
            rtol=1e-4,
            atol=1e-5 * sizes.count,
        ),
    )
