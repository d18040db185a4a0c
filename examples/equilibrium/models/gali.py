"""The New Keynesian model in three equations (Gali, "Monetary Policy, Inflation, and the Business
Cycle", chapter 3), in deviations.
"""

import equinox as eqx
from jaxtyping import Array, Float

from .._model import Model
from .._variables import Point

Number = Float[Array, ""] | float


class Params(eqx.Module):
    """Risk aversion, slope of the Phillips curve, discount factor, two reactions of policy,
    persistence of its shock.
    """

    sigma: Number = 1.0
    kappa: Number = 0.1275
    beta: Number = 0.99
    phi_pi: Number = 1.5
    phi_y: Number = 0.125
    rho_v: Number = 0.5


class Controls(eqx.Module):
    """Output gap, inflation, interest rate."""

    y: Number = 0.0
    pi: Number = 0.0
    i: Number = 0.0


class Shocks(eqx.Module):
    """What policy does besides reacting."""

    v: Number = 0.0


def equations(params: Params, now: Point, ahead: Point) -> dict[str, Array]:
    """Demand, supply, policy."""
    return {
        "demand": now.y - ahead.y + (now.i - ahead.pi) / params.sigma,
        "supply": now.pi - params.beta * ahead.pi - params.kappa * now.y,
        "policy": now.i - params.phi_pi * now.pi - params.phi_y * now.y - now.v,
    }


MODEL = Model(
    equations,
    Controls(),
    {},
    Shocks(),
    lambda params: Shocks(params.rho_v),
    Params(),
    name="Gali, chapter 3",
)
