"""Paths on which some variables take given values at some dates: conditional forecasts (Waggoner
and Zha 1999).

Of all innovations that bring a linear solution there, the likeliest: the smallest ones, in units of
their standard deviations. Nobody knows them before their dates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._fail import ModelError, message
from ._given import count, made_by, numbers, shown
from ._growth import at_rest
from ._linear import Linear, along
from ._model import Model
from ._moments import matrix
from ._path import Path, vector
from ._persistence import later
from ._variables import named

MISSED = 1e-10  # of one more than a level, by which innovations may miss it


def conditional_path(
    linear: Linear,
    conditions: Mapping[str, Sequence[float]],
    covariance: Any,
    x0: Any = None,
    z0: Any = None,
    dates: int = 41,
    by: Sequence[str] | None = None,
) -> Path:
    """The most likely path with given values of some variables.

    Args:
        linear: The linear solution.
        conditions: From names of controls, states and shocks to levels at the first dates; NaN
            where a date has no condition.
        covariance: Of the innovations: a matrix, or a group like the shocks with their variances.
        x0: States at the first date, as of `perfect_foresight`.
        z0: Shocks at the first date before its innovations, likewise.
        dates: How many.
        by: The shocks that may move, while the others do not. Default: all.

    Raises:
        ModelError: These shocks cannot bring the variables there, or something does not fit.
    """
    made_by("conditional_path", "linear", linear, Linear, "linearise(steady)")
    steady = linear.solved.steady
    model, where = steady.model, f"{steady.model.name}, conditional path"
    at_rest(where, steady)
    dates = count(where, "dates", dates, 1)
    _, x_layout, z_layout = model.layouts
    x0 = vector(x_layout, x0, steady.x, f"{where}, states") - steady.x
    begun = vector(z_layout, z0, 0.0, f"{where}, shocks")
    places, wanted = _conditions(model, conditions, dates, where)
    root = _root(model, covariance, _moving(model, by, where), where)

    def path(e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = np.array(e)
        z[0] += begun
        for date in range(1, dates):
            z[date] += later(steady.rho, z[date - 1])
        du, dx, _ = along(linear, x0, z)
        return steady.u + du, steady.x + dx, z

    def seen(e: np.ndarray) -> np.ndarray:
        return np.hstack(path(e))[places]

    rest = np.zeros((dates, z_layout.size))
    before = seen(rest)
    responses = np.zeros((len(wanted), dates, root.shape[1]))
    for date in range(int(max(places[0])) + 1):
        for shock in range(root.shape[1]):
            unit = rest.copy()
            unit[date] = root[:, shock]
            responses[:, date, shock] = seen(unit) - before
    flat = responses.reshape(len(wanted), -1)
    found = np.linalg.lstsq(flat, wanted - before, rcond=None)[0]
    missed = np.abs(flat @ found - (wanted - before))
    size = 1.0 + np.abs(wanted)
    if np.max(missed / size) > MISSED:
        worst = int(np.argmax(missed / size))
        names = tuple(name for layout in model.layouts for name in layout.names)
        raise ModelError(
            message(
                where,
                f"{names[places[1][worst]]!r} at date {places[0][worst]} is missed by"
                f" {missed[worst]:.3g}.",
                "Conditions need shocks that move the variables, by their dates, each in its own"
                " way.",
                "drop a condition, or let more shocks move.",
            )
        )
    return Path(model, *path(found.reshape(dates, -1) @ root.T), 0, 0, "stable")


def _conditions(
    model: Model, conditions: Mapping[str, Sequence[float]], dates: int, where: str
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Dates and columns of what is given, and its values."""
    names = tuple(name for layout in model.layouts for name in layout.names)
    if not isinstance(conditions, Mapping) or not conditions:
        raise ModelError(
            message(
                where,
                f"conditions are {shown(conditions)}.",
                "They are a dict from names of variables to levels at dates.",
                f"pass {{{names[0]!r}: [0.0, 0.0]}}.",
            )
        )
    rows, columns, values = [], [], []
    for name, given in conditions.items():
        column, levels = named(where, names, name), np.asarray(given)
        if levels.ndim != 1 or len(levels) > dates or levels.dtype.kind not in "fi":
            raise ModelError(
                message(
                    where,
                    f"{name!r} is {shown(given)}.",
                    f"It has a level, or NaN, for each of the {dates} dates, or for the first"
                    " ones.",
                    "pass a list of numbers.",
                )
            )
        levels = levels.astype(np.float64)
        there = np.flatnonzero(~np.isnan(levels))
        numbers(where, name, np.where(np.isnan(levels), 0.0, levels))
        rows += there.tolist()
        columns += [column] * len(there)
        values += levels[there].tolist()
    if not values:
        raise ModelError(
            message(
                where,
                f"no date of {', '.join(conditions)} has a condition.",
                "A condition is a level of a variable at a date.",
                "pass a level at one date at least.",
            )
        )
    return (np.array(rows, int), np.array(columns, int)), np.array(values)


def _moving(model: Model, by: Sequence[str] | None, where: str) -> np.ndarray:
    layout = model.layouts[2]
    if by is None:
        return np.arange(layout.size)
    by = (by,) if isinstance(by, str) else by
    if not isinstance(by, Sequence) or not by:
        raise ModelError(
            message(
                where,
                f"by is {shown(by)}.",
                f"It is a list of shocks that may move, of {', '.join(layout.names)}.",
                "name one, or leave it out.",
            )
        )
    return np.unique([layout.index(where, name) for name in by])


def _root(model: Model, covariance: Any, moving: np.ndarray, where: str) -> np.ndarray:
    """Innovations of size one, a column each: a square root of their covariance, given that the
    others are zero.
    """
    with jax.enable_x64(True):
        given = np.asarray(matrix(model, covariance, where))
    others = np.setdiff1d(np.arange(len(given)), moving)
    cross = given[np.ix_(moving, others)]
    held = given[np.ix_(others, others)]
    own = given[np.ix_(moving, moving)] - cross @ np.linalg.pinv(held) @ cross.T
    values, vectors = np.linalg.eigh(own)
    root = np.zeros((len(given), len(moving)))
    root[moving] = vectors * np.sqrt(np.maximum(values, 0.0))
    return root
