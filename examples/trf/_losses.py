"""Robust losses of the squared residual, and the weighted least-squares problem that stands for one
of them.

The cost of a residual f is 0.5 C^2 rho(z) with z = (f / C)^2 and C = `f_scale`. Near a point it has
the gradient and (where that is positive) the Gauss-Newton matrix of an ordinary problem with
reweighted rows; see Triggs et al., "Bundle adjustment: a modern synthesis", 1999, section 4.3. This
is the only file that knows a loss by name.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Float

from ._fail import fail

Points = Float[Array, "points"]
Rho = Callable[[Points], tuple[Points, Points, Points]]
EPS = 2.220446049250313e-16


def huber(z: Points) -> tuple[Points, Points, Points]:
    """Square up to z = 1, absolute value beyond."""
    inside = z <= 1
    root = jnp.sqrt(jnp.where(inside, 1.0, z))
    return jnp.where(inside, z, 2 * root - 1), 1 / root, jnp.where(inside, 0.0, -0.5 / root**3)


def soft_l1(z: Points) -> tuple[Points, Points, Points]:
    """Smooth absolute value, 2 (sqrt(1 + z) - 1), written so that a small z loses no digits."""
    root = jnp.sqrt(1 + z)
    return 2 * z / (root + 1), 1 / root, -0.5 / root**3


def cauchy(z: Points) -> tuple[Points, Points, Points]:
    """Logarithm: an outlier counts little."""
    return jnp.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2


def arctan(z: Points) -> tuple[Points, Points, Points]:
    """Arc tangent: no residual costs more than pi / 2."""
    slope = 1 / (1 + z**2)
    return jnp.arctan(z), slope, -2 * z * slope**2


LOSSES: Mapping[str, Rho | None] = MappingProxyType(
    {"linear": None, "huber": huber, "soft_l1": soft_l1, "cauchy": cauchy, "arctan": arctan}
)


def rho_of(loss: str | Callable[[Points], Array]) -> Rho | None:
    """Turn what the user gave as `loss` into a function z -> (rho, rho', rho''); `None` is the
    linear loss.
    """
    if isinstance(loss, str):
        return LOSSES[loss]

    def rho(z: Points) -> tuple[Points, Points, Points]:
        # called once, for all points; what it did is then known with its shape
        traced, of = jax.make_jaxpr(loss, return_shape=True)(z)
        shape = jnp.shape(of)

        def called(z: Points) -> Points:
            return jaxpr_as_fun(traced)(z)[0]

        if shape == (3, *z.shape):  # SciPy's convention: the three of them stacked
            value, slope, bend = called(z)
            return value, slope, bend
        if shape != z.shape:
            fail(
                f"`loss` returns shape {shape} for z of shape {z.shape}.",
                "It gives rho of every z, or rho, rho' and rho'' stacked as three rows.",
                "compute elementwise; the solver sums.",
            )
        ones = jnp.ones_like(z)

        def slope_of(z: Points) -> tuple[Points, Points]:
            return jax.jvp(called, (z,), (ones,))

        (value, slope), (_, bend) = jax.jvp(slope_of, (z,), (ones,))
        return value, slope, bend

    return rho


def reweigh(
    rho: Rho, f: Points, f_scale: Float[Array, ""], counts: Points | None
) -> tuple[Float[Array, ""], Points, Points]:
    """Cost, and the residuals and row weights of the least-squares problem with the same gradient.

    Args:
        rho: The loss with its two derivatives.
        f: Residuals, 0 where masked out.
        f_scale: Residual at which the loss starts to differ from a square, in units of `f`.
        counts: True for the residuals that count, or `None` for all.
    Returns:
        The cost; residuals; factor for each row of the Jacobian. A row whose curvature is not
        positive keeps a weight of the square root of the machine precision, as SciPy's does.
    """
    costs, f, weight = each_reweighed(rho, f, f_scale, counts)
    return jnp.sum(costs), f, weight


def each_reweighed(
    rho: Rho, f: Points, f_scale: Float[Array, ""], counts: Points | None
) -> tuple[Points, Points, Points]:
    """Reweigh likewise, and give the cost of each point."""
    value, slope, bend = rho((f / f_scale) ** 2)
    if counts is not None:  # a callable loss need not be zero at zero
        value = jnp.where(counts, value, 0.0)
    weight = jnp.sqrt(jnp.maximum(slope + 2 * bend * (f / f_scale) ** 2, EPS))
    return 0.5 * f_scale**2 * value, f * slope / weight, weight
