"""An ensemble of MLPs: the training step of one network, mapped over thirty; where they disagree,
nothing is known.

`vmap={"member": ...}` names the arguments that have the axis. The compiled step does the same as
that of `eqx.filter_vmap`, and a call spends somewhat less time on the host. There is more: the plan
lists what is mapped, the buffers of the old ensemble are donated, and every call is checked. Most
people start with a loop over the members. Compared with that loop, a step is many times as
fast. Ten lines by hand, whose calls take arrays alone, are as fast.
"""

# %% Imports
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jitney

adam = optax.adam(1e-2)


# %% The function, as one would write it for one network
def loss(
    net: eqx.nn.MLP, x: Float[Array, "points 1"], y: Float[Array, "points"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


def step(net: eqx.nn.MLP, state, x: Float[Array, "points 1"], y: Float[Array, "points"]):
    """One step of Adam."""
    value, grads = eqx.filter_value_and_grad(loss)(net, x, y)
    updates, state = adam.update(grads, state)
    return eqx.apply_updates(net, updates), state, value


# %% The decorator line
ensemble = jitney.optimize(vmap={"member": {"net": 0, "state": 0}}, donate=("net", "state"))(step)

# %% Without jitney, and the data
# gives nothing up, so that it can be called again with the same
kept = jitney.optimize(vmap={"member": {"net": 0, "state": 0}})(step)
MAPPED = eqx.if_array(0)
by_equinox = eqx.filter_jit(
    eqx.filter_vmap(step, in_axes=(MAPPED, MAPPED, None, None), out_axes=(MAPPED, MAPPED, 0))
)
alone = eqx.filter_jit(step)


def one(key: Array):
    """A network and the state of its optimiser."""
    net = eqx.nn.MLP(1, "scalar", 32, 2, activation=jnp.tanh, key=key)
    return net, adam.init(eqx.filter(net, eqx.is_array))


def members(number: int):
    """Networks with random weights of their own, stacked."""
    return eqx.filter_vmap(one, out_axes=MAPPED)(jax.random.split(jax.random.key(0), number))


def member(tree: object, i: int) -> object:
    """One of what is stacked."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i] if eqx.is_array(leaf) else leaf, tree)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Two clouds of points on a curve, with a gap between them."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, -0.3, 60), rng.uniform(0.4, 1, 60)])
    return x[:, None].astype(np.float32), (np.sin(5 * x) + 0.1 * rng.normal(size=120)).astype(
        np.float32
    )


# %% By hand: arrays alone cross the call, and all that is fixed is left outside
def by_hand(nets: eqx.nn.MLP):
    """The step of all as `jax.jit` of `jax.vmap`; the arrays that it takes, and their states."""
    arrays, fixed = eqx.partition(nets, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)

    def one(leaves: list[Array], state, x: Array, y: Array):
        def of(leaves: list[Array]) -> Array:
            return loss(eqx.combine(jax.tree.unflatten(tree, leaves), fixed), x, y)

        value, grads = jax.value_and_grad(of)(leaves)
        updates, state = adam.update(grads, state)
        return optax.apply_updates(leaves, updates), state, value

    return jax.jit(jax.vmap(one, (0, 0, None, None))), leaves, jax.vmap(adam.init)(leaves)


# %% The plan
def plan() -> tuple[object, ...]:
    """Of thirty members."""
    return (ensemble.plan(*members(30), *data()),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """A step of all members, beside `filter_vmap`, by hand, and beside a loop over the members."""
    together, points = members(30), data()
    compiled, *begin = by_hand(together[0])
    apart = [member(together, i) for i in range(30)]

    def in_one() -> object:
        return kept(*together, *points)[1:]

    def mapped() -> object:
        return by_equinox(*together, *points)[1:]

    def losses() -> Array:
        return kept(*together, *points)[2]

    def with_vmap() -> Array:
        return compiled(*begin, *points)[2]

    def in_a_loop() -> Array:
        return np.stack([alone(*each, *points)[2] for each in apart])

    seconds = 2.0 if full else 0.1
    return {
        "a step of all, beside filter_vmap": jitney.measure(
            in_one, against=mapped, tolerance=1e-4, seconds=seconds
        ),
        "a step of all, by hand (ours compiled above)": jitney.measure(
            losses, against=with_vmap, tolerance=1e-4, seconds=seconds
        ),
        "a step of all, beside a loop": jitney.measure(losses, against=in_a_loop, seconds=seconds),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """What each member says, and where they disagree."""
    nets, state = members(30)
    for _ in range(400 if full else 2):
        nets, state, _ = ensemble(nets, state, *data())
    new = np.linspace(-1.4, 1.4, 120, dtype=np.float32)[:, None]
    said = np.asarray(eqx.filter_vmap(lambda net: jax.vmap(net)(new))(nets))
    axes = figure.subplots()
    axes.plot(new, said[:10].T, color="#2f7fd8", linewidth=0.5)
    axes.fill_between(
        new[:, 0],
        said.mean(0) - 2 * said.std(0),
        said.mean(0) + 2 * said.std(0),
        color="#2f7fd8",
        alpha=0.15,
        linewidth=0,
    )
    axes.plot(*data(), ".", color="black", markersize=3)
    axes.set(
        xlabel="x",
        ylabel="y",
        ylim=(-2.5, 2.5),
        title=f"{len(said)} networks: ten of them, and two standard deviations of all",
    )
