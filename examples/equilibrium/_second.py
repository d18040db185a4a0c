"""Policies to second order (Schmitt-Grohé and Uribe 2004), and what follows from them by pruning
(Kim, Kim, Schaumburg and Sims 2008; Andreasen, Fernández-Villaverde and Rubio-Ramírez 2018).

Differentiated twice, the equations are linear in second derivatives of the policy. The derivatives
of the equations are JAX's, of the Jacobian that the first order has, along the directions in which
the solution moves; so all of this is a function of parameters that JAX differentiates.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ._fail import ModelError, message
from ._given import count, in_float64, made_by, real
from ._implicit import Solution, vector
from ._model import NAMES, Model
from ._moments import Matrix, Moments, levels, matrix, places, system, variance
from ._persistence import full
from ._rolled import elements
from ._sylvester import sylvester

Vector = Float[Array, "size"]
Cube = Float[Array, "rows s s"]


class Second(NamedTuple):
    """A policy to second order, in deviations from the steady state, with s = (x, z).

    u = G s + 1/2 G_ss(s, s) + 1/2 G_risk and x' = H s + 1/2 H_ss(s, s) + 1/2 H_risk; G and H are
    those of the first order, `first`, whose verdict is its own.

    Args:
        covariance: Of the innovations, on which the two constants depend.
    """

    first: Solution
    G_ss: Cube
    H_ss: Cube
    G_risk: Vector
    H_risk: Vector
    covariance: Matrix


def second_order(model: Model, found: Solution, covariance: PyTree) -> Second:
    """The policy to second order, under `jit`, `vmap` and `grad`.

    Args:
        model: The model.
        found: What `solution` gives.
        covariance: Of the innovations of shocks: a matrix, or a group like the shocks with their
            variances.
    """
    made_by("second_order", "model", model, Model, "Model(...)")
    where = f"{model.name}, second order"
    in_float64(where)
    made_by(where, "found", found, Solution, "solution(model, params)")
    return _program(model)(found, matrix(model, covariance, where))


@lru_cache(maxsize=64)
def _program(model: Model) -> Callable[[Solution, Matrix], Second]:
    """One program; without it each operation would be one."""
    local, sizes = model.local, model.sizes
    moving = NAMES[1:]
    where = np.concatenate([local.index[name] for name in moving], 1)
    nu, nx, nz = sizes["u"], sizes["x"], sizes["z"]

    def jacobian(theta: Vector, v: Vector) -> Matrix:
        entries = local.entries(jnp.concatenate([theta, v])[:, None])[:, 0]
        return elements(entries, where)

    def bent(theta: Vector, v: Vector, along: Matrix) -> Cube:
        """Second derivatives of the equations along directions."""
        return jax.jacfwd(lambda s: jacobian(theta, v + along @ s) @ along)(
            jnp.zeros(along.shape[1])
        )

    @jax.jit
    def second(found: Solution, sigma: Matrix) -> Second:
        G, S = policies(found)
        H, zero = S[:nx], jnp.zeros
        v = jnp.concatenate([found.u, found.x, zero(nz), found.u, found.x, zero(nz)])
        F_u, _, _, F_u_next, F_x_next, _ = jnp.split(
            jacobian(found.theta, v), np.cumsum([nu, nx, nz, nu, nx]), axis=1
        )
        carried = F_x_next + F_u_next @ found.G_x

        # today's state moves all six groups
        along = jnp.concatenate([G, jnp.eye(nx + nz), G @ S, H, S[nx:]])
        both = sylvester(
            jnp.concatenate([F_u, carried], 1),
            jnp.concatenate([F_u_next, zero(F_x_next.shape)], 1),
            S,
            -bent(found.theta, v, along),
        )
        G_ss, H_ss = both[:nu], both[nu:]

        # tomorrow's shocks move what is of tomorrow
        still, own = zero((nu + nx + nz, nz)), zero((nx, nz))
        along = jnp.concatenate([still, found.G_z, own, jnp.eye(nz)])
        noise = jnp.einsum("iab,ab->i", bent(found.theta, v, along), sigma)
        noise += F_u_next @ jnp.einsum("iab,ab->i", G_ss[:, nx:, nx:], sigma)
        risk = -jnp.linalg.solve(jnp.concatenate([F_u + F_u_next, carried], 1), noise)
        return Second(found, G_ss, H_ss, risk[:nu], risk[nu:], sigma)

    return second


def policies(found: Solution) -> tuple[Matrix, Matrix]:
    """What s = (x, z) of today does to controls, and to s of tomorrow."""
    nx, nz = found.x.size, found.G_z.shape[1]
    G = jnp.concatenate([found.G_x, found.G_z], 1)
    H = jnp.concatenate([found.H_x, found.H_z], 1)
    own = jnp.concatenate([jnp.zeros((nz, nx)), full(found.rho)], 1)
    return G, jnp.concatenate([H, own])


def simulate(
    model: Model, second: Second, innovations: Float[Array, "dates z"], x0: PyTree = None
) -> dict[str, Float[Array, "dates"]]:
    """A path with these innovations, pruned: squares are those of the first order, so the path does
    not explode.

    Args:
        model: The model.
        second: What `second_order` gives.
        innovations: Rows are dates; those of the first date move its shocks.
        x0: States at the first date, a group like the model's. Default: those of the steady state.

    Returns:
        Levels by name: controls, states as they are at the beginning of a date, and shocks.
    """
    made_by("simulate", "model", model, Model, "Model(...)")
    where = f"{model.name}, simulation"
    in_float64(where)
    made_by(where, "second", second, Second, "second_order(model, found, covariance)")
    found, nz = second.first, model.layouts[2].size
    e = jnp.asarray(real(where, "innovations", innovations), jnp.float64)
    if e.ndim != 2 or e.shape[1] != nz:
        raise ModelError(
            message(
                where,
                f"innovations have shape {e.shape}.",
                f"Rows are dates and columns {', '.join(model.layouts[2].names)}.",
                "pass such a matrix.",
            )
        )
    off = 0.0 if x0 is None else vector(model.layouts[1], x0, f"{where}, states") - found.x
    G, S = policies(found)
    nx = found.x.size

    def date(state: tuple[Vector, Vector], e: Vector) -> tuple[tuple[Vector, Vector], Vector]:
        first, bend = state
        s = first.at[nx:].add(e)
        u = G @ s + found.G_x @ bend + 0.5 * (quadratic(second.G_ss, s) + second.G_risk)
        ahead = found.H_x @ bend + 0.5 * (quadratic(second.H_ss, s) + second.H_risk)
        row = jnp.concatenate([found.u + u, found.x + s[:nx] + bend, s[nx:]])
        return (S @ s, ahead), row

    first = jnp.concatenate([jnp.zeros(nx) + off, jnp.zeros(nz)])
    _, rows = lax.scan(date, (first, jnp.zeros(nx)), e)
    names = (name for layout in model.layouts for name in layout.names)
    return dict(zip(names, rows.T, strict=True))


def quadratic(cube: Cube, s: Vector) -> Vector:
    """A quadratic form for each row."""
    return jnp.einsum("iab,a,b->i", cube, s, s)


class Pruned(NamedTuple):
    """Means and second moments of a pruned solution, in the order in which they were asked for.

    Args:
        mean: In levels.
        covariance: At lags 0, 1 and so on: of lag k, of y_t and y_t-k.
    """

    mean: Float[Array, "y"]
    covariance: Float[Array, "lags y y"]

    deviation = Moments.deviation
    correlation = Moments.correlation


def pruned_moments(
    model: Model, second: Second, of: Sequence[str] | None = None, lags: int = 5
) -> Pruned:
    """Means, variances and autocovariances of the pruned solution with normal innovations.

    First-order states s, what the second order adds to them and the products s s' follow a linear
    system together, so all is exact.

    Args:
        model: The model.
        second: What `second_order` gives.
        of: Names of variables. Default: all, controls, states and shocks. A state is as it is at
            the beginning of a date.
        lags: How many autocovariances.
    """
    made_by("pruned_moments", "model", model, Model, "Model(...)")
    where = f"{model.name}, moments"
    in_float64(where)
    made_by(where, "second", second, Second, "second_order(model, found, covariance)")
    lags = count(where, "lags", lags, 0)
    found = second.first
    nx, S = found.x.size, policies(found)[1]
    ns = len(S)
    _, B, C = system(model, found, of, where)
    Q = B @ second.covariance @ B.T
    spread = variance(S, Q)  # of s

    # w = (s, what is added to x, s s' as a vector) follows w' = A w + constant + noise
    def pairs(cube: Cube) -> Matrix:
        return 0.5 * cube.reshape(-1, ns * ns)

    zero = jnp.zeros
    A = jnp.concatenate(
        [
            jnp.concatenate([S, zero((ns, nx + ns * ns))], 1),
            jnp.concatenate([zero((nx, ns)), found.H_x, pairs(second.H_ss)], 1),
            jnp.concatenate([zero((ns * ns, ns + nx)), jnp.kron(S, S)], 1),
        ]
    )
    moved = S @ spread @ S.T
    doubled = jnp.kron(Q, Q) + jnp.kron(moved, Q) + jnp.kron(Q, moved)
    # the product of s with itself counts each pair twice
    turned = np.arange(ns * ns).reshape(ns, ns).T.ravel()
    crossed = jnp.einsum("ac,bd->abdc", moved, Q).reshape(ns * ns, ns * ns)
    crossed = jnp.kron(Q, Q)[turned] + crossed + crossed.T
    noise = jax.scipy.linalg.block_diag(Q, zero((nx, nx)), doubled + crossed)
    total = variance(A, noise)

    added = jnp.linalg.solve(
        jnp.eye(nx) - found.H_x, pairs(second.H_ss) @ spread.ravel() + 0.5 * second.H_risk
    )
    every = jnp.concatenate([second.G_ss, zero((ns, ns, ns))])
    shifts = jnp.concatenate([second.G_risk, zero(ns)])
    rows = places(model, of, where)
    to_added = jnp.concatenate([found.G_x, jnp.eye(nx), zero((ns - nx, nx))])[rows]
    C = jnp.concatenate([C, to_added, pairs(every)[rows]], 1)
    mean = levels(model, found)[rows] + 0.5 * shifts[rows] + to_added @ added
    mean += pairs(every)[rows] @ spread.ravel()
    powers = [C]
    for _ in range(lags):
        powers.append(powers[-1] @ A)
    return Pruned(mean, jnp.stack([power @ total @ C.T for power in powers]))
