"""Constraints that bind at some dates and not at others, piecewise linear (Guerrieri and Iacoviello
2015).

Two sets of equations are linearised at one steady state: the model's, and those that hold while the
constraint binds. Which of them holds at which date is guessed; then the path is linear, one
backward and one forward recursion; the path says at which dates the guess was wrong. After the last
date the model's own policy holds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ._fail import ModelError, NoPath, message
from ._given import called, count, made_by, numbers, shown
from ._growth import at_rest
from ._linear import Linear
from ._model import Model
from ._path import Path, vector
from ._persistence import decay, later

Blocks = dict[str, np.ndarray]
LIMIT = 100  # guesses


@dataclass(frozen=True, eq=False)
class Constraint:
    """What holds while a constraint binds, and when it does.

    Args:
        equations: As of `Model`, those that hold while it binds: most of them are the model's.
        binds: From parameters and the point of a date to a number that is negative where the
            model's equations violate the constraint.
        relaxes: Likewise, negative where the constraint holds no longer although its equations do:
            a multiplier, or how far what it holds back is inside.
        name: What messages call it.
    """

    equations: Callable[[Any, Any, Any], Any]
    binds: Callable[[Any, Any], Any]
    relaxes: Callable[[Any, Any], Any]
    name: str = "constraint"


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Path):
    """A path, and at which dates the constraint binds."""

    bound: np.ndarray


def bounded_path(
    linear: Linear,
    constraint: Constraint,
    x0: Any = None,
    z0: Any = None,
    dates: int = 41,
) -> Bounded:
    """The path from given states and shocks on which a constraint binds at some dates, and
    everybody foresees at which.

    Args:
        linear: The linear solution of the model without the constraint, which does not bind in its
            steady state.
        constraint: The constraint.
        x0: States at the first date, as of `perfect_foresight`.
        z0: Shocks at the first date, likewise.
        dates: How many; at the last one the constraint binds no longer.

    Raises:
        NoPath: No guess of the dates agrees with its path, or the constraint binds until the end.
    """
    made_by("bounded_path", "linear", linear, Linear, "linearise(steady)")
    steady = linear.solved.steady
    where = f"{steady.model.name}, bounded path"
    made_by(where, "constraint", constraint, Constraint, "Constraint(...)")
    _, x_layout, z_layout = steady.model.layouts
    x0 = vector(x_layout, x0, steady.x, f"{where}, states")
    z0 = vector(z_layout, z0, 0.0, f"{where}, shocks")
    z = decay(steady.rho, z0, count(where, "dates", dates, 2))
    return _Regimes(linear, constraint, where).path(x0 - steady.x, z)


def bounded_simulation(
    linear: Linear, constraint: Constraint, innovations: Any, dates: int = 41
) -> Bounded:
    """A path with innovations at each date, of which nobody knew before it: a date after the other
    the constraint is expected to bind at some of the next ones, as if there were no more.

    Args:
        linear: As of `bounded_path`.
        constraint: The constraint.
        innovations: Rows are dates and columns shocks.
        dates: How far ahead is looked on each date.
    """
    made_by("bounded_simulation", "linear", linear, Linear, "linearise(steady)")
    steady = linear.solved.steady
    where = f"{steady.model.name}, bounded simulation"
    made_by(where, "constraint", constraint, Constraint, "Constraint(...)")
    e = numbers(where, "innovations", innovations)
    shocks = steady.model.layouts[2].size
    if e.ndim != 2 or e.shape[1] != shocks or not len(e):
        raise ModelError(
            message(
                where,
                f"innovations have shape {e.shape}.",
                f"Rows are dates and columns {', '.join(steady.model.layouts[2].names)}.",
                "pass such a matrix, of one date or more.",
            )
        )
    regimes = _Regimes(linear, constraint, where)
    dates = count(where, "dates", dates, 2)
    x, z, rows = np.zeros(steady.x.size), np.zeros(shocks), []
    for innovation in e:
        z = later(steady.rho, z) + innovation
        path = regimes.path(x, decay(steady.rho, z, dates))
        x = path.x[1] - steady.x
        rows.append((path.u[0], path.x[0], path.z[0], path.bound[0]))
    u, states, z, bound = (np.array(column) for column in zip(*rows, strict=True))
    return Bounded(steady.model, u, states, z, 0, 0, "stable", bound)


class _Regimes:
    """The linear equations of both regimes, and the search for the dates of each."""

    def __init__(self, linear: Linear, constraint: Constraint, where: str):
        self.linear, self.constraint, self.where = linear, constraint, where
        steady = linear.steady
        at_rest(where, steady)
        model = replace(steady.model, equations=constraint.equations, name=constraint.name)
        z = np.zeros(model.layouts[2].size)
        point = (steady.u, steady.x, z)
        with jax.enable_x64(True):
            residual, blocks = jax.device_get(
                model.residual.value_and_jacobian(model.theta(steady.params), *point, *point)
            )
        if not all(np.all(np.isfinite(each)) for each in (residual, *blocks.values())):
            raise ModelError(
                message(
                    where,
                    f"the equations of {constraint.name!r} are not finite in the steady state.",
                    "They are linearised there.",
                    "look for a root or a logarithm of zero.",
                )
            )
        self.kinds = ((np.zeros_like(residual), steady.blocks), (residual, blocks))
        self.slack = _slack(model, constraint, steady.theta, where)
        if self.slack(*(each[None] for each in point))[0][0] < 0.0:
            raise ModelError(
                message(
                    where,
                    f"{constraint.name!r} binds in the steady state.",
                    "It binds at some dates only.",
                    "correct the sign of `binds`, or the parameters.",
                )
            )

    def path(self, x0: np.ndarray, z: np.ndarray) -> Bounded:
        """The path from deviations of states, with a guess of dates that agrees with it."""
        steady, tried = self.linear.steady, set[bytes]()
        bound = np.zeros(len(z), bool)
        while bound.tobytes() not in tried and len(tried) < LIMIT:
            tried.add(bound.tobytes())
            u, x = self._along(x0, z, bound)
            levels = steady.u + u, steady.x + x, z
            binds, relaxes = self.slack(*levels)
            again = np.where(bound, ~(relaxes < 0.0), binds < 0.0)
            if np.array_equal(again, bound):
                if bound[-1]:
                    break
                return Bounded(steady.model, *levels, len(tried), 0, "stable", bound)
            bound = again
        raise NoPath(
            message(
                self.where,
                f"no dates at which {self.constraint.name!r} binds agree with their path; the last"
                f" guess of {len(tried)} has {int(bound.sum())} of {len(z)} dates.",
                "It binds no longer by the last date, and where it binds depends on the path.",
                "take more dates or a smaller shock, or look at the signs of `binds` and"
                " `relaxes`.",
            )
        )

    def _along(
        self, x0: np.ndarray, z: np.ndarray, bound: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Deviations of controls and states with given dates."""
        linear, nu = self.linear, self.linear.steady.u.size
        # of controls one date later: by states, and what does not depend on them
        G = linear.G_x
        beyond = later(linear.steady.rho, z[-1])
        g = linear.G_z @ beyond
        solved: list[tuple[np.ndarray, np.ndarray]] = []
        for date in reversed(range(len(z))):
            constant, F = self.kinds[int(bound[date])]
            after = z[date + 1] if date + 1 < len(z) else beyond
            side = constant + F["z"] @ z[date] + F["z_next"] @ after + F["u_next"] @ g
            matrix = np.hstack([F["u"], F["x_next"] + F["u_next"] @ G])
            try:
                both = -np.linalg.solve(matrix, np.column_stack([F["x"], side]))
            except np.linalg.LinAlgError:
                raise self._singular(date) from None
            solved.append((both[:, :-1], both[:, -1]))
            G, g = both[:nu, :-1], both[:nu, -1]
        u, x = np.empty((len(z), nu)), np.empty((len(z), x0.size))
        at = x0
        for date, (by_state, rest) in enumerate(reversed(solved)):
            step = by_state @ at + rest
            u[date], x[date], at = step[:nu], at, step[nu:]
        return u, x

    def _singular(self, date: int) -> NoPath:
        return NoPath(
            message(
                self.where,
                f"while {self.constraint.name!r} binds, at date {date}, the equations do not"
                " determine all variables.",
                "Those that hold while it binds are as many as the model's, and independent.",
                "look for an equation that is written twice, or a variable that is in none.",
            )
        )


def _slack(model: Model, constraint: Constraint, theta: np.ndarray, where: str) -> Any:
    """Both conditions on rows of levels, in one program."""
    layouts = model.layouts

    def one(u: Any, x: Any, z: Any) -> Any:
        params = model.parameters.traced(jax.numpy.asarray(theta))
        groups = (layout.traced(v) for layout, v in zip(layouts, (u, x, z), strict=True))
        now = model.point(params, *groups)
        return tuple(
            called(where, name, getattr(constraint, name), params, now)
            for name in ("binds", "relaxes")
        )

    rows = jax.jit(jax.vmap(one))

    def both(u: np.ndarray, x: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            found = jax.device_get(rows(u, x, z))
        for each in found:
            if np.shape(each) != (len(u),):
                raise ModelError(
                    message(
                        where,
                        f"a condition is {shown(each)}.",
                        "It is one number for a date.",
                        "return a number that is negative where the other equations hold.",
                    )
                )
        return found

    return both
