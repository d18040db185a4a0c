"""The log density of the free parameters, in coordinates in which the fit is a standard normal.

With the fit z_fit and the root L of its covariance, z = z_fit + L w. The density is that of w: the
likelihood of normal noise, which the measurement knows, and priors: uniform between the bounds,
times a normal one where that is given. Bounds are walls, and not bent away: parameters that are
nearly one, as D0 and D_offset, lie on a thin straight ridge, which a bend of one of them would
curve. The sum of squares and its gradient are summed together, chunk by chunk, so that the gradient
needs no memory that grows with the points.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from ..trf._fail import fail
from ._fit import CHUNK
from ._layout import Layout
from ._measurement import Measurement
from ._modes import Mode
from .model import Points, Scalar, Setup


def slopes(
    mode: Mode,
    local: Float[Array, "k"],
    sigma: Scalar,
    setup: Setup,
    phi: Scalar,
    t1: Points,
    t2: Points,
    measured: Points,
) -> Float[Array, "slots"]:
    """The sum of squares at one angle, and its gradient by all parameters of that angle."""
    there = jnp.isfinite(measured)
    known = jnp.where(there, measured, 0.0)

    def squares(local: Float[Array, "k"]) -> Scalar:
        *physical, contrast, offset = local
        shape = mode.shape(jnp.stack(physical), setup, phi, t1, t2)
        residual = (offset + contrast * shape - known) / sigma
        return jnp.sum(jnp.where(there, residual, 0.0) ** 2)

    value, gradient = jax.value_and_grad(squares)(local)
    return jnp.concatenate([value[None], gradient])


in_chunks = jitney.optimize(vmap="phi", precision="f64", chunk={"points": CHUNK})(slopes)


@dataclass(frozen=True)
class Density:
    """The logarithm at w. All numbers are data, so that one program serves all fits of a mode.

    Args:
        mode: The mode.
        parts: Of how many parts the data are one: each has that root of the prior.
    """

    mode: Mode
    parts: int

    def __call__(self, w: Array, data: "Numbers") -> Array:
        """Add prior and likelihood."""
        z = data.z(w)
        inside = jnp.all((z > data.lower) & (z < data.upper))
        prior = -0.5 * jnp.sum(data.precision * (z - data.mean) ** 2)
        local = data.base + data.matrix @ z
        found = prior / self.parts - 0.5 * squared(self.mode, local, data.measured)
        return jnp.where(inside, found, -jnp.inf)


class Numbers(eqx.Module):
    """What a density takes.

    Args:
        middle: The fit.
        root: L.
        lower: Bounds.
        upper: Bounds.
        mean: Of normal priors.
        precision: Of these, 0 where there is none.
        base: The parameters of each angle where z is zero.
        matrix: How they change with z.
        measured: Noise, instrument, angles, times and values.
    """

    middle: Any
    root: Any
    lower: Any
    upper: Any
    mean: Any
    precision: Any
    base: Any
    matrix: Any
    measured: Any

    def z(self, w: Any) -> Any:
        """The free parameters."""
        return self.middle + self.root @ w


@dataclass(frozen=True)
class Target:
    """A density and its numbers."""

    density: Density
    data: Numbers

    @property
    def coordinates(self) -> "Target":
        """The same without the data, which another part may then have the memory of."""
        return replace(self, data=replace(self.data, measured=None))

    @property
    def size(self) -> int:
        """Of w."""
        return len(self.data.middle)

    def inside(self, w: np.ndarray) -> bool:
        """Whether it is between the bounds."""
        z = np.asarray(self.data.z(w))
        return bool(np.all((z > self.data.lower) & (z < self.data.upper)))


def target(
    plan: Layout,
    data: Measurement,
    sigma: np.ndarray,
    z: np.ndarray,
    covariance: np.ndarray,
    *,
    priors: Mapping[str, tuple[float, float]] | None = None,
    parts: int = 1,
) -> Target:
    """The density around a fit.

    Args:
        plan: What is free.
        data: The measurement, or a part of it.
        sigma: Noise at each angle.
        z: The fit.
        covariance: Its covariance, for the coordinates alone.
        priors: Mean and standard deviation of normal priors, by name.
        parts: Of how many parts the data are one.
    """
    known = np.isfinite(plan.upper - plan.lower) & np.isfinite(np.diag(covariance))
    if not np.all(known):
        names = [name for name, own in zip(plan.free, known, strict=True) if not own]
        fail(
            f"{', '.join(names)}: no bounds, or the data do not determine it.",
            "A posterior has a prior for each parameter, uniform between its bounds, and starts"
            " from a fit that knows all of them.",
            "hold these parameters, or give bounds.",
        )
    opened = data.opened()
    sigma, phi = (jnp.asarray(np.array(each, float)) for each in (sigma, opened.phi))
    held = (_in_memory(each) for each in (opened.t1, opened.t2, opened.measured))
    at = [plan.places(angle) for angle in range(data.angles)]
    base, matrix = plan.base[at], plan.matrix[at]
    numbers = (
        z,
        np.linalg.cholesky(covariance),
        plan.lower,
        plan.upper,
        *_normal(plan, priors or {}),
        base,
        matrix,
    )
    own = Numbers(*map(jnp.asarray, numbers), (sigma, data.setup, phi, *held))
    return Target(Density(plan.mode, parts), own)


def _in_memory(array: Any) -> Array:
    """A copy of all values; those of float32 become float64 in chunks, when they are used."""
    return jnp.asarray(np.array(array, np.result_type(array.dtype, np.float32)))


def _normal(
    plan: Layout, priors: Mapping[str, tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray]:
    mean, precision = np.zeros(len(plan.free)), np.zeros(len(plan.free))
    for name, (middle, deviation) in priors.items():
        if name not in plan.free or not deviation > 0:
            fail(
                f"`priors` has {name!r}: ({middle:g}, {deviation:g}).",
                f"Free parameters are {', '.join(plan.free)}; a standard deviation is above 0.",
                'write priors={"D0": (1e4, 1e3)}.',
            )
        mean[plan.free.index(name)] = middle
        precision[plan.free.index(name)] = 1 / deviation**2
    return mean, precision


def squared(mode: Mode, local: Any, arrays: Any) -> Any:
    """The sum of squares over all angles. Its derivative comes from the same pass over the data."""

    @jax.custom_vjp
    def total(local: Any, arrays: Any) -> Any:
        return summed(local, arrays)[0]

    def summed(local: Any, arrays: Any) -> tuple[Any, Any]:
        found = in_chunks(mode, local, *arrays)
        return jnp.sum(found[:, 0]), found[:, 1:]

    def backward(gradient: Any, by: Any) -> tuple[Any, None]:
        return by * gradient, None

    total.defvjp(summed, backward)
    return total(local, arrays)
