"""Two components that scatter together, one of which moves: the heterodyne model.

He et al., PNAS 122 (2025) e2514216122 (doi:10.1073/pnas.2514216122), equation S-95 of the
supplement, as the documentation of the public package `heterodyne` of its authors gives it (the
supplement itself was not at hand). With fractions x_s(t) of the sample and x_r = 1 - x_s of the
reference, transport J_r(t) and J_s(t), and the mean velocity v(t) of the sample,

    shape = ([r1 r2]^2 A_rr + [s1 s2]^2 A_ss + 2 r1 r2 s1 s2 A_rs) / f^2
    A_rr = exp(-q^2 int J_r dt), A_ss = exp(-q^2 int J_s dt)
    A_rs = exp(-q^2 / 2 int (J_r + J_s) dt) cos(q cos(phi - phi0) int v dt)
    f^2 = (s1^2 + r1^2) (s2^2 + r2^2)

where 1 and 2 are the two times. Transport and velocity are powers of time and an offset, the
fraction is f0 exp(f1 (t - f2)) + f3: fourteen parameters. Two of them are one: f0 and f2 only occur
as f0 exp(-f1 f2), so f2 is a time that the user chooses, and is held unless freed. Integrals are in
closed form, where that package sums trapezoids; nothing is cut off at bounds, so that derivatives
stay right; a fraction outside [0, 1] at the solution is a warning. Its phi0 is in degrees and added
to phi; here it is the angle of the flow, in radians, as in `model.py`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .model import Points, Scalar, Setup, power_integral

NAMES = (
    "D0_ref",
    "alpha_ref",
    "D_offset_ref",
    "D0_sample",
    "alpha_sample",
    "D_offset_sample",
    "v0",
    "beta",
    "v_offset",
    "f0",
    "f1",
    "f2",
    "f3",
    "phi0",
)
START = (3e3, 0.1, 100.0, 1.2e4, -0.1, 500.0, 250.0, 0.1, 20.0, 0.3, -0.1, 0.0, 0.3, 0.05)
LOWER = (0.0, -0.99, 0.0, 0.0, -0.99, 0.0, 0.0, -0.99, -1e4, -1.0, -10.0, -1e4, -1.0, -jnp.pi / 2)
UPPER = (1e6, 2.0, 1e5, 1e6, 2.0, 1e5, 1e5, 2.0, 1e4, 1.0, 10.0, 1e4, 2.0, jnp.pi / 2)

Fourteen = Float[Array, "14"]


def fraction(physical: Fourteen, t: Points) -> Points:
    """The part of the field that the sample scatters."""
    f0, f1, f2, f3 = physical[9:13]
    return f0 * jnp.exp(f1 * (t - f2)) + f3


def shape(physical: Fourteen, setup: Setup, phi: Scalar, t1: Points, t2: Points) -> Points:
    """The decay of the correlation; 1 where the times are equal."""

    def integral(first: int) -> Points:
        amplitude, exponent, offset = physical[first : first + 3]
        return amplitude * power_integral(t1, t2, exponent) + offset * (t2 - t1)

    s1, s2 = fraction(physical, t1), fraction(physical, t2)
    r1, r2 = 1 - s1, 1 - s2
    reference = r1 * r2 * jnp.exp(-(setup.q**2) / 2 * integral(0))
    sample = s1 * s2 * jnp.exp(-(setup.q**2) / 2 * integral(3))
    phase = setup.q * jnp.cos(phi - physical[13]) * integral(6)
    crossed = 2 * reference * sample * jnp.cos(phase)
    return (reference**2 + sample**2 + crossed) / ((s1**2 + r1**2) * (s2**2 + r2**2))
