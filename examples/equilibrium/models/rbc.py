"""Three real business cycle models whose solutions by Dynare 5.4 are in `data/`, the first one in
levels and in logarithms.

`K` is the stock at the beginning of a period, chosen in the one before; Dynare's `K` of the same
date is `ahead.K`.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._model import Model
from .._variables import Point, derived

Number = Float[Array, ""] | float


class Params(eqx.Module):
    """Share of capital, discount factor, depreciation, persistence, and two parameters of
    preferences.
    """

    alpha: Number
    beta: Number
    delta: Number
    rho: Number
    first: Number
    second: Number


class States(eqx.Module):
    """Capital."""

    K: Number


class Shocks(eqx.Module):
    """The logarithm of productivity."""

    a: Number = 0.0


class Prices(eqx.Module):
    """Controls of a market economy with separable preferences."""

    C: Number
    I: Number
    L: Number
    Y: Number
    lam: Number
    r: Number
    w: Number


class Production(Point):
    """A period of any of the models."""

    @derived
    def A(self) -> Array:
        """Productivity."""
        return jnp.exp(self.a)

    @derived
    def product(self) -> Array:
        """What capital and labour make."""
        return self.A * self.K**self.params.alpha * self.L ** (1.0 - self.params.alpha)

    @derived
    def carried(self) -> Array:
        """Capital of tomorrow."""
        return (1.0 - self.params.delta) * self.K + self.I


class InLogs(Production):
    """A period whose variables are the logarithms of those that the equations read."""

    def __init__(self, params: Any, controls: Any, states: Any, shocks: Any):
        super().__init__(
            params, jax.tree.map(jnp.exp, controls), jax.tree.map(jnp.exp, states), shocks
        )


def common(params: Params, now: Any, ahead: Any) -> dict[str, Array]:
    """Resources, technology and factor prices. Sigma_C is `params.first`, sigma_L
    `params.second`.
    """
    return {
        "resources": now.C + now.I - now.Y,
        "output": now.Y - now.product,
        "capital": ahead.K - now.carried,
        "rental rate": now.r - params.alpha * now.product / now.K,
        "wage": now.w - (1.0 - params.alpha) * now.product / now.L,
        "marginal utility": now.lam - now.C**-params.first,
        "labour": now.L**params.second - now.lam * now.w,
    }


def basic(params: Params, now: Any, ahead: Any) -> dict[str, Array]:
    """Seven equations."""
    return common(params, now, ahead) | {
        "Euler": now.lam - params.beta * ahead.lam * (ahead.r + 1.0 - params.delta)
    }


class Blocks(eqx.Module):
    """Controls of the model of two blocks: the firm's cost, welfare and the price of capital
    besides.
    """

    C: Number
    I: Number
    L: Number
    TC: Number
    U: Number
    Y: Number
    lam: Number
    q: Number
    r: Number
    w: Number


def two_blocks(params: Params, now: Any, ahead: Any) -> dict[str, Array]:
    """Ten equations; welfare is the discounted sum of utility."""
    felicity = now.C ** (1.0 - params.first) / (1.0 - params.first) - now.L ** (
        1.0 + params.second
    ) / (1.0 + params.second)
    return common(params, now, ahead) | {
        "cost": now.TC + now.r * now.K + now.w * now.L,
        "welfare": now.U - felicity - params.beta * ahead.U,
        "investment": now.q - now.lam,
        "Euler": now.q - params.beta * (ahead.lam * ahead.r + ahead.q * (1.0 - params.delta)),
    }


class Planner(eqx.Module):
    """Controls of the planner with utility (C^theta (1 - L)^(1 - theta))^(1 - tau) / (1 - tau)."""

    C: Number
    I: Number
    L: Number
    U: Number
    Y: Number
    lam: Number
    q: Number


def one_block(params: Params, now: Any, ahead: Any) -> dict[str, Array]:
    """Seven equations. Theta is `params.first`, tau `params.second`."""
    theta, tau = params.first, params.second
    composite = (now.C**theta * (1.0 - now.L) ** (1.0 - theta)) ** (1.0 - tau)
    return {
        "resources": now.C + now.I - now.Y,
        "output": now.Y - now.product,
        "capital": ahead.K - now.carried,
        "welfare": now.U - composite / (1.0 - tau) - params.beta * ahead.U,
        "marginal utility": now.lam - theta * composite / now.C,
        "labour": (1.0 - theta) * composite / (1.0 - now.L)
        - now.lam * (1.0 - params.alpha) * now.product / now.L,
        "investment": now.q - now.lam,
        "Euler": now.q
        - params.beta
        * (ahead.lam * params.alpha * ahead.product / ahead.K + ahead.q * (1.0 - params.delta)),
    }


@dataclass(frozen=True)
class Case:
    """A model, and how its file calls the variables: Dynare's name, ours."""

    file: str
    model: Model
    preferences: tuple[str, str]

    def params(self, given: dict[str, float]) -> Params:
        """From the file's parameters."""
        rho = given.get("rho_A", given.get("rho"))
        return Params(
            given["alpha"],
            given["beta"],
            given["delta"],
            rho,
            *(given[name] for name in self.preferences),
        )


def _model(
    equations: Any, controls: Any, capital: float, name: str, point: type[Point] = Production
) -> Model:
    example = Params(0.35, 0.99, 0.02, 0.95, 1.5, 2.0)
    return Model(
        equations,
        controls,
        States(capital),
        Shocks(),
        lambda params: Shocks(params.rho),
        example,
        point,
        name=name,
    )


_levels = Prices(2.0, 0.6, 0.8, 2.6, 0.3, 0.03, 2.0)
_logs = Prices(0.7, -0.5, -0.2, 1.0, -1.2, -3.5, 0.7)
CASES = (
    Case("dynare_basic_rbc", _model(basic, _levels, 30.0, "RBC"), ("sigma_C", "sigma_L")),
    Case(
        "dynare_basic_rbc_loglinear",
        _model(basic, _logs, 3.4, "RBC in logarithms", InLogs),
        ("sigma_C", "sigma_L"),
    ),
    Case(
        "dynare_one_block_1_ss",
        _model(one_block, Planner(0.9, 0.3, 0.3, -130.0, 1.2, 0.5, 0.5), 12.0, "planner"),
        ("theta", "tau"),
    ),
    Case(
        "dynare_rbc_2_block_ss",
        _model(
            two_blocks,
            Blocks(1.8, 0.5, 0.7, -2.3, -48.0, 2.3, 0.3, 0.3, 0.04, 2.0),
            18.0,
            "two blocks",
        ),
        ("sigma_C", "sigma_L"),
    ),
)
