"""The problem as the compiled program sees it: what is fixed (`Setup`), what is data (`Data`), and
the local model of the cost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ._blocks import by_blocks, may_cut
from ._curve import Residual
from ._fail import fail
from ._few import FEW, gradient, lengths
from ._losses import each_reweighed, reweigh, rho_of
from ._qr import WIDE, product, triangularise

Columns = Float[Array, "k points"]


@dataclass(frozen=True)
class Setup:
    """What changes the compiled code. Equal setups share a program, so functions are best defined
    once.
    """

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    loss: str | Callable[..., Any]
    bounded: bool
    scale_by_jac: bool
    records: int | None  # length of the history, if one is kept
    cosine: bool = False  # `gtol` is of the angle between residuals and columns, as MINPACK's
    blocks: bool = True  # many points are evaluated block by block; not in a batch

    def few(self, k: int) -> bool:
        """Tell whether so many parameters of a batch are taken number by number (`_few.py`)."""
        return k <= FEW and not self.blocks


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


class Data(NamedTuple):
    """All that a fit depends on besides its start. A named tuple, since one is made for every
    call.
    """

    lower: Float[Array, "k"] | None
    upper: Float[Array, "k"] | None
    x_scale: Float[Array, "k"] | None
    controls: Float[Array, "5"]
    mask: Bool[Array, "points"] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Model(eqx.Module):
    """Cost at a point and the triangle [R, Q^T r] of its Gauss-Newton model."""

    cost: Float[Array, ""]
    triangle: Float[Array, "k k+1"]
    few: bool = eqx.field(static=True, default=False)  # see `Setup.few`

    @property
    def R(self) -> Float[Array, "k k"]:
        """Triangle of the Jacobian."""
        return self.triangle[:, :-1]

    @property
    def c(self) -> Float[Array, "k"]:
        """The residuals' part in its span, Q^T r."""
        return self.triangle[:, -1]

    @property
    def lengths(self) -> Float[Array, "k"]:
        """Lengths of the Jacobian's columns, which are those of its triangle."""
        return lengths(self.R) if self.few else jnp.linalg.norm(self.R, axis=0)

    @property
    def g(self) -> Float[Array, "k"]:
        """Gradient of the cost, J^T r = R^T Q^T r."""
        return gradient(self.R, self.c) if self.few else product(self.R.T, self.c)

    def finite(self, optimality: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether cost and derivatives can be used, by the optimality here: a number of the
        triangle that is not finite makes a component of the gradient one.
        """
        return jnp.isfinite(self.cost) & jnp.isfinite(optimality)


def residual_type(setup: Setup, x: Float[Array, "k"], data: Data) -> jax.ShapeDtypeStruct:
    """Shape and dtype of what `fun` gives, before it is cast."""
    return eqx.filter_eval_shape(lambda x, data: _called(setup, x, data), x, data)


def _called(setup: Setup, x: Float[Array, "k"] | list[Array], data: Data) -> Array:
    """What `fun` gives, as an array."""
    f = setup.fun(x, *data.args, **data.kwargs)
    if f is None:
        fail("`fun` returns None.", "It returns the residuals.", "end it with `return`.", TypeError)
    return jnp.atleast_1d(jnp.asarray(f))


def points(setup: Setup, x: Float[Array, "k"], data: Data) -> Float[Array, ""]:
    """Number of residuals that count."""
    if data.mask is not None:
        return jnp.sum(data.mask).astype(x.dtype)
    return jnp.asarray(residual_type(setup, x, data).shape[0], x.dtype)


def residuals(
    setup: Setup, x: Float[Array, "k"] | list[Array], data: Data
) -> Float[Array, "points"]:
    """Residuals at x in float64, 0 where masked out."""
    f = _called(setup, x, data).astype(jnp.float64)
    return f if data.mask is None else jnp.where(data.mask, f, 0.0)


def residuals_and_columns(
    setup: Setup, x: Float[Array, "k"], data: Data
) -> tuple[Float[Array, "points"], Columns]:
    """Residuals and the columns of their Jacobian: one forward pass, whose exponentials XLA
    computes once.
    """
    if setup.jac is not None:
        columns = jnp.asarray(setup.jac(x, *data.args, **data.kwargs)).astype(x.dtype).T
        return residuals(setup, x, data), columns if data.mask is None else jnp.where(
            data.mask, columns, 0.0
        )
    if isinstance(setup.fun, Residual) and x.size <= WIDE:
        return residuals(setup, x, data), jnp.stack(
            [_column(setup, list(x), i, data) for i in range(x.size)]
        )
    f, push = jax.linearize(lambda x: residuals(setup, x, data), x)
    return f, jax.vmap(push)(jnp.eye(x.size, dtype=x.dtype))


def _column(setup: Setup, parameters: list[Array], i: int, data: Data) -> Float[Array, "points"]:
    """Derivative with respect to one parameter of a curve.

    Parameters that come apart have no tangent but their own, so the others' terms are left out. A
    unit vector for all of them would multiply those terms by zero: a quarter of the time at a
    million points (`python -m examples.trf.options`).
    """

    def along(parameter: Array) -> Float[Array, "points"]:
        return residuals(setup, [*parameters[:i], parameter, *parameters[i + 1 :]], data)

    return jax.jvp(along, (parameters[i],), (jnp.ones_like(parameters[i]),))[1]


def weighted(
    setup: Setup, f: Float[Array, "points"], columns: Columns, data: Data
) -> tuple[Array, Array, Columns]:
    """Cost, residuals and columns of the linear least-squares problem that stands for the loss at
    this point.
    """
    rho = rho_of(setup.loss)
    if rho is None:
        return 0.5 * (f @ f), f, columns
    cost, f, weight = reweigh(rho, f, Controls.unpack(data.controls).f_scale, data.mask)
    return cost, f, columns * weight


def rows_at(setup: Setup, x: Float[Array, "k"], data: Data) -> list[Float[Array, "points"]]:
    """Weighted columns, residuals, and what each point costs."""
    f, columns = residuals_and_columns(setup, x, data)
    rho = rho_of(setup.loss)
    if rho is None:
        return [*columns, f, 0.5 * f * f]
    costs, f, weight = each_reweighed(rho, f, Controls.unpack(data.controls).f_scale, data.mask)
    return [*(columns * weight), f, costs]


def model_at(setup: Setup, x: Float[Array, "k"], data: Data) -> Model:
    """Evaluate residuals and Jacobian at x and reduce them to a few numbers a parameter, which
    carry no derivative.
    """
    count = residual_type(setup, x, data).shape[0]
    if setup.blocks and may_cut(x.size, count):
        found = by_blocks(partial(rows_at, setup), x, data, count)
        if found is not None:
            return Model(*found)
    f, columns = lax.stop_gradient(residuals_and_columns(setup, x, data))
    cost, f, columns = weighted(setup, f, columns, data)
    return Model(cost, triangularise(columns, f), setup.few(x.size))
