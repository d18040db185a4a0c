"""A physics-informed network: a drum skin under a load, Poisson's equation on the unit square, from
the equation alone.

`lazy_derivatives` gives the network derivatives that are traced on first use, so the loss reads
like the equation. The Laplacian is the sum of `hessian_diag`, the second derivatives without the
mixed ones, and a step takes as long as with two of them by hand, one along each coordinate: a
quarter of what it takes with `jax.hessian`. A wrong name or shape is an error that says what to
write.
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

adam = optax.adam(3e-3)


# %% The function, as one would write it
def height(net: eqx.nn.MLP, at: Float[Array, "2"]) -> Float[Array, ""]:
    """Of the skin: zero at the rim, whatever the network says."""
    return jnp.prod(at * (1 - at)) * net(at)


def load(at: Float[Array, "2"]) -> Float[Array, ""]:
    """Whose solution is known: sin(pi x) sin(2 pi y)."""
    return 5 * np.pi**2 * jnp.sin(np.pi * at[0]) * jnp.sin(2 * np.pi * at[1])


# %% The decorator line
skin = jitney.lazy_derivatives(wrt="at")(height)


def loss(net: eqx.nn.MLP, points: Float[Array, "points 2"]) -> Float[Array, ""]:
    """How far the equation is from holding."""
    return jnp.mean(
        jax.vmap(lambda at: jnp.sum(skin.hessian_diag(net, at)) + load(at))(points) ** 2
    )


# %% Without jitney
def loss_by_jax(net: eqx.nn.MLP, points: Float[Array, "points 2"]) -> Float[Array, ""]:
    hessian = jax.hessian(height, argnums=1)
    return jnp.mean(jax.vmap(lambda at: jnp.trace(hessian(net, at)) + load(at))(points) ** 2)


def step_of(loss):
    """One step of Adam on a loss."""

    def step(net: eqx.nn.MLP, state, points: Float[Array, "points 2"]):
        value, grads = eqx.filter_value_and_grad(loss)(net, points)
        updates, state = adam.update(grads, state)
        return eqx.apply_updates(net, updates), state, value

    return step


step, step_by_jax = jitney.optimize(step_of(loss)), eqx.filter_jit(step_of(loss_by_jax))


def fresh():
    """A network and the state of its optimiser."""
    net = eqx.nn.MLP(2, "scalar", 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    return net, adam.init(eqx.filter(net, eqx.is_array))


def points(number: int, seed: int = 0) -> np.ndarray:
    """Random places on the square."""
    return np.random.default_rng(seed).uniform(0, 1, (number, 2)).astype(np.float32)


# %% By hand: two derivatives, without the mixed one, and arrays alone cross the call
def loss_by_hand(net: eqx.nn.MLP, points: Float[Array, "points 2"]) -> Float[Array, ""]:
    def second(at: Array, along: np.ndarray) -> Array:
        def slope(at: Array) -> Array:
            return jax.jvp(lambda at: height(net, at), (at,), (along,))[1]

        return jax.jvp(slope, (at,), (along,))[1]

    x, y = np.eye(2, dtype=np.float32)
    return jnp.mean(jax.vmap(lambda at: second(at, x) + second(at, y) + load(at))(points) ** 2)


def by_hand(net: eqx.nn.MLP):
    """The step as `jax.jit`; the arrays that it takes, and their state."""
    arrays, fixed = eqx.partition(net, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)

    @jax.jit
    def step(leaves: list[Array], state, points: Float[Array, "points 2"]):
        def of(leaves: list[Array]) -> Array:
            return loss_by_hand(eqx.combine(jax.tree.unflatten(tree, leaves), fixed), points)

        value, grads = jax.value_and_grad(of)(leaves)
        updates, state = adam.update(grads, state)
        return optax.apply_updates(leaves, updates), state, value

    return step, leaves, adam.init(leaves)


# %% The plan
def plan() -> tuple[object, ...]:
    """Of the second derivatives at one place."""
    return (skin.hessian_diag.plan(fresh()[0], np.float32([0.3, 0.4])),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """A step on points: the loss, and the gradients that Adam has kept."""
    begin, places = fresh(), points(512 if full else 16)
    compiled, *arrays = by_hand(begin[0])

    def by_lazy_derivatives(places: Array) -> object:
        return jax.tree.leaves(step(*begin, places)[1:])

    def by_jax_hessian(places: Array) -> object:
        return jax.tree.leaves(step_by_jax(*begin, places)[1:])

    def with_two(places: Array) -> object:
        return jax.tree.leaves(compiled(*arrays, places)[1:])

    options = {"tolerance": 1e-4, "seconds": 2.0 if full else 0.1}
    return {
        "a step, beside jax.hessian": jitney.measure(
            by_lazy_derivatives, places, against=by_jax_hessian, **options
        ),
        "a step, two derivatives by hand (ours compiled above)": jitney.measure(
            by_lazy_derivatives, places, against=with_two, **options
        ),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """What was learnt from the equation, and how far it is from the truth."""
    net, state = fresh()
    for i in range(3000 if full else 2):
        net, state, _ = step(net, state, points(512 if full else 16, i))
    grid = np.linspace(0, 1, 60, dtype=np.float32)
    x, y = np.meshgrid(grid, grid)
    learnt = jax.vmap(jax.vmap(lambda at: height(net, at)))(jnp.stack([x, y], -1))
    truth = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    for axes, values, title in zip(
        figure.subplots(1, 2), (learnt, learnt - truth), ("height", "error"), strict=True
    ):
        most = float(np.abs(values).max())
        image = axes.imshow(
            values,
            extent=(0, 1, 0, 1),
            origin="lower",
            cmap="RdBu_r",
            vmin=-most,
            vmax=most,
            interpolation="none",
        )
        figure.colorbar(image, ax=axes, format="%.2g")
        axes.set(title=title)
