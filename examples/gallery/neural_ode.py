"""A neural ODE (diffrax): a vector field learnt from trajectories of a damped pendulum, batch by
batch.

The number of trajectories in a batch varies. The loss is written for one; `vmap` maps it and its
gradient, and with `pad` 17 to 32 trajectories share one program. The gain is compile time, seconds
for each number of trajectories. A warm call computes the padding too, and the gradient of each
trajectory before it takes the mean: 1.3 times as long as with a mask by hand. Written as one loss
over the batch, with `pad` on its axis, the sum is contracted inside the program, and a warm call
takes 1.1 times as long as with the mask (beside load); but jitney has to prove diffrax's loops
along the axis, and traces each new size, since diffrax handles exceptions. Here the axis is mapped:
each trajectory is alone, so nothing has to be proven.
"""

# %% Imports
import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.integrate
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jitney

adam = optax.adam(1e-2)


# %% The function, as one would write it for one trajectory
def loss(
    field: eqx.nn.MLP, seen: Float[Array, "time 2"], times: Float[Array, "time"]
) -> Float[Array, ""]:
    """How far the solution from the first point is from the others, by Heun's method."""
    term = diffrax.ODETerm(lambda t, y, field: field(y))
    every = diffrax.SaveAt(ts=times)
    solution = diffrax.diffeqsolve(
        term, diffrax.Heun(), times[0], times[-1], 0.05, seen[0], field, saveat=every
    )
    return jnp.mean((solution.ys - seen) ** 2)


# %% The decorator line
losses = jitney.optimize(vmap={"trajectory": {"seen": 0}}, pad={"trajectory": "pow2"})(loss)


# %% The same as one loss over the batch: quicker calls, and a trace for each new size
@jitney.optimize(pad={"trajectory": "pow2"})
def mean_loss(
    field: eqx.nn.MLP,
    seen: Float[Array, "trajectory time 2"],
    times: Float[Array, "time"],
) -> Float[Array, ""]:
    """The mean over trajectories."""
    return jnp.mean(jax.vmap(loss, in_axes=(None, 0, None))(field, seen, times))


# %% Without jitney
def gradient(
    field: eqx.nn.MLP,
    seen: Float[Array, "trajectory time 2"],
    times: Float[Array, "time"],
):
    """Of the mean over trajectories, from the values and gradients of each."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf).mean(0),
        losses.value_and_grad(field, seen, times, wrt="field"),
    )


@eqx.filter_jit
def plain(field: eqx.nn.MLP, seen: Float[Array, "trajectory time 2"], times: Float[Array, "time"]):
    """The same by Equinox, a program for each number of trajectories."""
    return eqx.filter_value_and_grad(
        lambda field: jnp.mean(jax.vmap(loss, in_axes=(None, 0, None))(field, seen, times))
    )(field)


# %% By hand: a mask of the trajectories, and their number rounded up
def by_hand(field: eqx.nn.MLP):
    """Value and gradient of the mean over a batch, of as many as the next power of two: the last
    trajectory again. Arrays alone cross the call.
    """
    arrays, fixed = eqx.partition(field, eqx.is_array)

    @jax.jit
    @jax.value_and_grad
    def rounded(arrays: eqx.nn.MLP, number: int, seen: Array, times: Array) -> Array:
        field = eqx.combine(arrays, fixed)
        each = jax.vmap(loss, in_axes=(None, 0, None))(field, seen, times)
        return jnp.sum(jnp.where(jnp.arange(each.size) < number, each, 0.0)) / number

    def run(seen: np.ndarray, times: np.ndarray):
        more = (1 << (len(seen) - 1).bit_length()) - len(seen)
        wide = np.pad(seen, ((0, more), (0, 0), (0, 0)), mode="edge")
        return rounded(arrays, np.int32(len(seen)), wide, times)

    return run


# %% The data
TIMES = np.linspace(0, 1.5, 16, dtype=np.float32)


def fresh(width: int = 32):
    """A network and the state of its optimiser."""
    field = eqx.nn.MLP(2, 2, width, 1, activation=jnp.tanh, key=jax.random.key(0))
    return field, adam.init(eqx.filter(field, eqx.is_array))


def pendulum(t: float, y: np.ndarray) -> np.ndarray:
    """The truth: an angle and its velocity, with friction."""
    return np.stack([y[1], -np.sin(y[0]) - 0.2 * y[1]])


@functools.cache
def trajectories(number: int, seed: int = 0) -> np.ndarray:
    """What is seen: trajectories of the pendulum from random starts."""
    starts = np.random.default_rng(seed).uniform(-2, 2, (number, 2))
    paths = [
        scipy.integrate.solve_ivp(pendulum, (0, 2), start, t_eval=TIMES, rtol=1e-8).y.T
        for start in starts
    ]
    return np.stack(paths).astype(np.float32)


# %% The plan
def plan() -> tuple[object, ...]:
    """Of 20 trajectories, which share the program of 17 to 32."""
    return (losses.plan(fresh()[0], trajectories(20), TIMES),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """Batches of several sizes, compiled when they first come."""
    batches, (field, _) = (
        [trajectories(size, size) for size in (range(17, 33, 4) if full else (5,))],
        fresh(),
    )
    compiled = by_hand(field)

    def with_pad() -> list[object]:
        return [gradient(field, batch, TIMES) for batch in batches]

    def at_exact_size() -> list[object]:
        return [plain(field, batch, TIMES) for batch in batches]

    def with_mask() -> list[object]:
        return [compiled(batch, TIMES) for batch in batches]

    def as_one_loss() -> list[object]:
        return [mean_loss.value_and_grad(field, batch, TIMES, wrt="field") for batch in batches]

    what, seconds = f"gradients of batches of {len(batches)} sizes", 2.0 if full else 0.1
    figures = {
        what: jitney.measure(with_pad, against=at_exact_size, tolerance=1e-4, seconds=seconds),
        f"{what}, a mask by hand (ours compiled above)": jitney.measure(
            with_pad, against=with_mask, tolerance=1e-4, seconds=seconds
        ),
    }
    if full:
        figures[f"{what}, as one loss (by hand compiled above)"] = jitney.measure(
            as_one_loss, against=with_mask, tolerance=1e-4, seconds=seconds
        )
    return figures


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """The field that was learnt, and trajectories that it was not shown."""
    field, state = fresh()
    for i in range(300 if full else 2):
        _, grads = gradient(field, trajectories(17 + i % 16 if full else 5, i % 16), TIMES)
        updates, state = adam.update(grads, state)
        field = eqx.apply_updates(field, updates)
    axes = figure.subplots()
    angle, velocity = np.meshgrid(*2 * [np.linspace(-2.2, 2.2, 11, dtype=np.float32)])
    slope = jax.vmap(jax.vmap(field))(jnp.stack([angle, velocity], -1))
    axes.quiver(angle, velocity, slope[..., 0], slope[..., 1], color="#808080", width=0.003)
    axes.plot(*trajectories(6, seed=10**6).T, color="#d9742b")
    paths = [
        scipy.integrate.solve_ivp(lambda t, y: field(y), (0, 2), path[0], t_eval=TIMES).y
        for path in trajectories(6, seed=10**6)
    ]
    axes.plot(*np.stack(paths, 2), "--", color="#2f7fd8")
    axes.set(
        xlabel="angle",
        ylabel="velocity",
        title="the pendulum's trajectories, and those of the field that was learnt (dashed)",
    )
