"""The solver before: the same method as a Python loop with NumPy in it, for comparison. Unbounded,
linear loss.

Nothing here is slow for want of care: residuals and Jacobian are compiled by `jax.jit`, the linear
algebra is LAPACK's. What it costs is that every turn of the loop goes from JAX to NumPy and back,
and that a hundred small NumPy calls a turn take longer than the arithmetic.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

EPS = np.finfo(float).eps
Vector = Float[np.ndarray, "k"]
Residual = Callable[[Vector], Float[np.ndarray, "points"]]
Jacobian = Callable[[Vector], Float[np.ndarray, "points k"]]


class Fit(NamedTuple):
    """What the loop ends with; `status` as in SciPy."""

    x: Vector
    cost: float
    nfev: int
    status: int


class Factors(NamedTuple):
    """The Jacobian's singular values and right vectors, and what is left of the residuals in its
    span.
    """

    s: Vector
    vt: Float[np.ndarray, "k k"]
    uf: Vector
    full_rank: bool


def least_squares(
    fun: Residual,
    x0: Vector,
    jac: Jacobian,
    ftol: float = 1e-8,
    xtol: float = 1e-8,
    gtol: float = 1e-8,
) -> Fit:
    """Minimise 0.5 |fun(x)|^2 by the trust-region rules of `examples.trf`, one NumPy call at a
    time.
    """
    x, f, J = x0, fun(x0), jac(x0)
    cost, g, factors = 0.5 * f @ f, J.T @ f, factored(J, f)
    radius, alpha, nfev, status = np.linalg.norm(x) or 1.0, 0.0, 1, 0
    while nfev < 100 * x.size:
        if np.max(np.abs(g)) < gtol:
            return Fit(x, cost, nfev, 1)
        if status:
            break
        step, alpha = subproblem(factors, radius, alpha)
        f_new = fun(x + step)
        nfev += 1
        length = np.linalg.norm(step)
        if not np.isfinite(f_new).all():
            radius = 0.25 * length
            continue
        cost_new = 0.5 * f_new @ f_new
        actual, predicted = cost - cost_new, -(0.5 * np.sum((J @ step) ** 2) + g @ step)
        ratio = actual / predicted if predicted > 0 else float(predicted == actual == 0)
        resized = (
            0.25 * length
            if ratio < 0.25
            else 2 * radius
            if ratio > 0.75 and length > 0.95 * radius
            else radius
        )
        by_cost, by_step = (
            actual < ftol * cost and ratio > 0.25,
            length < xtol * (xtol + np.linalg.norm(x)),
        )
        status = 4 if by_cost and by_step else 2 if by_cost else 3 if by_step else 0
        alpha, radius = alpha * radius / resized, resized
        if actual > 0:
            x, f, cost = x + step, f_new, cost_new
            J = jac(x)
            g, factors = J.T @ f, factored(J, f)
    return Fit(x, cost, nfev, status)


def factored(J: Float[np.ndarray, "points k"], f: Float[np.ndarray, "points"]) -> Factors:
    """Decompose the Jacobian."""
    u, s, vt = np.linalg.svd(J, full_matrices=False)
    return Factors(s, vt, u.T @ f, bool(s[-1] > EPS * f.size * s[0]))


def subproblem(factors: Factors, radius: float, alpha: float) -> tuple[Vector, float]:
    """Shortest way to minimise the linear model inside the radius."""
    s, vt, uf, full_rank = factors
    suf = s * uf
    lower, upper = 0.0, np.linalg.norm(suf) / radius
    if full_rank:
        newton = -vt.T @ (uf / s)
        length = np.linalg.norm(newton)
        if length <= radius:
            return newton, 0.0
        lower = (length - radius) * length / np.sum(suf**2 / s**6)
    if not full_rank and alpha == 0:
        alpha = -1.0
    for _ in range(10):
        if not lower <= alpha <= upper:
            alpha = max(0.001 * upper, np.sqrt(lower * upper))
        damped = s**2 + alpha
        length = np.linalg.norm(suf / damped)
        excess, slope = length - radius, -np.sum(suf**2 / damped**3) / length
        upper = alpha if excess < 0 else upper
        lower = max(lower, alpha - excess / slope)
        alpha -= length / radius * excess / slope
        if abs(excess) < 0.01 * radius:
            break
    p = -vt.T @ (suf / (s**2 + alpha))
    return p * (radius / np.linalg.norm(p)), alpha
