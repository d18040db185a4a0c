"""An image classifier in bfloat16: a convolutional network that tells discs, squares, crosses and
rings apart.

`precision="bf16"` rounds the factors of convolutions and products and adds up in float32; losses,
weights and the optimiser stay in float32, without a cast in the model. On a CPU this is a
rehearsal, as the plan says: it is no faster than jitney's own float32, and the gain over
`eqx.filter_jit` is the host's part of a call. Seventeen lines by hand, for this network alone, are
as fast. `precision_report` shows the cost in digits.
"""

# %% Imports
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

import jitney

adam = optax.adam(3e-3)
SHAPES = ("disc", "square", "cross", "ring")


# %% The function, as one would write it
class Net(eqx.Module):
    """Two convolutions, each with half the pixels of what it gets, and a linear layer."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self, key: Array):
        a, b, c = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(1, 8, 3, stride=2, padding=1, key=a)
        self.second = eqx.nn.Conv2d(8, 16, 3, stride=2, padding=1, key=b)
        self.head = eqx.nn.Linear(16 * 4 * 4, len(SHAPES), key=c)

    def __call__(self, image: Float[Array, "16 16"]) -> Float[Array, "4"]:
        hidden = jax.nn.relu(self.second(jax.nn.relu(self.first(image[None]))))
        return self.head(hidden.ravel())


def loss(
    net: Net, images: Float[Array, "batch 16 16"], labels: Int[Array, "batch"]
) -> Float[Array, ""]:
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(jax.vmap(net)(images), labels))


def step(net: Net, state, images: Float[Array, "batch 16 16"], labels: Int[Array, "batch"]):
    """One step of Adam."""
    value, grads = eqx.filter_value_and_grad(loss)(net, images, labels)
    updates, state = adam.update(grads, state)
    return eqx.apply_updates(net, updates), state, value


# %% The decorator line
in_bf16 = jitney.optimize(precision="bf16")(step)

# %% Without jitney, and the data
in_f32, as_it_is = eqx.filter_jit(step), jitney.optimize(step)


def fresh():
    """A network and the state of its optimiser."""
    net = Net(jax.random.key(0))
    return net, adam.init(eqx.filter(net, eqx.is_array))


def pictures(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of random place and size, with noise, and which they are."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(SHAPES), size=number)
    centre, size = rng.uniform(5.5, 9.5, (number, 2, 1, 1)), rng.uniform(3, 5.5, (number, 1, 1))
    x, y = np.abs(np.arange(16)[:, None] - centre[:, 0]), np.abs(np.arange(16) - centre[:, 1])
    far = np.hypot(x, y)
    cross = (np.minimum(x, y) < 1.2) & (np.maximum(x, y) < size)
    drawn = np.stack([far < size, np.maximum(x, y) < 0.85 * size, cross, abs(far - size) < 1.2])
    images = drawn[labels, np.arange(number)] + 0.35 * rng.normal(size=(number, 16, 16))
    return images.astype(np.float32), labels.astype(np.int32)


# %% By hand: factors are rounded where they meet, and arrays alone cross the call
def rounded(x: Array) -> Array:
    """To the digits of bfloat16; a cast there and back XLA may leave out."""
    return jax.lax.reduce_precision(x, 8, 7)


def loss_by_hand(arrays: list[Array], images: Array, labels: Array) -> Array:
    """The loss of the network with these arrays, in its order."""
    *layers, weights, shift = arrays
    hidden = images[:, None]
    for kernel, bias in (layers[:2], layers[2:]):
        out = jax.lax.conv_general_dilated(
            rounded(hidden), rounded(kernel), (2, 2), ((1, 1), (1, 1))
        )
        hidden = jax.nn.relu(out + bias)
    said = rounded(hidden.reshape(len(hidden), -1)) @ rounded(weights).T + shift
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(said, labels))


@jax.jit
def by_hand(arrays: list[Array], state, images: Array, labels: Array):
    """The step of these arrays."""
    value, grads = jax.value_and_grad(loss_by_hand)(arrays, images, labels)
    updates, state = adam.update(grads, state)
    return optax.apply_updates(arrays, updates), state, value


# %% The plan
def plan() -> tuple[object, ...]:
    """Of a batch of 128."""
    return (in_bf16.plan(*fresh(), *pictures(128)),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """A step on a batch: its loss, equal to the digits that bfloat16 has."""
    begin, batch = fresh(), pictures(256 if full else 8)
    arrays = jax.tree.leaves(begin[0])
    state = adam.init(arrays)

    def by_jitney_bf16(images: Array, labels: Array) -> Array:
        return in_bf16(*begin, images, labels)[2]

    def by_jitney_f32(images: Array, labels: Array) -> Array:
        return as_it_is(*begin, images, labels)[2]

    def by_equinox_f32(images: Array, labels: Array) -> Array:
        return in_f32(*begin, images, labels)[2]

    def by_hand_bf16(images: Array, labels: Array) -> Array:
        return by_hand(arrays, state, images, labels)[2]

    options = {"tolerance": 4e-3, "seconds": 2.0 if full else 0.1}
    return {
        "a step, beside Equinox in float32": jitney.measure(
            by_jitney_bf16, *batch, against=by_equinox_f32, **options
        ),
        "a step, by hand in bfloat16 (ours compiled above)": jitney.measure(
            by_jitney_bf16, *batch, against=by_hand_bf16, **options
        ),
        "a step, beside jitney in float32": jitney.measure(
            by_jitney_bf16, *batch, against=by_jitney_f32, **options
        ),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """Pictures not seen before, each with what the network says it is."""
    net, state = fresh()
    for i in range(200 if full else 2):
        net, state, _ = in_bf16(net, state, *pictures(256 if full else 8, i + 1))
    images, labels = pictures(10, seed=10**6)
    said = np.argmax(jax.vmap(net)(images), 1)
    ink = LinearSegmentedColormap.from_list("ink", ["#2f7fd800", "#2f7fd8"])
    for axes, image, one, truth in zip(
        figure.subplots(2, 5).flat, images, said, labels, strict=True
    ):
        axes.imshow(image, cmap=ink)
        axes.set_title(SHAPES[one] if one == truth else f"{SHAPES[one]}, wrong")
        axes.axis("off")
