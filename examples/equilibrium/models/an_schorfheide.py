"""The New Keynesian model of An and Schorfheide (2007), linear, as their `gensys` solutions have
it.
"""

import equinox as eqx
from jaxtyping import Array, Float

from .._model import Model
from .._variables import Point

Number = Float[Array, ""] | float


class Params(eqx.Module):
    """Elasticity, slope, reactions of policy, persistences, and the real interest rate in per cent
    a year.
    """

    tau: Number = 1.62398783
    kap: Number = 0.47671893
    psi1: Number = 1.51729311
    psi2: Number = 0.4416236
    rhor: Number = 0.43724069
    rhogg: Number = 0.65953619
    rhozz: Number = 0.60440589
    rA: Number = 0.51634896  # noqa: N815


class Controls(eqx.Module):
    """Consumption, inflation, interest rate, output, and its level."""

    c: Number = 0.0
    ppi: Number = 0.0
    R: Number = 0.0
    y: Number = 0.0
    ylev: Number = 0.0


class States(eqx.Module):
    """Interest rate and output of yesterday."""

    Rlag: Number = 0.0
    ylag: Number = 0.0


class Shocks(eqx.Module):
    """Spending, growth of technology, policy."""

    g: Number = 0.0
    z: Number = 0.0
    epsr: Number = 0.0


def equations(params: Params, now: Point, ahead: Point) -> dict[str, Array]:
    """Demand, supply, policy and accounts."""
    p, beta = params, 1.0 / (1.0 + params.rA / 400.0)
    rule = p.psi1 * now.ppi + p.psi2 * (now.y - now.g)
    return {
        "demand": now.c - ahead.c + (now.R - ahead.ppi - ahead.z) / p.tau,
        "supply": now.ppi - beta * ahead.ppi - p.kap * now.c,
        "policy": now.R - p.rhor * now.Rlag - (1.0 - p.rhor) * rule - now.epsr,
        "accounts": now.y - now.c - now.g,
        "level": now.ylev - now.y - now.z,
        "yesterday's rate": ahead.Rlag - now.R,
        "yesterday's output": ahead.ylag - now.y,
    }


def persistence(params: Params) -> Shocks:
    """Of each shock; that of policy has none."""
    return Shocks(params.rhogg, params.rhozz, 0.0)


MODEL = Model(
    equations, Controls(), States(), Shocks(), persistence, Params(), name="An and Schorfheide"
)
