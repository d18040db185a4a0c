"""Functions and classes at the top of a module, which files know by name."""

import enum
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney._values.static_values import static_key
from tests._arrays import array


class Pair(NamedTuple):
    first: Array
    second: Array


class Mode(enum.Enum):
    PLAIN = "plain"
    SQUARED = "squared"


class Decay(eqx.Module):
    rate: Float[Array, ""]
    power: int = eqx.field(static=True)

    def __call__(self, t: Array) -> Array:
        return jnp.exp(-self.rate * t) ** self.power


def residual(
    model: Decay, t: Float[Array, "points"], y: Float[Array, "points"], scale: float = 1.0
) -> Float[Array, "points"]:
    """Model minus data."""
    return (model(t) - y) * scale


def decay() -> Decay:
    return Decay(array(0.3), 2)


def data(points: int) -> tuple[Array, Array]:
    t = jnp.linspace(0.0, 1.0, points)
    return t, jnp.exp(-0.2 * t)


def to_the_bit(ours, theirs) -> None:
    """Whether two trees are the same in structure, types, weak types and every bit."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if not isinstance(b, (jax.Array, np.ndarray)):
            assert type(a) is type(b)
            # `==` of a list of arrays, of NaN and of -0.0 says something else
            assert static_key(a) == static_key(b)
            continue
        if jax.dtypes.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert (a.shape, a.dtype, getattr(a, "weak_type", False)) == (
            b.shape,
            b.dtype,
            getattr(b, "weak_type", False),
        )
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def saved(path, f, *args, **options) -> jitney.types.Loaded:
    """`f` through a file."""
    f.export(path / "f.jitney", *args, **options)
    return jitney.load(path / "f.jitney")
