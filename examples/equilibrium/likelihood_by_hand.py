"""The likelihood of An and Schorfheide (2007) as one writes it for one model, without this package:
a policy by cyclic reduction (Bini, Latouche and Meini 2005), a Kalman filter, and its adjoint.

It is what `benchmark.py` compares `solution`, `log_likelihood` and `solutions` with. Nothing looks
whether there is one stable solution, and no number is missing in the data.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Matrix = Float[Array, "rows columns"]
Vector = Float[Array, "size"]
Given = tuple[Matrix, Matrix, Matrix, Vector, Matrix]
TURNS = 10  # of the reduction, each of which squares what is left
DOUBLINGS = 13  # of the sum of a stationary variance
VARIANCES = (0.53220526**2, 3.20302156**2, 0.54936489**2)  # of g, z and policy, as published


def matrices(p: dict[str, Array]) -> tuple[Matrix, Matrix, Matrix, Matrix, Vector]:
    """B y(-1) + F y + D y(+1) + E z = 0 of y = (c, pi, R, y) and z = (g, z, policy), and the
    persistence of z.
    """
    tau, kap, beta = p["tau"], p["kap"], 1.0 / (1.0 + p["rA"] / 400.0)
    own, psi1, psi2 = 1.0 - p["rhor"], p["psi1"], p["psi2"]
    rows = [
        [1.0, 0.0, 1.0 / tau, 0.0],
        [-kap, 1.0, 0.0, 0.0],
        [0.0, -own * psi1, 1.0, -own * psi2],
        [-1.0, 0.0, 0.0, 1.0],
    ]
    F = jnp.array(rows)
    B = jnp.zeros((4, 4)).at[2, 2].set(-p["rhor"])
    D = jnp.zeros((4, 4)).at[0, 0].set(-1.0).at[0, 1].set(-1.0 / tau).at[1, 1].set(-beta)
    rho = jnp.array([p["rhogg"], p["rhozz"], 0.0])
    E = jnp.zeros((4, 3)).at[0, 1].set(-p["rhozz"] / tau)
    E = E.at[2, 0].set(own * psi2).at[2, 2].set(-1.0).at[3, 0].set(-1.0)
    return B, F, D, E, rho


def policy(p: dict[str, Array]) -> tuple[Matrix, Matrix, Vector]:
    """y = G y(-1) + H z, and the persistence of z."""
    B, F, D, E, rho = matrices(p)

    def reduced(state: tuple[Matrix, ...], _: None) -> tuple[tuple[Matrix, ...], None]:
        back, here, ahead, first = state
        solved = jnp.linalg.solve(here, jnp.concatenate([back, ahead], 1))
        by_back, by_ahead = solved[:, :4], solved[:, 4:]
        here = here - back @ by_ahead - ahead @ by_back
        return (-back @ by_back, here, -ahead @ by_ahead, first - ahead @ by_back), None

    (_, _, _, first), _ = lax.scan(reduced, (B, F, D, F), None, TURNS)
    G = -jnp.linalg.solve(first, B)
    carried = F + D @ G
    H = jax.vmap(lambda r, e: -jnp.linalg.solve(carried + r * D, e), (0, 1), 1)(rho, E)
    return G, H, rho


def system(p: dict[str, Array]) -> tuple[Matrix, Matrix, Matrix]:
    """A, the variance of what moves s = (R(-1), y(-1), g, z, policy), and C of the level of output,
    inflation and the interest rate.
    """
    G, H, rho = policy(p)
    now = jnp.concatenate([G[:, 2:], H], 1)  # of y by s, since c(-1) and pi(-1) move nothing
    own = jnp.concatenate([jnp.zeros((3, 2)), jnp.diag(rho)], 1)
    A = jnp.concatenate([now[2:4], own])
    noise = jnp.diag(jnp.array([0.0, 0.0, *VARIANCES]))
    level = now[3].at[3].add(1.0)
    C = jnp.stack([level, now[1], now[2]])
    return A, noise, C


def start(A: Matrix, noise: Matrix) -> Matrix:
    """The stationary variance: a sum of which each turn doubles the number of terms."""

    def double(state: tuple[Matrix, Matrix], _: None) -> tuple[tuple[Matrix, Matrix], None]:
        power, total = state
        return (power @ power, total + power @ total @ power.T), None

    return lax.scan(double, (A, noise), None, DOUBLINGS)[0][1]


def updated(state: tuple[Vector, Matrix], C: Matrix, errors: Vector, y: Vector) -> Any:
    """What one date says: gains, and the state after it."""
    mean, P = state
    off, PC = y - C @ mean, P @ C.T
    S = C @ PC + jnp.diag(errors)
    W = jnp.linalg.inv(S)
    K = PC @ W
    left = P - K @ PC.T
    # without this rounding grows from date to date where there are no measurement errors
    return off, W, K, mean + K @ off, 0.5 * (left + left.T)


@jax.custom_vjp
def kalman(A: Matrix, noise: Matrix, C: Matrix, errors: Vector, data: Matrix) -> Float[Array, ""]:
    """The likelihood."""
    return _forward(A, noise, C, errors, data)[0]


def _forward(
    A: Matrix, noise: Matrix, C: Matrix, errors: Vector, data: Matrix
) -> tuple[Float[Array, ""], Any]:
    def date(state: tuple[Vector, Matrix], y: Vector) -> Any:
        off, W, _, mean, P = updated(state, C, errors, y)
        constant = len(C) * jnp.log(2.0 * jnp.pi)
        density = -0.5 * (off @ W @ off - jnp.linalg.slogdet(W)[1] + constant)
        return (A @ mean, A @ P @ A.T + noise), (density, state)

    begun = jnp.zeros(len(A)), start(A, noise)
    densities, states = lax.scan(date, begun, data)[1]
    return jnp.sum(densities), ((A, noise, C, errors, data), states)


def _backward(kept: Any, by: Float[Array, ""]) -> Given:
    """The adjoint, date by date from the last."""
    (A, _, C, errors, data), states = kept
    one = jnp.eye(len(A))

    def date(carried: Any, given: Any) -> Any:
        by_mean, by_P, by_A, by_noise, by_C, by_errors = carried
        state, y = given
        mean, P = state
        off, W, K, seen, left = updated(state, C, errors, y)

        # what is expected of the next date
        by_A = by_A + jnp.outer(by_mean, seen) + 2.0 * by_P @ A @ left
        by_noise = by_noise + by_P
        by_mean, by_P = A.T @ by_mean, A.T @ by_P @ A

        # what this date has said
        w = W @ off
        by_w = C @ (P @ by_mean)
        by_off = W @ by_w - by * w
        cross = jnp.outer(W @ by_w, w)
        by_S = 0.5 * (by * (jnp.outer(w, w) - W) - cross - cross.T)
        bent, shrunk = K.T @ by_P, one - K @ C
        drawn = jnp.outer(by_mean, C.T @ w)
        by_C = by_C + jnp.outer(w, P @ by_mean) - 2.0 * bent @ left + 2.0 * by_S @ C @ P
        by_C = by_C - jnp.outer(by_off, mean)
        by_errors = by_errors + jnp.diagonal(by_S) + jnp.diagonal(bent @ K)
        by_P = shrunk.T @ by_P @ shrunk + 0.5 * (drawn + drawn.T) + C.T @ by_S @ C
        return (by_mean - C.T @ by_off, by_P, by_A, by_noise, by_C, by_errors), by_off

    zero = jnp.zeros_like
    begun = (jnp.zeros(len(A)), zero(A), zero(A), zero(A), zero(C), zero(errors))
    (_, by_P, by_A, by_noise, by_C, by_errors), by_data = lax.scan(
        date, begun, (states, data), reverse=True
    )
    moved = start(A.T, by_P)
    by_A = by_A + 2.0 * moved @ A @ states[1][0]
    return by_A, by_noise + moved, by_C, by_errors, by_data


kalman.defvjp(_forward, _backward)


def likelihood(p: dict[str, Array], errors: Vector, data: Matrix) -> Float[Array, ""]:
    """From parameters."""
    return kalman(*system(p), errors, data)


@jax.jit
def sweep(draws: dict[str, Array]) -> tuple[Matrix, Matrix, Array, dict[str, Array]]:
    """Policies of draws, what technology does to the interest rate in each, and its gradient."""

    def one(p: dict[str, Array]) -> tuple[Array, tuple[Matrix, Matrix]]:
        G, H, _ = policy(p)
        return H[2, 1], (G, H)

    (value, (G, H)), slope = jax.vmap(jax.value_and_grad(one, has_aux=True))(draws)
    return G, H, value, slope
