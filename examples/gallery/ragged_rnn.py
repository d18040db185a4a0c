"""An RNN over ragged sequences: a GRU reads a noisy wave and says its frequency; each batch is as
long as its sequences are.

Each length would be a program of its own. With `pad` the lengths from 65 to 128 share one, and you
write no mask: a padded step keeps the state, and the gradient is that of the exact length. A warm
call at a padded length computes the padded steps too, and takes as long as with a mask by hand.
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
class Reader(eqx.Module):
    """Reads a sequence to its end, then says one number."""

    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, width: int, key: Array):
        first, second = jax.random.split(key)
        self.cell, self.head = (
            eqx.nn.GRUCell(1, width, key=first),
            eqx.nn.Linear(width, "scalar", key=second),
        )

    def __call__(self, sequence: Float[Array, "time"]) -> Float[Array, ""]:
        start = jnp.zeros(self.cell.hidden_size)
        last, _ = jax.lax.scan(lambda state, x: (self.cell(x[None], state), None), start, sequence)
        return self.head(last)


def loss(
    net: Reader, waves: Float[Array, "batch time"], frequencies: Float[Array, "batch"]
) -> Float[Array, ""]:
    return jnp.mean((jax.vmap(net)(waves) - frequencies) ** 2)


def step(net: Reader, state, waves: Float[Array, "batch time"], frequencies: Float[Array, "batch"]):
    """One step of Adam."""
    value, grads = eqx.filter_value_and_grad(loss)(net, waves, frequencies)
    updates, state = adam.update(grads, state)
    return eqx.apply_updates(net, updates), state, value


# %% The decorator line
padded = jitney.optimize(pad={"time": "pow2", "batch": "pow2"})(step)

# %% Without jitney, and the data
plain = eqx.filter_jit(step)


def fresh(width: int = 32):
    """A network and the state of its optimiser."""
    net = Reader(width, jax.random.key(0))
    return net, adam.init(eqx.filter(net, eqx.is_array))


def waves(length: int, number: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sine waves with noise, and their frequencies."""
    rng = np.random.default_rng([length, number, seed])
    frequencies, phases = rng.uniform(0.1, 1.0, (2, number, 1))
    waves = np.sin(frequencies * np.arange(length) + 6 * phases) + 0.1 * rng.normal(
        size=(number, length)
    )
    return waves.astype(np.float32), frequencies[:, 0].astype(np.float32)


# %% By hand: a mask of the steps, and lengths rounded up
def masked(
    net: Reader,
    length: int,
    waves: Float[Array, "batch wide"],
    frequencies: Float[Array, "batch"],
) -> Float[Array, ""]:
    """The loss of sequences of this length; what comes behind leaves the state as it is."""

    def read(sequence: Float[Array, "wide"]) -> Float[Array, ""]:
        def go(state, at):
            i, x = at
            return jnp.where(i < length, net.cell(x[None], state), state), None

        places = jnp.arange(sequence.size)
        last, _ = jax.lax.scan(go, jnp.zeros(net.cell.hidden_size), (places, sequence))
        return net.head(last)

    return jnp.mean((jax.vmap(read)(waves) - frequencies) ** 2)


@jax.jit
def rounded(net: Reader, state, length: Array, waves: Array, frequencies: Array):
    """One step of Adam."""
    value, grads = eqx.filter_value_and_grad(masked)(net, length, waves, frequencies)
    updates, state = adam.update(grads, state)
    return eqx.apply_updates(net, updates), state, value


def by_hand(net: Reader, state, waves: np.ndarray, frequencies: np.ndarray):
    """A step, of sequences as long as the next power of two. The number of them is what it is."""
    length = waves.shape[1]
    more = (1 << (length - 1).bit_length()) - length
    return rounded(net, state, np.asarray(length), np.pad(waves, ((0, 0), (0, more))), frequencies)


# %% The plan
def plan() -> tuple[object, ...]:
    """Of 32 sequences of length 100."""
    return (padded.plan(*fresh(), *waves(100)),)


# %% Before and after: equal results are asserted before anything is timed
def compare(*, full: bool = False) -> dict[str, jitney.types.Measurement]:
    """Batches of several lengths, each compiled when it first comes: the loss, and the gradients
    that Adam has kept.
    """
    begin, lengths = fresh(), range(40, 129, 8) if full else (50,)

    def with_pad() -> list[object]:
        return [padded(*begin, *waves(length))[1:] for length in lengths]

    def at_exact_size() -> list[object]:
        return [plain(*begin, *waves(length))[1:] for length in lengths]

    def with_mask() -> list[object]:
        return [by_hand(*begin, *waves(length))[1:] for length in lengths]

    seconds = 2.0 if full else 0.1
    return {
        f"{len(lengths)} lengths": jitney.measure(
            with_pad, against=at_exact_size, tolerance=1e-4, seconds=seconds
        ),
        f"{len(lengths)} lengths, a mask by hand (ours compiled above)": jitney.measure(
            with_pad, against=with_mask, tolerance=1e-4, seconds=seconds
        ),
    }


# %% Picture
def draw(figure: Figure, *, full: bool = False) -> None:
    """Frequencies that were read off waves not seen before, of three lengths."""
    net, state = fresh()
    for i in range(600 if full else 2):
        net, state, _ = padded(net, state, *waves(33 + (37 * i) % 96 if full else 50, seed=i + 1))
    for axes, length in zip(
        figure.subplots(1, 3, sharey=True), (40, 80, 120) if full else (50, 50, 50), strict=True
    ):
        sequences, truth = waves(length, 64)
        said = jax.vmap(net)(sequences)
        axes.plot([0, 1], [0, 1], color="#808080", linewidth=0.8)
        axes.plot(truth, said, ".", color="#2f7fd8", markersize=4)
        axes.set(title=f"waves of {length}", xlabel="frequency")
    figure.axes[0].set_ylabel("read")
