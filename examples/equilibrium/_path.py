"""Perfect-foresight paths: Newton on all periods at once, block by block (`_elimination.py`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._chord import Chord, chord
from ._elimination import Factors, eliminate, factored, stepped
from ._ends import check_linear, check_shocks, warn_unless_settled
from ._fail import ModelError, NoPath, message
from ._given import count, few, made_by, number, numbers, one_of, shown
from ._linear import Linear, along, verdict
from ._local import Local
from ._model import Model
from ._newton import CONVERGED, Search, newton
from ._persistence import decay, later
from ._steady import Steady
from ._variables import Layout, named

End = tuple[Any, Any, Any, Any]
TOLERANCE = 1e-8  # the last step is taken, so what remains is about its square


def search(
    local: Local,
    theta: Float[Array, "p"],
    end: End,
    x0: Float[Array, "x"],
    z: Float[Array, "dates z"],
    guess: Float[Array, "periods v"],
) -> tuple[Any, Any, Any, Any]:
    """The path near a guess; traced.

    The unknowns of a period are its controls and the states of the next one. `end` is u*, x*, G_x,
    G_z: at the last date u = u* + G_x (x - x*) + G_z z.
    """
    G_x = end[2]

    def evaluate(point: Any) -> Any:
        entries = stacked(local, point, theta, end, x0, z)
        return entries[:, : local.rows], entries

    def direction(residual: Any, entries: Any) -> Any:
        return eliminate(local, entries, G_x)

    ended = newton(evaluate, direction, guess, TOLERANCE, keep=lambda residual, _: residual)
    return _last(ended), ended.kept, ended.turns, ended.ended


def _last(search: Search | Chord) -> Float[Array, "periods v"]:
    """Where a search has ended, with its last step."""
    return search.point + jnp.where(search.ended == CONVERGED, 1.0, 0.0) * search.step


def chord_search(
    local: Local,
    values: Local,
    theta: Float[Array, "p"],
    end: End,
    x0: Float[Array, "x"],
    z: Float[Array, "dates z"],
    guess: Float[Array, "periods v"],
) -> Chord:
    """The same path by the chord method; `values` are residuals alone."""
    G_x = end[2]

    def residual(point: Float[Array, "periods v"]) -> Float[Array, "periods v"]:
        return stacked(values, point, theta, end, x0, z)

    def factors(point: Float[Array, "periods v"]) -> Factors:
        return factored(local, stacked(local, point, theta, end, x0, z), G_x)

    def direction(
        factors: Factors, residual: Float[Array, "periods v"]
    ) -> Float[Array, "periods v"]:
        return stepped(local, factors, residual)

    return chord(residual, factors, direction, guess, TOLERANCE)


def stacked(
    local: Local,
    point: Float[Array, "periods v"],
    theta: Float[Array, "p"],
    end: End,
    x0: Float[Array, "x"],
    z: Float[Array, "dates z"],
) -> Float[Array, "periods entries"]:
    """Entries of all periods: residuals, and derivatives if `local` has any."""
    u_star, x_star, G_x, G_z = end
    periods, nu = point.shape[0], u_star.size
    params = jnp.broadcast_to(theta[:, None], (theta.size, periods))
    u_last = u_star + G_x @ (point[-1, nu:] - x_star) + G_z @ z[-1]
    x = jnp.concatenate([x0[None], point[:-1, nu:]])
    u_next = jnp.concatenate([point[1:, :nu], u_last[None]])
    by_date = jnp.concatenate([point[:, :nu], x, z[:-1], u_next, point[:, nu:], z[1:]], 1)
    return local.entries(jnp.concatenate([params, by_date.T])).T


@lru_cache(maxsize=64)
def program(model: Model) -> Any:
    """The compiled search; one for each number of dates."""
    import jitney

    local = model.moving

    @jitney.optimize
    def path(
        theta: Float[Array, "p"],
        end: Any,
        x0: Float[Array, "x"],
        z: Float[Array, "dates z"],
        guess: Float[Array, "periods v"],
    ) -> Any:
        return search(local, theta, end, x0, z, guess)

    return path


@lru_cache(maxsize=64)
def chord_program(model: Model) -> Any:
    """The compiled search by the chord method."""
    import jitney

    local, values = model.moving, model.values

    @jitney.optimize
    def path(
        theta: Float[Array, "p"],
        end: Any,
        x0: Float[Array, "x"],
        z: Float[Array, "dates z"],
        guess: Float[Array, "periods v"],
    ) -> Any:
        found = chord_search(local, values, theta, end, x0, z, guess)
        return _last(found), found.residual, found.turns, found.jacobians, found.ended

    return path


@dataclass(frozen=True, eq=False)
class Path:
    """Controls, states and shocks at each date, on the host: rows are dates.

    Args:
        turns: How often the search evaluated the equations.
        jacobians: How often their derivatives, with factors of these.
    """

    model: Model
    u: np.ndarray
    x: np.ndarray
    z: np.ndarray
    turns: int
    jacobians: int
    terminal: str

    def __repr__(self) -> str:
        return f"{self.model.name}, path of {len(self.u)} dates: {few(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        """Controls, states and shocks."""
        return tuple(name for layout in self.model.layouts for name in layout.names)

    def __getitem__(self, name: str) -> np.ndarray:
        """A variable over time, by name."""
        return np.hstack([self.u, self.x, self.z])[
            :, named(f"{self.model.name}, path", self.names, name)
        ]


def perfect_foresight(
    steady: Steady,
    x0: Any = None,
    z0: Any = None,
    dates: int = 41,
    terminal: Literal["steady", "stable"] = "steady",
    linear: Linear | None = None,
    announced: Mapping[str, Any] | None = None,
    method: Literal["newton", "chord"] = "newton",
) -> Path:
    """The path from given states and shocks on which everybody foresees everything.

    Args:
        steady: Where the path ends: a steady state, or the growth that `balanced_growth` gives.
        x0: States at the first date, a group like the model's, a vector, or a dict of some of
            them by name. Default, and that of others: those of the steady state, or of balanced
            growth at its first date.
        z0: Shocks at the first date, likewise; from there on they decay. Default: none.
        dates: How many, the first and the last included.
        terminal: At the last date controls are those of the steady state, or on the linear policy
            `linear`.
        linear: The linear solution, which is also the first guess if it is given.
        announced: From names of shocks to their innovations at each date, or at the first ones of
            them, which everybody knows from the first date on.
        method: Newton's, or the chord method, which keeps the factors of a Jacobian for several
            steps: more evaluations of equations, fewer of derivatives, the same path.

    Raises:
        NoPath: The search did not converge. The message names the equation and the period with the
            largest residual.
        ModelError: `terminal="stable"` without `linear`, `linear` of another steady state, or
            something else that does not fit.

    Warns:
        NotSettled: At the last date the path is far from the steady state, and another with twice
        the dates, a second program.
    """
    made_by("perfect_foresight", "steady", steady, Steady, "steady_state(model, params)")
    model, where = steady.model, f"{steady.model.name}, path"
    one_of(where, "terminal", terminal, ("steady", "stable"))
    one_of(where, "method", method, ("newton", "chord"))
    dates = count(where, "dates", dates, 2)
    if linear is not None:
        check_linear(steady, linear)
    elif terminal == "stable":
        raise ModelError(
            message(
                where,
                'terminal="stable" without a linear solution.',
                "The path ends on the linear policy.",
                "pass linear=linearise(steady).",
            )
        )
    _, x_layout, z_layout = model.layouts
    x0, z0 = (
        vector(x_layout, x0, steady.x, f"{where}, states"),
        vector(z_layout, z0, 0.0, f"{where}, shocks"),
    )
    z = announcements(steady, z0, announced, dates)
    check_shocks(steady, np.max(np.abs(z), 0))
    path, residual, turns = _found(steady, x0, z, terminal, linear, method)
    if path is None:
        raise NoPath(_why(model, residual, turns))

    def longer() -> Path | None:
        # where there is a unit root the steady state is a wrong end at any date
        policy = verdict(steady) if linear is None else linear
        end = "stable" if policy.verdict == "determinate" else terminal
        further = np.vstack([z, decay(steady.rho, z[-1], dates + 1)[1:]])
        return _found(steady, x0, further, end, policy.or_none, method)[0]

    warn_unless_settled(steady, path, longer, terminal)
    return path


def _ends(steady: Steady, terminal: str, linear: Linear | None) -> tuple[np.ndarray, np.ndarray]:
    """How controls at the last date depend on states and shocks there."""
    if terminal == "stable" and linear is not None:
        return linear.G_x, linear.G_z
    return np.zeros((steady.u.size, steady.x.size)), np.zeros(
        (steady.u.size, steady.model.layouts[2].size)
    )


def announcements(
    steady: Steady, z0: np.ndarray, announced: Mapping[str, Any] | None, dates: int
) -> np.ndarray:
    """Shocks at each date, from those of the first one and innovations that are known."""
    layout, where = steady.model.layouts[2], f"{steady.model.name}, path, announced"
    e = np.zeros((dates, z0.size))
    e[0] = z0
    if announced is not None and not isinstance(announced, Mapping):
        raise ModelError(
            message(
                where,
                f"it is {shown(announced)}.",
                "It is a dict from names of shocks to innovations at dates.",
                f"pass {{{(layout.names or ('e',))[0]!r}: [0.0, 0.0, 0.01]}}.",
            )
        )
    for name, given in (announced or {}).items():
        column, row = layout.index(where, name), numbers(where, str(name), given)
        if row.ndim != 1 or len(row) > dates:
            raise ModelError(
                message(
                    where,
                    f"{name!r} has shape {row.shape}.",
                    f"Innovations are one number for each of the {dates} dates, or for the first"
                    " ones.",
                    "pass such a list, or take more dates.",
                )
            )
        e[: len(row), column] += row
    for date in range(1, dates):
        e[date] += later(steady.rho, e[date - 1])
    return e


def _found(
    steady: Steady,
    x0: np.ndarray,
    z: np.ndarray,
    terminal: str,
    linear: Linear | None,
    method: str,
) -> tuple[Path | None, np.ndarray, int]:
    """The path, if there is one, with the residuals that were left and the evaluations."""
    rest, scale = steady.levels(len(z)), steady.scales(len(z))
    u, x = rest
    if linear is not None:
        du, dx, _ = along(linear, x0 - steady.x, z)
        u, x = u + scale[0] * du, x + scale[1] * dx
    grown = scale[0][-1][:, None]
    G_x, G_z = _ends(steady, terminal, linear)
    G_x, G_z = grown * G_x / scale[1][-1], grown * G_z
    u_end, x_end = rest[0][-1], rest[1][-1]
    end, guess = (u_end, x_end, G_x, G_z), np.hstack([u[:-1], x[1:]])
    search = chord_program if method == "chord" else program
    with jax.enable_x64(True):
        found = jax.device_get(search(steady.model)(steady.theta, end, x0, z, guess))
    moved, residual, *counts, status = found
    turns, jacobians = int(counts[0]), int(counts[-1])
    if status != CONVERGED:
        return None, residual, turns

    # with the first and the last date
    u, x = moved[:, : steady.u.size], np.vstack([x0, moved[:, steady.u.size :]])
    u_last = u_end + G_x @ (x[-1] - x_end) + G_z @ z[-1]
    u = np.vstack([u, u_last])
    return Path(steady.model, u, x, z, turns, jacobians, terminal), residual, turns


def vector(layout: Layout, given: Any, rest: Any, where: str) -> np.ndarray:
    """A group or a vector as a vector, or a dict of some elements by name; `rest` where nothing is
    given.
    """
    found = np.broadcast_to(np.asarray(rest, np.float64), (layout.size,)).copy()
    if given is None:
        return found
    if isinstance(given, Mapping) and set(given) != set(layout.paths):
        for name, value in given.items():
            found[layout.index(where, name)] = number(where, name, value)
        return found
    if isinstance(given, (np.ndarray, jax.Array)) and given.shape == (layout.size,):
        return numbers(where, "the vector", given)
    return layout.vector(given, where)


def _why(model: Model, residual: np.ndarray, turns: int) -> str:
    sizes = np.where(np.isfinite(residual), np.abs(residual), np.inf)
    period, worst = np.unravel_index(np.argmax(sizes), sizes.shape)
    return message(
        f"{model.name}, path",
        f"no convergence in {turns} evaluations. The largest residual is"
        f" {residual[period, worst]:.3g}, of equation {model.equation_names[worst]!r} in period"
        f" {period}.",
        "Newton's method needs a first guess at which all equations are finite, and a way from it"
        " along which residuals fall.",
        "pass linear=linearise(steady) for a better guess, begin nearer to the steady state, or"
        " take more dates.",
    )
