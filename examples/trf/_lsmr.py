"""The s that minimises |A s - b|^2 + |damp s|^2, from products alone: LSMR (Fong and Saunders, SIAM
J. Sci. Comput. 33, 2011), with its stopping rules, as one `lax.while_loop`.

Golub and Kahan's bidiagonalisation gives A V = U B; two sequences of plane rotations keep the QR
factors of B and of B^T B, and with them norms of the residual and of the gradient without either.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Rows = Float[Array, "m"]

CONDITION = 1e8  # beyond which it stops


class Numbers(NamedTuple):
    """Of the rotations, and what the rules of stopping ask for; names as in the paper, `before` for
    those of the last turn. In the loop they are one array.
    """

    alpha: Scalar
    alphabar: Scalar
    zetabar: Scalar
    rho: Scalar
    rhobar: Scalar
    cbar: Scalar
    sbar: Scalar
    betadd: Scalar
    betad: Scalar
    rhod_before: Scalar
    tautilde_before: Scalar
    thetatilde: Scalar
    zeta: Scalar
    lost: Scalar  # to the damping: a part of the square of the residual
    squares: Scalar  # of the entries of B: the square of A's norm
    most: Scalar  # of the pivots
    least: Scalar
    turns: Scalar
    done: Scalar
    of_u: Scalar  # times u, of length 1
    of_v: Scalar


class State(NamedTuple):
    """Vectors and numbers. To make u and v of length 1 would pass over each once more a turn."""

    u: Rows
    v: Vector
    h: Vector
    hbar: Vector
    s: Vector
    numbers: Float[Array, "n"]


def lsmr(
    times: Callable[[Vector], Rows],
    transposed: Callable[[Rows], Vector],
    b: Rows,
    atol: Scalar | float,
    btol: Scalar | float,
    turns: Scalar | float,
    damp: Scalar | float = 0.0,
) -> Vector:
    """Minimise |A s - b|^2 + |damp s|^2; of several s, the shortest.

    Args:
        times: s to A s.
        transposed: u to A^T u.
        b: Right-hand side.
        atol: Relative error of A: stops where the gradient is below it, relative to |A| |r|.
        btol: Relative error of b.
        turns: Limit.
        damp: Rows of damp I below A, which then need not be there.
    """
    size = jnp.linalg.norm(b)

    def unfinished(state: State) -> Bool[Array, ""]:
        numbers = Numbers(*state.numbers)
        return (numbers.done == 0) & (numbers.turns < turns)

    def turn(state: State) -> State:
        return _turned(state, times, transposed, (size, damp), (atol, btol))

    return lax.while_loop(unfinished, turn, _begun(transposed, b, size)).s


def _begun(transposed: Callable[[Rows], Vector], b: Rows, beta: Scalar) -> State:
    of_u = _over_length(beta)
    v = transposed(b * of_u)
    alpha = jnp.linalg.norm(v)
    of_v = _over_length(alpha)
    zero, one = jnp.zeros_like(alpha), jnp.ones_like(alpha)
    numbers = Numbers(
        alpha=alpha,
        alphabar=alpha,
        zetabar=alpha * beta,
        rho=one,
        rhobar=one,
        cbar=one,
        sbar=zero,
        betadd=beta,
        betad=zero,
        rhod_before=one,
        tautilde_before=zero,
        thetatilde=zero,
        zeta=zero,
        lost=zero,
        squares=alpha**2,
        most=zero,
        least=1e100 * one,
        turns=zero,
        done=(alpha * beta == 0).astype(alpha.dtype),
        of_u=of_u,
        of_v=of_v,
    )
    nothing = jnp.zeros_like(v)
    return State(b, v, of_v * v, nothing, nothing, jnp.stack(numbers))


def _turned(
    state: State,
    times: Callable[[Vector], Rows],
    transposed: Callable[[Rows], Vector],
    given: tuple[Scalar, Scalar | float],
    tolerances: tuple[Scalar | float, Scalar | float],
) -> State:
    old, (size, damp), (atol, btol) = Numbers(*state.numbers), given, tolerances
    u = old.of_v * times(state.v) - (old.alpha * old.of_u) * state.u
    beta = jnp.linalg.norm(u)
    of_u = _over_length(beta)
    v = of_u * transposed(u) - (beta * old.of_v) * state.v
    alpha = jnp.linalg.norm(v)
    of_v = _over_length(alpha)

    # B, over damp I, to R, and R^T to its own triangle
    chat, shat, alphahat = _rotation(old.alphabar, jnp.asarray(damp))
    c, s, rho = _rotation(alphahat, beta)
    thetanew, alphabar = s * alpha, c * alpha
    thetabar, pivot = old.sbar * rho, old.cbar * rho
    cbar, sbar, rhobar = _rotation(pivot, thetanew)
    zeta, zetabar = cbar * old.zetabar, -sbar * old.zetabar

    hbar = state.h - _over(thetabar * rho, old.rho * old.rhobar) * state.hbar
    step = state.s + _over(zeta, rho * rhobar) * hbar
    length = jnp.linalg.norm(step)
    # 0 * length makes XLA write h last, over the old one: without it that is copied first
    h = of_v * v - (_over(thetanew, rho) + 0.0 * length) * state.h

    # the norm of the residual
    betahat, betadd = c * chat * old.betadd, -s * chat * old.betadd
    lost = old.lost + (shat * old.betadd) ** 2
    ctilde, stilde, rhotilde = _rotation(old.rhod_before, thetabar)
    thetatilde, rhod = stilde * rhobar, ctilde * rhobar
    betad = -stilde * old.betad + ctilde * betahat
    tautilde = _over(old.zeta - old.thetatilde * old.tautilde_before, rhotilde)
    taud = _over(zeta - thetatilde * tautilde, rhod)
    residual = jnp.sqrt(lost + (betad - taud) ** 2 + betadd**2)

    squares = old.squares + beta**2
    norm, gradient = jnp.sqrt(squares), jnp.abs(zetabar)
    most = jnp.maximum(old.most, old.rhobar)
    least = jnp.where(old.turns > 0, jnp.minimum(old.least, old.rhobar), old.least)
    condition = jnp.maximum(most, pivot) / jnp.minimum(least, pivot)
    done = (
        (residual <= btol * size + atol * norm * length)
        | (gradient <= atol * norm * residual)
        | (condition >= CONDITION)
        | (alpha == 0)
        | ~jnp.isfinite(length)
    )
    numbers = Numbers(
        alpha,
        alphabar,
        zetabar,
        rho,
        rhobar,
        cbar,
        sbar,
        betadd,
        betad,
        rhod,
        tautilde,
        thetatilde,
        zeta,
        lost,
        squares + alpha**2,
        most,
        least,
        old.turns + 1,
        done.astype(alpha.dtype),
        of_u,
        of_v,
    )
    return State(u, v, h, hbar, step, jnp.stack(numbers))


def _over_length(length: Scalar) -> Scalar:
    """1 / length, and 0 where it is."""
    return _over(jnp.ones_like(length), length)


def _over(a: Scalar, b: Scalar) -> Scalar:
    """a / b, and 0 where b is."""
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))


def _rotation(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Cosine, sine and length of the rotation that takes (a, b) to (length, 0)."""
    length = jnp.hypot(a, b)
    return jnp.where(length == 0, 1.0, _over(a, length)), _over(b, length), length
