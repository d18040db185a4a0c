"""The two-time correlation of scattered light under diffusion and shear, one detector angle at a
time.

He et al., "Transport coefficient approach for characterizing nonequilibrium dynamics in soft
matter", PNAS 121 (2024): for a homodyne experiment at wavevector q, with a diffusion coefficient
J(t) = D0 t^alpha + D_offset and, across a gap h, a shear rate gamma(t) = gamma0 t^beta +
gamma_offset,

    c2(phi, t1, t2) = offset + contrast exp(-q^2 int J dt) sinc^2(q h cos(phi - phi0) / (2 pi) int
    gamma dt)

with both integrals from t1 to t2 and sinc(x) = sin(pi x) / (pi x). A power of t is integrated in
closed form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = Float[Array, ""]
Points = Float[Array, "points"]

NAMES = ("D0", "alpha", "D_offset", "gamma0", "beta", "gamma_offset", "phi0", "contrast", "offset")
_SMALL = 1e-5  # below this a series takes the place of expm1(x) / x, to full precision


class Setup(eqx.Module):
    """The instrument.

    Args:
        q: Wavevector, 1/Angstrom.
        gap: Between the plates, Angstrom.
    """

    q: float = 0.0054
    gap: float = 2.0e6


class Parameters(eqx.Module):
    """What is fitted: lengths in Angstrom, times in seconds, the angle of the flow in radians."""

    D0: Scalar
    alpha: Scalar
    D_offset: Scalar
    gamma0: Scalar
    beta: Scalar
    gamma_offset: Scalar
    phi0: Scalar
    contrast: Scalar
    offset: Scalar

    @classmethod
    def of(cls, vector: Float[Array, "9"] | list[Scalar]) -> "Parameters":
        """From one vector or list, in the order of `NAMES`."""
        return cls(*vector)


def power_integral(t1: Points, t2: Points, exponent: Scalar) -> Points:
    """The integral of t^exponent from t1 to t2, both above 0, also where the exponent is -1 or near
    it.

    With a = exponent + 1, (t2^a - t1^a) / a loses all digits as a goes to 0, or t1 to t2. With L =
    log(t2 / t1), t1^a L expm1(a L) / (a L) does not.
    """
    a = exponent + 1
    length = jnp.log(t2 / t1)
    x = a * length
    near = jnp.abs(x) < _SMALL
    safe = jnp.where(near, 1.0, x)
    ratio = jnp.where(near, 1 + x / 2 + x**2 / 6, jnp.expm1(safe) / safe)
    return t1**a * length * ratio


def c2(parameters: Parameters, setup: Setup, phi: Scalar, t1: Points, t2: Points) -> Points:
    """The correlation at pairs of times t1 < t2, at one angle (radians)."""
    p = parameters
    displaced = p.D0 * power_integral(t1, t2, p.alpha) + p.D_offset * (t2 - t1)
    sheared = p.gamma0 * power_integral(t1, t2, p.beta) + p.gamma_offset * (t2 - t1)
    phase = setup.q * setup.gap * jnp.cos(phi - p.phi0) / (2 * jnp.pi) * sheared
    return p.offset + p.contrast * jnp.exp(-(setup.q**2) * displaced) * jnp.sinc(phase) ** 2


def residual(
    vector: Float[Array, "9"] | list[Scalar],
    setup: Setup,
    phi: Scalar,
    t1: Points,
    t2: Points,
    measured: Points,
) -> Points:
    """Model minus data."""
    return c2(Parameters.of(vector), setup, phi, t1, t2) - measured


def gram(
    vector: Float[Array, "9"], setup: Setup, phi: Scalar, t1: Points, t2: Points, measured: Points
) -> Float[Array, "10 10"]:
    """The products of one angle: the Gram matrix of [J, r], with the Jacobian J of the residuals r.

    A column of J is the derivative along one parameter alone, and each product is a sum of its own,
    so that XLA makes one loop over the points that keeps nothing but sums: a matrix product would
    first write J down.
    """
    parameters = list(vector)

    def along(i: int) -> tuple[Points, Points]:
        """Residuals, and their derivative by one parameter."""

        def one(value: Scalar) -> Points:
            return residual(
                [*parameters[:i], value, *parameters[i + 1 :]], setup, phi, t1, t2, measured
            )

        return jax.jvp(one, (parameters[i],), (jnp.ones_like(parameters[i]),))

    pairs = [along(i) for i in range(len(parameters))]
    rows = [*(column for _, column in pairs), pairs[0][0]]
    upper = {
        (i, j): jnp.sum(rows[i] * rows[j]) for i in range(len(rows)) for j in range(i, len(rows))
    }
    return jnp.stack(
        [
            jnp.stack([upper[min(i, j), max(i, j)] for j in range(len(rows))])
            for i in range(len(rows))
        ]
    )
