"""What type checkers infer for states and shared computations."""

from typing import assert_type

import jax
from jaxtyping import Array, Float

import jitney
from jitney import Program, shared
from jitney.states import State, derived


class Economy(State):
    capital: Float[Array, "sector"]

    @derived
    def output(self) -> jax.Array:
        return self.capital * 2


def names(economy: Economy) -> None:
    assert_type(economy.output, jax.Array)
    assert_type(Economy.of(economy.capital), Economy)
    assert_type(economy.of(economy.capital), Economy)
    assert_type(economy.names, tuple[str, ...])
    assert_type(Economy.output, jitney.states.DerivedField[jax.Array])


@shared
def product(x: jax.Array, scale: float) -> jax.Array:
    return x * scale


@shared(remat=True)
def other(x: jax.Array) -> jax.Array:
    return x


_: Program[[jax.Array], jax.Array] = other


def calls(x: jax.Array) -> None:
    assert_type(product(x, 2.0), jax.Array)
    assert_type(other(x), jax.Array)
