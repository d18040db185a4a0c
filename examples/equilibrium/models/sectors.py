"""Fourteen sectors that accumulate capital under adjustment costs and share one consumption good,
written on sector vectors.

The planner maximises sum_t beta^t c^(1 - gamma) / (1 - gamma) subject to c + sum_i (I_i + phi / 2
(I_i / K_i - delta)^2 K_i) = sum_i y_i, K_i' = (1 - delta) K_i + I_i, y_i = Zbar_i exp(z_i)
K_i^alpha. Tobin's q is the shadow price of installed capital over that of consumption.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._model import Model
from .._variables import Point, derived

SECTORS = 14
Sector = Float[Array, "sector"] | Float[np.ndarray, "sector"]
Number = Float[Array, ""] | float


class Params(eqx.Module):
    """Share of capital, discount factor, depreciation, adjustment cost, risk aversion, persistence,
    productivity of each sector.
    """

    alpha: Number = 0.33
    beta: Number = 0.96
    delta: Number = 0.1
    phi: Number = 1.5
    gamma: Number = 2.0
    rho: Number = 0.9
    Zbar: Sector = eqx.field(default_factory=lambda: 0.5 + 0.02 * np.arange(SECTORS))


class Controls(eqx.Module):
    """Consumption; and for each sector investment, output, marginal product, Tobin's q, and the
    return to a unit of capital.
    """

    c: Number
    inv: Sector
    y: Sector
    mp: Sector
    q: Sector
    ret: Sector


class States(eqx.Module):
    """The logarithm of capital."""

    logK: Sector  # noqa: N815


class Shocks(eqx.Module):
    """The logarithm of productivity, over its mean."""

    z: Sector


class Economy(Point):
    """A period."""

    @derived
    def K(self) -> Array:
        """Capital."""
        return jnp.exp(self.logK)

    @derived
    def Z(self) -> Array:
        """Productivity."""
        return self.params.Zbar * jnp.exp(self.z)

    @derived
    def power(self) -> Array:
        """Capital's factor in output."""
        return jnp.exp(self.params.alpha * self.logK)

    @derived
    def output(self) -> Array:
        """What capital produces."""
        return self.Z * self.power

    @derived
    def marginal(self) -> Array:
        """What one more unit of capital would."""
        return self.params.alpha * self.y / self.K

    @derived
    def ratio(self) -> Array:
        """Investment to capital."""
        return self.inv / self.K

    @derived
    def gap(self) -> Array:
        """The ratio less what keeps capital constant."""
        return self.ratio - self.params.delta

    @derived
    def cost(self) -> Array:
        """Of adjusting capital."""
        return 0.5 * self.params.phi * self.gap * self.gap * self.K

    @derived
    def carried(self) -> Array:
        """Capital of tomorrow."""
        return (1.0 - self.params.delta) * self.K + self.inv

    @derived
    def pays(self) -> Array:
        """The return to a unit of capital: product, saved adjustment cost, and what is left of
        it.
        """
        p = self.params
        return self.mp + 0.5 * p.phi * self.gap * (self.ratio + p.delta) + (1.0 - p.delta) * self.q

    @derived
    def left(self) -> Array:
        """Output less investment and its cost."""
        return jnp.sum(self.y - self.inv - self.cost)

    @derived
    def utility(self) -> Array:
        """Marginal utility of consumption."""
        return self.c ** (-self.params.gamma)


def equations(params: Params, now: Economy, ahead: Economy) -> dict[str, Array]:
    """One residual for each control and state."""
    return {
        "output": now.y - now.output,
        "marginal product": now.mp - now.marginal,
        "Tobin's q": now.q - 1.0 - params.phi * now.gap,
        "return": now.ret - now.pays,
        "Euler": now.q * now.utility - params.beta * ahead.utility * ahead.ret,
        "capital": ahead.K - now.carried,
        "resources": now.c - now.left,
    }


def model(sectors: int = SECTORS) -> Model:
    """The model with this many sectors."""
    rows = np.full(sectors, 1.0)
    controls = Controls(float(sectors), 0.15 * rows, 0.75 * rows, 0.15 * rows, rows, 1.04 * rows)
    params = Params(Zbar=0.5 + 0.02 * np.arange(sectors))
    return Model(
        equations,
        controls,
        States(0.4 * rows),
        Shocks(0.0 * rows),
        lambda p: Shocks(p.rho),
        params,
        Economy,
        name=f"{sectors} sectors",
    )
