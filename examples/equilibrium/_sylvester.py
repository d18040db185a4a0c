"""The linear equation of policies and their derivatives, M Y + N Y H = C, and that of second
derivatives, where H is applied to both axes of Y.

Its solution is a sum over the future, Y = C' + A Y H with A = -M^-1 N and C' = M^-1 C, which a
doubling sums: each turn adds as many terms as all before it (Smith 1968). The roots of A are the
inverses of the explosive ones, those of H the stable ones, so the sum converges wherever there is
one stable solution, with unit roots and with repeated ones.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# 2^40 terms. What has not converged by then has two roots whose product is within 1e-11 of one: it
# has no sum, and is NaN
TURNS = 40
CLOSE = 1e-17  # of the largest element, for a term that no longer counts

Square = Float[Array, "n n"]
Columns = Float[Array, "n m"] | Float[Array, "n m m"]
State = tuple[Square, Columns, Columns, Columns, Array]


def sylvester(M: Square, N: Square, H: Float[Array, "m m"], C: Columns) -> Columns:
    """Y with M Y + N Y H = C, or N Y(H, H); linear in C, and differentiable in all to any order."""

    def left(Y: Columns) -> Columns:
        return _times(M, Y) + _after(_times(N, Y), H)

    def solve(_: object, side: Columns) -> Columns:
        return _refined(left, lambda C: _summed(A, H, divided(C)), side)

    def transposed(_: object, side: Columns) -> Columns:
        # Of the same A, whose roots are those of M^-T N^T, and which is the better scaled where
        # the policy is large, as beside a unit root: L^T = (1 - A^T . H^T) M^T.
        return _refined(
            lambda Y: _times(M.T, Y) + _after(_times(N.T, Y), H.T),
            lambda C: divided(_summed(A.T, H.T, C), transpose=True),
            side,
        )

    factors = jax.scipy.linalg.lu_factor(M)

    def divided(C: Columns, *, transpose: bool = False) -> Columns:
        flat = C.reshape(len(C), math.prod(C.shape[1:]))
        return jax.scipy.linalg.lu_solve(factors, flat, trans=int(transpose)).reshape(C.shape)

    A = -jax.scipy.linalg.lu_solve(factors, N)
    return lax.custom_linear_solve(left, C, solve, transposed)


def _refined(
    left: Callable[[Columns], Columns], solved: Callable[[Columns], Columns], C: Columns
) -> Columns:
    """A solution, and what rounding left of the equation solved once more."""
    first = solved(C)
    return first + solved(C - left(first))


def _times(A: Square, Y: Columns) -> Columns:
    """A matrix times the first axis."""
    return jnp.tensordot(A, Y, 1)


def _after(Y: Columns, H: Float[Array, "m m"]) -> Columns:
    """A matrix behind each further axis."""
    return Y @ H if Y.ndim == 2 else jnp.einsum("ncd,ca,db->nab", Y, H, H)


def _summed(A: Square, H: Float[Array, "m m"], Y: Columns) -> Columns:
    """The sum of A^k Y H^k, or A^k Y(H^k, H^k)."""

    def counts(Y: Columns, term: Columns) -> Array:
        # of NaN nothing is larger, so they end it
        return jnp.max(jnp.abs(term), initial=0.0) > CLOSE * jnp.max(jnp.abs(Y), initial=0.0)

    def goes_on(state: State) -> Array:
        _, _, Y, term, turn = state
        return counts(Y, term) & (turn < TURNS)

    def double(state: State) -> State:
        A, H, Y, _, turn = state
        term = _after(_times(A, Y), H)
        return A @ A, H @ H, Y + term, term, turn + 1

    first = (A, H, Y, Y, jnp.zeros((), jnp.int32))
    _, _, Y, term, _ = lax.while_loop(goes_on, double, first)
    return jnp.where(counts(Y, term), jnp.nan, Y)
