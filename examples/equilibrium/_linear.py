"""Linearisation: the stable solution of A E[s_t+1] = B s_t by the generalised Schur form (Klein
2000), and what follows from it.

The Jacobian blocks come with the steady state, so there is nothing to compile here. QZ runs on the
host, on states and controls alone: shocks follow processes of their own, so the response to
them is one linear solve once the response to states is known.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ._fail import BlanchardKahn, ModelError, message
from ._given import count, made_by, number
from ._independence import dependent
from ._persistence import decay, largest
from ._steady import Steady
from ._variables import named

UNIT = 1.0 + 1e-6  # a unit root counts as stable
MOVING = ("u", "x", "u_next", "x_next")
Verdict = Literal["determinate", "indeterminate", "no stable solution"]


@dataclass(frozen=True, eq=False)
class Linear:
    """The verdict of Blanchard and Kahn, and if it is "determinate" the policy, in deviations from
    the steady state.

    u_t = G_x x_t + G_z z_t, x_t+1 = H_x x_t + H_z z_t, z_t+1 = rho z_t + e_t+1.

    Args:
        steady: Where.
        verdict: How many stable solutions there are: one, many, or none.
        eigenvalues: Of the pencil, by size; `inf` for equations without dynamics.
        message: The verdict in words.
    """

    steady: Steady
    verdict: Verdict
    eigenvalues: np.ndarray
    message: str
    G_x: np.ndarray
    G_z: np.ndarray
    H_x: np.ndarray
    H_z: np.ndarray

    def __repr__(self) -> str:
        return self.message

    def __getitem__(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a variable, for a state those of its next value: its response to states and
        to shocks.
        """
        model = self.steady.model
        u, x, _ = model.layouts
        row = named(f"{model.name}, linear solution", (*u.names, *x.names), name)
        solved = self.solved
        return np.vstack([solved.G_x, solved.H_x])[row], np.vstack([solved.G_z, solved.H_z])[row]

    @property
    def or_none(self) -> "Linear | None":
        """This, if there is one solution, or nothing."""
        return self if self.verdict == "determinate" else None

    @property
    def solved(self) -> "Linear":
        """This, if there is one solution.

        Raises:
            BlanchardKahn: There is none, or more than one.
        """
        if self.verdict != "determinate":
            raise BlanchardKahn(self.message)
        return self


def linearise(steady: Steady) -> Linear:
    """Solve the model linearised at a steady state.

    Raises:
        BlanchardKahn: There is no stable solution, or more than one. `verdict` gives the same
            without raising.
    """
    return verdict(steady).solved


class Klein(NamedTuple):
    """What the generalised Schur form says of a pencil."""

    verdict: Verdict
    eigenvalues: np.ndarray
    stable: int
    singular: bool
    spanned: bool
    G_x: np.ndarray
    H_x: np.ndarray


def klein(F_u: np.ndarray, F_x: np.ndarray, F_u_next: np.ndarray, F_x_next: np.ndarray) -> Klein:
    """Solve F_u u + F_x x + F_u' u' + F_x' x' = 0; finite derivatives on the host. The matrices are
    empty unless there is exactly one solution.
    """
    from scipy.linalg import (
        ordqz,  # a third of a second, which a steady state alone need not wait for
    )

    nx = F_x.shape[1]
    A, B = np.hstack([F_x_next, F_u_next]), -np.hstack([F_x, F_u])
    S, T, alpha, beta, _, Z = ordqz(
        B, A, sort=lambda alpha, beta: np.abs(alpha) < UNIT * np.abs(beta), output="real"
    )
    size = np.abs(A).max() + np.abs(B).max()
    with np.errstate(divide="ignore", invalid="ignore"):
        eigenvalues = np.where(np.abs(beta) > 1e-13 * size, np.abs(alpha) / np.abs(beta), np.inf)
    singular = np.any((np.abs(alpha) < 1e-13 * size) & (np.abs(beta) < 1e-13 * size))
    stable = int(np.sum(np.abs(alpha) < UNIT * np.abs(beta)))
    Z11, Z21 = Z[:nx, :nx], Z[nx:, :nx]
    spanned = bool(stable != nx or nx == 0 or np.linalg.cond(Z11) < 1e12)
    kind: Verdict = "determinate"
    if not spanned or stable < nx:
        kind = "no stable solution"
    if spanned and (singular or stable > nx):
        kind = "indeterminate"
    G_x, H_x = np.zeros((0, 0)), np.zeros((0, 0))
    if kind == "determinate":
        G_x = np.linalg.solve(Z11.T, Z21.T).T
        H_x = np.linalg.solve(Z11.T, (Z11 @ np.linalg.solve(T[:nx, :nx], S[:nx, :nx])).T).T
    return Klein(kind, np.sort(eigenvalues), stable, bool(singular), spanned, G_x, H_x)


def verdict(steady: Steady) -> Linear:
    """What kind of solution the model linearised at a steady state has; the matrices are empty
    unless there is exactly one.
    """
    made_by("linearise", "steady", steady, Steady, "steady_state(model, params)")
    blocks = steady.blocks
    if not all(np.all(np.isfinite(block)) for block in blocks.values()):
        raise ModelError(
            message(
                f"{steady.model.name}, linearised",
                "a derivative at the steady state is not finite.",
                "The linear model is made of the derivatives of all equations.",
                "look for a root or a logarithm of zero.",
            )
        )
    found = klein(*(blocks[name] for name in MOVING))
    names, rho = steady.model.layouts[2].names, steady.rho
    exploding = [f"their largest root is {largest(rho):.6g}"] if largest(rho) >= UNIT else []
    if rho.ndim == 1:
        grows = zip(names, rho, strict=True)
        exploding = [f"{name!r} by {by:.6g}" for name, by in grows if abs(by) >= UNIT]
    kind, words = found.verdict, _words(steady, found)
    if exploding and kind == "determinate":
        kind = "no stable solution"
        words = message(
            f"{steady.model.name}, linearised",
            f"no stable solution: shocks explode, {', '.join(exploding)} each period.",
            "A shock follows z' = rho z + e, with rho of size up to 1.",
            "correct the model's persistence or its parameters.",
        )
    linear = Linear(steady, kind, found.eigenvalues, words, *[np.zeros((0, 0))] * 4)
    if kind != "determinate":
        return linear
    return replace(linear, G_x=found.G_x, H_x=found.H_x, **_shocks(steady, found.G_x))


def _shocks(steady: Steady, G_x: np.ndarray) -> dict[str, np.ndarray]:
    """The response to each shock: (F_u + rho F_u') G_z + (F_x' + F_u' G_x) H_z = -(F_z + rho F_z'),
    a column at a time.
    """
    blocks, rho, nu = steady.blocks, steady.rho, steady.u.size
    if rho.ndim == 2:
        here = np.hstack([blocks["u"], blocks["x_next"] + blocks["u_next"] @ G_x])
        ahead = np.hstack([blocks["u_next"], np.zeros((len(here), steady.x.size))])
        sides = -(blocks["z"] + blocks["z_next"] @ rho)
        # columns below each other
        matrix = np.kron(np.eye(len(rho)), here) + np.kron(rho.T, ahead)
        solved = np.linalg.solve(matrix, sides.T.ravel()).reshape(len(rho), -1).T
        return {"G_z": solved[:nu], "H_z": solved[nu:]}
    if not rho.size:
        return {"G_z": np.zeros((nu, 0)), "H_z": np.zeros((steady.x.size, 0))}
    matrices = np.stack(
        [
            np.hstack(
                [blocks["u"] + r * blocks["u_next"], blocks["x_next"] + blocks["u_next"] @ G_x]
            )
            for r in rho
        ]
    )
    sides = -(blocks["z"] + rho * blocks["z_next"]).T[:, :, None]
    solved = np.linalg.solve(matrices, sides)[:, :, 0].T
    return {"G_z": solved[:nu], "H_z": solved[nu:]}


def _words(steady: Steady, found: Klein) -> str:
    where, states = f"{steady.model.name}, linearised", steady.x.size
    kind, eigenvalues = found.verdict, found.eigenvalues
    finite = eigenvalues[np.isfinite(eigenvalues)]
    listed = ", ".join(f"{value:.6g}" for value in finite) + (
        f", and {eigenvalues.size - finite.size} infinite" if finite.size < eigenvalues.size else ""
    )
    listing = f"{found.stable} stable eigenvalues for {states} states; their sizes are {listed}"
    if kind == "determinate":
        return f"{where}: determinate, {listing}."
    if found.singular:
        blocks = steady.blocks  # where the pencil is singular, so is it at any number
        between = np.hstack(
            [blocks["u"] + 0.7 * blocks["u_next"], blocks["x"] + 0.7 * blocks["x_next"]]
        )
        u, x, _ = steady.model.layouts
        who = dependent(between, steady.model.equation_names, (*u.names, *x.names))
        return message(
            where,
            f"the equations are not independent{f': {who}' if who else ''}; {listing}.",
            "Each variable needs an equation of its own.",
            "look for an equation that is written twice, or a variable that is in none.",
        )
    if not found.spanned:
        return message(
            where,
            f"no stable solution: {listing}, which do not span the states.",
            "The stable paths must pass through any states.",
            "look for a state that drives nothing, or one that should be a control.",
        )
    rule = (
        "There is one stable solution when as many eigenvalues are stable (size up to 1) as there"
        " are states (Blanchard and Kahn 1980)."
    )
    fix = (
        "a policy that reacts more strongly, or a control that should be a state."
        if kind == "indeterminate"
        else "a state that should be a control, or parameters at which fewer roots explode."
    )
    return message(where, f"{kind}: {listing}.", rule, f"look for {fix}")


def impulse_response(
    linear: Linear, shock: str, size: float = 1.0, periods: int = 40
) -> dict[str, np.ndarray]:
    """Deviations from the steady state after one shock.

    Args:
        linear: The solution.
        shock: The shock's name, `a` or `z[3]`.
        size: Its size in the first period; responses are proportional to it.
        periods: Dates.

    Returns:
        By name, `periods` numbers for each variable: controls and shocks from the first date on,
        and states as they are at each date.
    """
    made_by("impulse_response", "linear", linear, Linear, "linearise(steady)")
    model, where = linear.steady.model, f"{linear.steady.model.name}, impulse response"
    z0 = np.zeros(model.layouts[2].size)
    z0[model.layouts[2].index(f"{model.name}, shocks", shock)] = number(where, "size", size)
    u, x, z = simulate(
        linear.solved, np.zeros_like(linear.steady.x), z0, count(where, "periods", periods, 1)
    )
    columns = (*u.T, *x.T, *z.T)
    return dict(
        zip((name for layout in model.layouts for name in layout.names), columns, strict=True)
    )


def simulate(
    linear: Linear, x0: np.ndarray, z0: np.ndarray, periods: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deviations of controls, states and shocks at `periods` dates without further shocks."""
    return along(linear, x0, decay(linear.steady.rho, z0, periods))


def along(
    linear: Linear, x0: np.ndarray, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deviations of controls, states and shocks, where nobody knows the shocks before their
    dates.
    """
    x = np.empty((len(z), x0.size))
    for t in range(len(z)):
        x[t] = x0 if t == 0 else linear.H_x @ x[t - 1] + linear.H_z @ z[t - 1]
    return x @ linear.G_x.T + z @ linear.G_z.T, x, z
