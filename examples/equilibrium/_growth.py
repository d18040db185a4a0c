"""Balanced growth: a point from which equations hold at all dates while variables grow by constant
factors or amounts. A path may end there as it may end at a steady state.

Deviations from it are divided by what their variables have grown by. In these the linear model is
the same at all dates, so it has one policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ._calibration import unknowns
from ._fail import ModelError, NoSteadyState, message
from ._given import made_by, number, shown
from ._independence import listed
from ._model import Model
from ._steady import Steady, begun
from ._variables import named

LIMIT, TOLERANCE = 100, 1e-12
LATER = 20  # a date at which equations are looked at again
CLOSE = 1e-8  # what they may be off by then, relative to their terms
OPEN = 1e-10  # of the largest singular value, for a level that nothing ties down


@dataclass(frozen=True, eq=False, repr=False)
class Growth(Steady):
    """Controls and states at the first date, and how they grow from there.

    Args:
        factor: Of controls and states, what each is multiplied by from a date to the next.
        drift: What is added to it then.
    """

    factor: np.ndarray
    drift: np.ndarray

    @property
    def kind(self) -> str:
        """The state, in words."""
        return "balanced growth"

    def scales(self, dates: int) -> tuple[np.ndarray, np.ndarray]:
        """What deviations of controls and states are multiplied by at each date."""
        grown = self.factor ** np.arange(dates)[:, None]
        return grown[:, : self.u.size], grown[:, self.u.size :]

    def levels(self, dates: int) -> tuple[np.ndarray, np.ndarray]:
        """Controls and states at each date."""
        first = np.concatenate([self.u, self.x])
        both = first * self.factor ** np.arange(dates)[:, None]
        both += self.drift * np.arange(dates)[:, None]
        return both[:, : self.u.size], both[:, self.u.size :]

    def after(self, u: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What controls and states of a date become by the next."""
        both = np.concatenate([u, x]) * self.factor + self.drift
        return both[: u.size], both[u.size :]


def balanced_growth(
    model: Model,
    params: Any,
    factors: Mapping[str, float] | None = None,
    drifts: Mapping[str, float] | None = None,
    held: Sequence[str] = (),
    guess: Steady | None = None,
) -> Growth:
    """Find the point from which all grows at constant rates, for paths that end in growth.

    Args:
        model: The model. Equations are in levels or in logarithms; shocks are zero.
        params: Its parameters.
        factors: From names of controls and states that grow by a factor to that factor,
            `{"k": 1.02}`.
        drifts: From those to which an amount is added each date, as logarithms, to that amount.
        held: Those whose level at the first date is that of the guess, since equations hold at any,
            as of productivity.
        guess: A `Steady` to begin at, instead of the model's own guess.

    Raises:
        NoSteadyState: The search did not converge, equations leave a level open, or they hold at
            the first date and not at later ones.
    """
    made_by("balanced_growth", "model", model, Model, "Model(...)")
    where, names = f"{model.name}, balanced growth", unknowns(model)
    factor, drift = np.ones(len(names)), np.zeros(len(names))
    for label, given, into in (("factors", factors, factor), ("drifts", drifts, drift)):
        _read(where, label, given, names, into)
    first = np.concatenate(model.guess if guess is None else begun(model, guess))
    fixed = [named(where, names, name) for name in ([held] if isinstance(held, str) else held)]
    free = np.setdiff1d(np.arange(len(names)), fixed)
    theta, nu = model.theta(params), model.sizes["u"]
    z = np.zeros(model.sizes["z"])

    def linearised(v: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Residuals, and derivatives by what has not grown."""
        w = factor * v + drift
        at = (v[:nu], v[nu:], z, w[:nu], w[nu:], z)
        residual, by = jax.device_get(model.residual.value_and_jacobian(theta, *at))
        by["u_next"], by["x_next"] = by["u_next"] * factor[:nu], by["x_next"] * factor[nu:]
        return np.asarray(residual), by

    with jax.enable_x64(True):
        v, residual, blocks = _search(linearised, first, free)
        rho = np.asarray(model.rho(theta))
    found = Growth(model, theta, v[:nu], v[nu:], rho, blocks, 0, factor, drift)
    matrix = _by_levels(blocks)[:, free]
    worst = int(np.argmax(np.where(np.isfinite(residual), np.abs(residual), np.inf)))
    if not _small(residual, _by_levels(blocks), v):
        raise NoSteadyState(
            message(
                where,
                f"none was found: equation {model.equation_names[worst]!r} is off by"
                f" {residual[worst]:.3g}.",
                "On it all equations hold, with the growth of each variable that is given.",
                "correct `factors` and `drifts`, hold fewer levels, or pass guess= that is nearer.",
            )
        )
    sizes, directions = np.linalg.svd(matrix / _sizes(matrix))[1:]
    if len(free) and sizes[-1] <= OPEN * sizes[0]:
        heavy = np.abs(directions[-1]) > 1e-3 * np.max(np.abs(directions[-1]))
        raise NoSteadyState(
            message(
                where,
                f"equations leave the level of {listed([names[i] for i in free[heavy]])} open.",
                "Where productivity grows, growth is balanced at any level of it.",
                'pass held=["A"], with the name of a variable whose level is known.',
            )
        )
    _check_later(found, linearised)
    return found


def at_rest(where: str, steady: Steady) -> None:
    """See that a steady state does not grow."""
    if isinstance(steady, Growth):
        raise ModelError(
            message(
                where,
                "the linear solution is that of balanced growth.",
                "These paths are around a steady state.",
                "write the equations in variables that do not grow, or call `perfect_foresight`.",
            )
        )


def _read(
    where: str,
    label: str,
    given: Mapping[str, float] | None,
    names: tuple[str, ...],
    into: np.ndarray,
) -> None:
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ModelError(
            message(
                where,
                f"{label} are {shown(given)}.",
                "They are a dict from names of controls and states to numbers.",
                f"pass {label}={{{names[0]!r}: 1.02}}.",
            )
        )
    for name, value in given.items():
        into[named(where, names, name)] = number(where, f"{label} of {name}", value)
    if label == "factors" and np.any(into <= 0.0):
        raise ModelError(
            message(
                where,
                f"the factor of {names[int(np.argmin(into))]!r} is {np.min(into):g}.",
                "What grows is multiplied by a positive number.",
                "pass 1.02 for growth by two per cent a date.",
            )
        )


def _search(linearised: Any, first: np.ndarray, free: np.ndarray) -> tuple[Any, Any, Any]:
    """Newton's method on the levels that are free; one equation may follow from growth alone, so
    steps are of least squares.
    """
    v = first.copy()
    residual, blocks = linearised(v)
    for _ in range(LIMIT):
        matrix = _by_levels(blocks)[:, free]
        if not (np.all(np.isfinite(residual)) and np.all(np.isfinite(matrix))):
            break
        step = -np.linalg.lstsq(matrix, residual, rcond=OPEN)[0]
        scale, norm = 1.0, np.linalg.norm(residual)
        while scale > 1e-9:
            trial = v.copy()
            trial[free] += scale * step
            value, by = linearised(trial)
            if np.linalg.norm(value) < norm:
                v, residual, blocks = trial, value, by
                break
            scale *= 0.5
        else:
            break
        if np.max(np.abs(step) / (1.0 + np.abs(v[free])), initial=0.0) <= TOLERANCE:
            break
    return v, residual, blocks


def _by_levels(blocks: dict[str, np.ndarray]) -> np.ndarray:
    """What the levels of the first date do to equations, all that follows from them included."""
    return np.hstack([blocks["u"] + blocks["u_next"], blocks["x"] + blocks["x_next"]])


def _sizes(matrix: np.ndarray) -> np.ndarray:
    """The largest element of each column."""
    sizes = np.max(np.abs(matrix), 0, initial=0.0)
    return np.where(sizes > 0.0, sizes, 1.0)


def _small(residual: np.ndarray, matrix: np.ndarray, v: np.ndarray) -> bool:
    """Whether equations hold, relative to their terms."""
    terms = 1.0 + np.abs(matrix) @ np.abs(v)
    return bool(np.all(np.abs(residual) <= CLOSE * terms))


def _check_later(found: Growth, linearised: Any) -> None:
    """See that equations hold at a later date too."""
    u, x = found.levels(LATER + 1)
    v = np.concatenate([u[-1], x[-1]])
    with jax.enable_x64(True):
        residual, blocks = linearised(v)
    if not _small(residual, _by_levels(blocks), v):
        worst = int(np.argmax(np.where(np.isfinite(residual), np.abs(residual), np.inf)))
        raise NoSteadyState(
            message(
                f"{found.model.name}, balanced growth",
                f"it is not balanced: at date {LATER} equation"
                f" {found.model.equation_names[worst]!r} is off by {residual[worst]:.3g}.",
                "Equations hold at all dates while variables grow at constant rates.",
                "correct `factors` and `drifts`: the terms of an equation grow alike.",
            )
        )
