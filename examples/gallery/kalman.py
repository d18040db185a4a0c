"""A Kalman filter over devices: the likelihood of many noisy tracks, each device with its share of
them.

`vmap` maps the filter of one track, `shard` distributes the tracks over the devices, and nothing is
sent: tracks are independent, and jitney says so before anything runs. The same with `jax.vmap` and
shardings is as fast. More virtual devices on one CPU do not make it faster.
"""

# %% Imports
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jitney

MOVE = np.array([[1, 1], [0, 1]], np.float32)  # a place and its velocity, one step on
# the covariance of what a random force adds in one step
PUSHED = np.array([[1 / 3, 1 / 2], [1 / 2, 1]], np.float32)
BEFORE = np.diag([100, 1]).astype(np.float32)  # of the first state, before anything is seen


# %% The function, as one would write it for one track
def track(
    force: Float[Array, ""], noise: Float[Array, ""], seen: Float[Array, "time"]
) -> tuple[Float[Array, ""], Float[Array, "time 2"]]:
    """The logarithm of the likelihood, and the states as far as they are known at each time."""

    def update(known, place: Array):
        mean, covariance = known
        spread = covariance[0, 0] + noise
        gain, miss = covariance[:, 0] / spread, place - mean[0]
        mean, covariance = mean + gain * miss, covariance - jnp.outer(gain, covariance[0])
        evidence = -0.5 * (miss**2 / spread + jnp.log(2 * np.pi * spread))
        return (MOVE @ mean, MOVE @ covariance @ MOVE.T + force * PUSHED), (evidence, mean)

    _, (evidence, means) = jax.lax.scan(update, (jnp.zeros(2), jnp.asarray(BEFORE)), seen)
    return jnp.sum(evidence), means


# %% The decorator line
tracks = jitney.optimize(vmap="track", shard={"track": "data"})(track)


# %% Without jitney, and the data
@functools.cache
def compiled_by_hand():
    """With `jax.vmap` and a sharding for each argument and result."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    whole, part = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for axes in ((), ("data",))
    )
    mapped = jax.vmap(track, in_axes=(None, None, 0))
    return jax.jit(mapped, in_shardings=(whole, whole, part), out_shardings=(part, part))


def by_hand(force: Array, noise: Array, seen: Array) -> tuple[Array, Array]:
    """The same without jitney."""
    return compiled_by_hand()(force, noise, seen)


def by_jitney(force: Array, noise: Array, seen: Array) -> tuple[Array, Array]:
    """On the devices of the mesh around it."""
    return tracks(force, noise, seen)


FORCE, NOISE = np.float32(0.01), np.float32(4.0)


def walks(number: int, steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True places, and what is seen of them."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(number, 2)) @ np.sqrt(np.diag([100, 1]))
    root, places = np.linalg.cholesky(FORCE * PUSHED.astype(float)), []
    for _ in range(steps):
        places.append(states[:, 0])
        states = states @ MOVE.T + rng.normal(size=(number, 2)) @ root.T
    true = np.stack(places, 1)
    return true, (true + np.sqrt(NOISE) * rng.normal(size=true.shape)).astype(np.float32)


# %% The plan, and what is sent
def plan() -> tuple[object, ...]:
    """Of as many tracks as divide among the devices."""
    seen = walks(64, 100)[1]
    with jitney.mesh(data=-1):
        return tracks.plan(FORCE, NOISE, seen), jitney.analysis.communication(
            tracks, FORCE, NOISE, seen
        )


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """All tracks, by jitney and by hand."""
    seen = walks(4096 if full else 16, 200 if full else 20)[1]
    with jitney.mesh(data=-1):
        measured = jitney.measure(
            by_jitney,
            FORCE,
            NOISE,
            seen,
            against=by_hand,
            seconds=2.0 if full else 0.1,
            on_device=False,
        )
    return {f"{jax.device_count()} devices": measured}


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """One track, and how far what is seen and what is known of it are from the truth."""
    number = jax.device_count()
    true, seen = walks(number, 100 if full else 20, seed=3)
    with jitney.mesh(data=-1):
        _, means = by_jitney(FORCE, NOISE, seen)
    whole, apart = figure.subplots(1, 2)
    whole.plot(true[0], color="#d9742b")
    whole.set(xlabel="time", ylabel="place", title="the truth")
    apart.plot(seen[0] - true[0], ".", color="black", markersize=3, label="seen")
    apart.plot(np.asarray(means)[0, :, 0] - true[0], color="#2f7fd8", label="filtered")
    apart.axhline(0, color="#d9742b", linewidth=1)
    apart.set(xlabel="time", title="distance from the truth")
    apart.legend(frameon=False, ncols=2)
