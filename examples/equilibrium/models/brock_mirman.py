"""Growth with log utility and full depreciation (Brock and Mirman 1972), whose solution is known:
k' = alpha beta y.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._model import Model
from .._variables import Point, derived


class Params(eqx.Module):
    """Share of capital, discount factor, persistence of productivity."""

    alpha: Float[Array, ""] | float = 0.36
    beta: Float[Array, ""] | float = 0.96
    rho: Float[Array, ""] | float = 0.9


class Controls(eqx.Module):
    """The logarithm of consumption."""

    logc: Float[Array, ""] | float = -1.0


class States(eqx.Module):
    """The logarithm of capital."""

    logk: Float[Array, ""] | float = -1.5


class Shocks(eqx.Module):
    """The logarithm of productivity."""

    a: Float[Array, ""] | float = 0.0


class Growth(Point):
    """A period."""

    @derived
    def y(self):  # noqa: D102, ANN201
        return jnp.exp(self.a + self.params.alpha * self.logk)

    @derived
    def c(self):  # noqa: D102, ANN201
        return jnp.exp(self.logc)

    @derived
    def k(self):  # noqa: D102, ANN201
        return jnp.exp(self.logk)


def equations(params: Params, now: Growth, ahead: Growth) -> dict[str, Array]:
    """Euler equation and resources."""
    return {
        "euler": 1.0 - params.beta * now.c / ahead.c * params.alpha * ahead.y / ahead.k,
        "resources": now.c + ahead.k - now.y,
    }


MODEL = Model(
    equations,
    Controls(),
    States(),
    Shocks(),
    lambda params: Shocks(params.rho),
    Params(),
    Growth,
    name="Brock-Mirman",
)
