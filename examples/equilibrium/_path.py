"""Perfect-foresight paths: Newton on all periods at once, block by block.

Linearised at a path, period t ties (du_t, dx_t+1) to dx_t and du_t+1. So from the last period backward du_t+1 = g + G dx_t+1 is known,
and one linear solve of the size of one period gives the same relation a period earlier: block elimination, one `lax.scan` backward.
A second one forward from dx_0 = 0 reads off the step.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

import jitney
from examples.equilibrium._fail import ModelError, NoPath, message
from examples.equilibrium._linear import Linear, simulate
from examples.equilibrium._local import Local
from examples.equilibrium._model import Model
from examples.equilibrium._newton import CONVERGED, newton
from examples.equilibrium._steady import Steady
from examples.equilibrium._variables import Layout

TOLERANCE = 1e-8  # the last step is taken, so what remains is about its square


def search(
    model: Model,
    theta: Float[Array, "p"],
    end: tuple[Any, Any, Any, Any],
    x0: Float[Array, "x"],
    z: Float[Array, "dates z"],
    u: Float[Array, "periods u"],
    x: Float[Array, "periods x"],
) -> tuple[Any, ...]:
    """The path near a guess; traced. `end` is u*, x*, G_x, G_z: at the last date u = u* + G_x (x - x*) + G_z z."""
    u_star, x_star, G_x, G_z = end
    local, periods = model.moving, u.shape[0]
    params = jnp.broadcast_to(theta[:, None], (theta.size, periods))

    def evaluate(point: Any) -> Any:
        u, x_next = point
        x = jnp.concatenate([x0[None], x_next[:-1]])
        u_last = u_star + G_x @ (x_next[-1] - x_star) + G_z @ z[-1]
        now, ahead = (u, x, z[:-1]), (jnp.concatenate([u[1:], u_last[None]]), x_next, z[1:])
        entries = local.entries(jnp.concatenate([params, *(part.T for part in (*now, *ahead))]))
        return entries[: local.rows].T, entries.T

    def direction(residual: Any, entries: Any) -> Any:
        return eliminate(local, residual, entries, G_x)

    ended = newton(evaluate, direction, lambda residual, _: residual, (u, x), TOLERANCE)
    last = jnp.where(ended.status == CONVERGED, 1.0, 0.0)
    u, x = jax.tree.map(lambda point, step: point + last * step, ended.point, ended.step)
    u_last = u_star + G_x @ (x[-1] - x_star) + G_z @ z[-1]
    return jnp.concatenate([u, u_last[None]]), jnp.concatenate([x0[None], x]), ended.kept, ended.turns, ended.status


def eliminate(local: Local, residual: Any, entries: Float[Array, "periods entries"], G_last: Float[Array, "u x"]) -> tuple[Any, Any]:
    """Solve the linearised stacked system for the steps of u_0.. and x_1.. ."""
    nu, nx = G_last.shape
    read = local.columns("u_next")
    where = np.concatenate([local.read(("u", "x_next", "x")), local.index["u_next"][:, read]], 1)

    def backward(carry: Any, period: Any) -> Any:
        G, g = carry
        F, entries = period
        F_u, F_x_next, F_x, F_u_next = jnp.split(entries[where], (nu, nu + nx, nu + 2 * nx), axis=1)
        matrix = jnp.concatenate([F_u, F_x_next + F_u_next @ G[read]], 1)
        solved = -jnp.linalg.solve(matrix, jnp.concatenate([F_x, (F + F_u_next @ g[read])[:, None]], 1))
        return (solved[:nu, :nx], solved[:nu, nx]), solved

    def forward(dx: Any, solved: Any) -> Any:
        moved = solved[:, :nx] @ dx + solved[:, nx]
        return moved[nu:], moved

    _, solved = lax.scan(backward, (G_last, jnp.zeros(nu)), (residual, entries), reverse=True)
    _, moved = lax.scan(forward, jnp.zeros(nx), solved)
    return moved[:, :nu], moved[:, nu:]


@lru_cache(maxsize=64)
def program(model: Model) -> Any:
    """The compiled search; one for each number of dates."""

    @jitney.optimize
    def path(
        theta: Float[Array, "p"],
        end: Any,
        x0: Float[Array, "x"],
        z: Float[Array, "dates z"],
        u: Float[Array, "periods u"],
        x: Float[Array, "periods x"],
    ) -> Any:
        return search(model, theta, end, x0, z, u, x)

    return path


@dataclass(frozen=True, eq=False)
class Path:
    """Controls, states and shocks at each date, on the host: rows are dates."""

    model: Model
    u: np.ndarray
    x: np.ndarray
    z: np.ndarray
    turns: int

    def __getitem__(self, name: str) -> np.ndarray:
        """A variable over time, by name."""
        names = [name for layout in self.model.layouts for name in layout.names]
        return np.hstack([self.u, self.x, self.z])[:, names.index(name)]


def perfect_foresight(
    steady: Steady,
    x0: Any = None,
    z0: Any = None,
    dates: int = 41,
    terminal: Literal["steady", "stable"] = "steady",
    linear: Linear | None = None,
) -> Path:
    """The path from given states and shocks on which everybody foresees everything.

    Args:
        steady: Where the path ends.
        x0: States at the first date, a group like the model's or a vector. Default: those of the steady state.
        z0: Shocks at the first date, likewise; from there on they follow their AR(1). Default: none.
        dates: How many, the first and the last included.
        terminal: At the last date controls are those of the steady state, or on the linear policy `linear`.
        linear: The linear solution, which is also the first guess if it is given.

    Raises:
        NoPath: The search did not converge. The message names the equation and the period with the largest residual.
        ModelError: `terminal="stable"` without `linear`.
    """
    model = steady.model
    if terminal == "stable" and linear is None:
        raise ModelError(
            message(f"{model.name}, path", 'terminal="stable" without a linear solution.', "The path ends on the linear policy.",
                    "pass linear=linearise(steady).")
        )  # fmt: skip
    x0, z0 = (vector(layout, given, rest) for layout, given, rest in zip(model.layouts[1:], (x0, z0), (steady.x, 0.0), strict=True))
    if linear is None:
        u, x = np.tile(steady.u, (dates, 1)), np.tile(steady.x, (dates, 1))
    else:
        du, dx, _ = simulate(linear, x0 - steady.x, z0, dates)
        u, x = steady.u + du, steady.x + dx
    z = z0 * steady.rho ** np.arange(dates)[:, None]
    G_x, G_z = np.zeros((steady.u.size, x0.size)), np.zeros((steady.u.size, z0.size))
    if terminal == "stable" and linear is not None:
        G_x, G_z = linear.G_x, linear.G_z
    with jax.enable_x64(True):
        found = jax.device_get(program(model)(steady.theta, (steady.u, steady.x, G_x, G_z), x0, z, u[:-1], x[1:]))
    u, x, residual, turns, status = found
    if status != CONVERGED:
        raise NoPath(_why(model, residual, int(turns)))
    return Path(model, u, x, z, int(turns))


def vector(layout: Layout, given: Any, rest: Any) -> np.ndarray:
    """A group or a vector as a vector; `rest` where nothing is given."""
    if given is None:
        return np.broadcast_to(np.asarray(rest, np.float64), (layout.size,)).copy()
    if isinstance(given, np.ndarray) and given.shape == (layout.size,):
        return given.astype(np.float64)
    return layout.vector(given)


def _why(model: Model, residual: np.ndarray, turns: int) -> str:
    sizes = np.where(np.isfinite(residual), np.abs(residual), np.inf)
    period, worst = np.unravel_index(np.argmax(sizes), sizes.shape)
    return message(
        f"{model.name}, path",
        f"no convergence in {turns} evaluations. The largest residual is {residual[period, worst]:.3g}, "
        f"of equation {model.equation_names[worst]!r} in period {period}.",
        "Newton's method needs a first guess at which all equations are finite, and a way from it along which residuals fall.",
        "pass linear=linearise(steady) for a better guess, begin nearer to the steady state, or take more dates.",
    )
