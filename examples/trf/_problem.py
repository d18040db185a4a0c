"""The problem as the compiled program sees it: what is fixed (`Setup`), what is data (`Data`), and the local model of the cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from examples.trf._losses import reweigh, rho_of
from examples.trf._qr import triangularise

Columns = Float[Array, "k points"]


@dataclass(frozen=True)
class Setup:
    """What changes the compiled code. Equal setups share a program, so functions are best defined once."""

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    loss: str | Callable[..., Any]
    bounded: bool
    scale_by_jac: bool
    records: int | None  # length of the history, if one is kept


class Controls(eqx.Module):
    """Numbers that steer the solver and do not change its code."""

    ftol: Float[Array, ""]
    xtol: Float[Array, ""]
    gtol: Float[Array, ""]
    f_scale: Float[Array, ""]
    max_nfev: Float[Array, ""]

    @classmethod
    def unpack(cls, packed: Float[Array, "5"]) -> "Controls":
        """One transfer instead of five."""
        return cls(*packed)


class Data(eqx.Module):
    """All arrays of a fit besides its start."""

    lower: Float[Array, "k"] | None
    upper: Float[Array, "k"] | None
    x_scale: Float[Array, "k"] | None
    controls: Float[Array, "5"]
    mask: Bool[Array, "points"] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Model(eqx.Module):
    """Cost at a point, its gradient g = J^T r, and the triangle R, c = Q^T r of its Gauss-Newton model."""

    cost: Float[Array, ""]
    g: Float[Array, "k"]
    R: Float[Array, "k k"]
    c: Float[Array, "k"]

    def finite(self) -> Bool[Array, ""]:
        """Tell whether cost and derivatives can be used."""
        return jnp.isfinite(self.cost) & jnp.all(jnp.isfinite(self.R)) & jnp.all(jnp.isfinite(self.c)) & jnp.all(jnp.isfinite(self.g))


def residuals(setup: Setup, x: Float[Array, "k"], data: Data) -> Float[Array, "points"]:
    """Residuals at x in float64, 0 where masked out."""
    f = jnp.asarray(setup.fun(x, *data.args, **data.kwargs)).astype(x.dtype)
    f = jnp.atleast_1d(f)
    return f if data.mask is None else jnp.where(data.mask, f, 0.0)


def residuals_and_columns(setup: Setup, x: Float[Array, "k"], data: Data) -> tuple[Float[Array, "points"], Columns]:
    """Residuals and the columns of their Jacobian: one forward pass, whose exponentials XLA computes once."""
    if setup.jac is None:
        f, push = jax.linearize(lambda x: residuals(setup, x, data), x)
        return f, jax.vmap(push)(jnp.eye(x.size, dtype=x.dtype))
    columns = jnp.asarray(setup.jac(x, *data.args, **data.kwargs)).astype(x.dtype).reshape(-1, x.size).T
    f = residuals(setup, x, data)
    return f, columns if data.mask is None else jnp.where(data.mask, columns, 0.0)


def weighted(setup: Setup, f: Float[Array, "points"], columns: Columns, data: Data) -> tuple[Array, Array, Columns]:
    """Cost, residuals and columns of the linear least-squares problem that stands for the loss at this point."""
    rho = rho_of(setup.loss)
    if rho is None:
        return 0.5 * (f @ f), f, columns
    cost, f, weight = reweigh(rho, f, Controls.unpack(data.controls).f_scale, data.mask)
    return cost, f, columns * weight


def model_at(setup: Setup, x: Float[Array, "k"], data: Data) -> Model:
    """Evaluate residuals and Jacobian at x and reduce them to k numbers a parameter."""
    f, columns = residuals_and_columns(setup, x, data)
    cost, f, columns = weighted(setup, f, columns, data)
    return Model(cost, columns @ f, *triangularise(columns, f))
