"""The modes: how the correlation decays at one angle, without contrast and offset.

    c2(phi, t1, t2) = offset + contrast shape(phi, t1, t2)

The static and the laminar one are of He et al., PNAS 121 (2024) e2401162121, whose formula is in
`model.py`; in the static ones no plate moves. Isotropic and anisotropic are words of the published
analysis for one contrast and offset, and for those of each angle by itself; the decay is the same.
The two-component one is in `_heterodyne.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from . import _heterodyne
from .model import Parameters, Points, Scalar, Setup, c2, power_integral

Physical = Float[Array, "p"]
Shape = Callable[[Physical, Setup, Scalar, Points, Points], Points]
OPTICS = ("contrast", "offset")


@dataclass(frozen=True)
class Mode:
    """One kind of sample.

    Args:
        name: As users write it.
        shape: The decay, from the physical parameters.
        names: Of these parameters.
        start: Where a fit starts.
        lower: Bounds of the parameters.
        upper: Bounds of the parameters.
        by_angle: Whether each angle has a contrast and an offset of its own.
        held: Parameters that stay at their start unless the user frees them.
        saddles: Pairs of parameters in which the model is even: where both are zero, no derivative
            leads away, though the data may.
    """

    name: str
    shape: Shape
    names: tuple[str, ...]
    start: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    by_angle: bool = False
    held: tuple[str, ...] = ()
    saddles: tuple[tuple[str, str], ...] = ()


def static(physical: Physical, setup: Setup, phi: Scalar, t1: Points, t2: Points) -> Points:
    """Diffusion alone, the same at all angles."""
    del phi
    D0, alpha, D_offset = physical
    displaced = D0 * power_integral(t1, t2, alpha) + D_offset * (t2 - t1)
    return jnp.exp(-(setup.q**2) * displaced)


def laminar(physical: Physical, setup: Setup, phi: Scalar, t1: Points, t2: Points) -> Points:
    """Diffusion and shear."""
    one, zero = jnp.ones_like(phi), jnp.zeros_like(phi)
    return c2(Parameters.of([*physical, one, zero]), setup, phi, t1, t2)


_STATIC = {
    "shape": static,
    "names": ("D0", "alpha", "D_offset"),
    "start": (1.3e4, -0.3, 250.0),
    "lower": (0.0, -0.99, 0.0),
    "upper": (1e6, 2.0, 1e5),
}
MODES = {
    mode.name: mode
    for mode in (
        Mode("static_isotropic", **_STATIC),
        Mode("static_anisotropic", **_STATIC, by_angle=True),
        Mode(
            "laminar_flow",
            laminar,
            ("D0", "alpha", "D_offset", "gamma0", "beta", "gamma_offset", "phi0"),
            start=(1.3e4, -0.3, 250.0, 4e-4, -0.2, 2e-5, 0.05),
            lower=(0.0, -0.99, 0.0, 0.0, -0.99, 0.0, -jnp.pi / 2),
            upper=(1e6, 2.0, 1e5, 1.0, 2.0, 0.1, jnp.pi / 2),
            saddles=(("gamma0", "gamma_offset"),),
        ),
        Mode(
            "two_component",
            _heterodyne.shape,
            _heterodyne.NAMES,
            _heterodyne.START,
            _heterodyne.LOWER,
            _heterodyne.UPPER,
            held=("f2",),
            saddles=(("v0", "v_offset"),),
        ),
    )
}
