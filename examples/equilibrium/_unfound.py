"""What is wrong with a steady state that was not found, or was and is not the one that is meant."""

import warnings
from typing import Any

import numpy as np

from ._calibration import Calibration, unknowns
from ._fail import DegenerateRoot, message
from ._independence import dependent, listed, singular
from ._model import Model
from ._newton import STUCK

HOLDS = 1e-10  # equations whose residuals are below this hold
NOTHING = 1e-10  # a variable of this size is zero


def undetermined(model: Model, targets: Calibration, found: Any) -> str | None:
    """Which equations repeat one another where the search ended, if any do: there a steady state is
    not the only one.
    """
    by, on = model.local.blocks(found.entries), targets.active.astype(bool)
    top = np.hstack(
        [by["u"] + by["u_next"], by["x"] + by["x_next"], by["theta"] @ targets.free[:, on]]
    )
    own = np.hstack([targets.pick[on], np.zeros((int(on.sum()), int(on.sum())))])
    freed = (
        [model.parameters.names[i] for i in np.argmax(targets.free[:, on], 0)] if on.any() else []
    )
    rows = (*model.equation_names, *(f"target for {name}" for name in freed))
    return dependent(np.vstack([top, own]), rows, (*unknowns(model), *freed))


def why(model: Model, found: Any, who: str | None) -> str:
    """The text of the error."""
    residual = found.entries[: model.local.rows]
    sizes = np.abs(residual)
    worst = int(np.argmax(np.where(np.isfinite(sizes), sizes, np.inf)))
    started = bool(np.all(np.isfinite(residual))) and found.turns > 1
    ended = (
        "the step no longer reduces the residuals, or the Jacobian is singular"
        if found.status == STUCK
        else "the limit was reached"
    )
    where, twice = (
        f"{model.name}, steady state",
        "look for an equation that is written twice or follows from others",
    )
    largest = (
        f"The largest residual is {residual[worst]:.3g}, of equation"
        f" {model.equation_names[worst]!r}."
    )
    independent = (
        "A steady state is determined where as many independent equations as unknowns hold."
    )
    holds = bool(np.max(sizes, initial=0.0) <= HOLDS)
    if who is not None and _unit_root(model, found):
        place = "is one and has others next to it" if holds else "has no one steady state near it"
        return message(
            where,
            f"the point that the search came to {place}, by a unit root: {who}. {largest}",
            "With a unit root any level is a steady state, so equations do not say which.",
            "`at(model, params, controls, states)` takes one of them as it is, and goes on from"
            " there; or write the equations in ratios and growth rates, which have one.",
        )
    if who is not None and holds:
        return message(
            where,
            f"there are others next to the one that was found: {who}.",
            independent,
            f"{twice}; `at` takes one of the steady states as it is.",
        )
    if who is not None:
        return message(
            where,
            f"no convergence in {int(found.turns)} evaluations: the Jacobian is singular, {who}."
            f" {largest}",
            independent,
            f"{twice}, or begin elsewhere if it is so only there.",
        )
    if holds:
        far = np.concatenate([found.u, found.x])
        runaway = int(np.argmax(np.abs(far)))
        return message(
            where,
            f"no convergence in {int(found.turns)} evaluations, though all residuals vanish:"
            f" {unknowns(model)[runaway]!r} runs to {far[runaway]:.3g}.",
            "Equations may hold in the limit, as where the exponential of a variable goes to zero;"
            " that is no steady state.",
            "divide equations by what goes to zero, or begin nearer to the one that is meant, with"
            " better numbers in the model's groups.",
        )
    return message(
        where,
        f"no convergence in {int(found.turns)} evaluations: {ended}. {largest}",
        "Newton's method needs a guess at which all equations are finite, and as many independent"
        " equations as unknowns.",
        (
            "begin nearer, with `guess=` a steady state at other parameters, or better numbers in"
            " the model's groups."
            if started
            else (
                "give the model's groups numbers at which this equation is finite and independent"
                " of the others."
            )
        ),
    )


def _unit_root(model: Model, found: Any) -> bool:
    """Whether equations leave levels open though they determine what moves: the pencil of today and
    tomorrow is singular at one, and not at another number.
    """
    by = model.local.blocks(found.entries)
    at_one, elsewhere = (
        np.hstack([by["u"] + root * by["u_next"], by["x"] + root * by["x_next"]])
        for root in (1.0, 0.7)
    )
    return singular(at_one) and not singular(elsewhere)


def warn_if_degenerate(model: Model, found: Any, u0: np.ndarray, x0: np.ndarray) -> None:
    """Warn of a variable that began elsewhere and ended at zero, where an equation has lost all its
    derivatives but those by such variables: c' = beta c r' holds at c = 0, whatever r is.
    """
    local = model.local
    if local.zero is None:  # dense derivatives say nothing of what could be there
        return
    ended, began = np.concatenate([found.u, found.x]), np.concatenate([u0, x0])
    gone = (np.abs(ended) <= NOTHING) & (np.abs(began) > NOTHING)
    if not np.any(gone):
        return
    by = local.blocks(found.entries)
    pairs = (("u", "x"), ("u_next", "x_next"))
    size = sum(np.abs(np.hstack([by[name] for name in pair])) for pair in pairs)
    read = sum(np.hstack([local.index[name] != local.zero for name in pair]) for pair in pairs) > 0
    there = size > NOTHING * np.max(size, 1, keepdims=True)
    lost = np.all(~there[:, ~gone], 1) & np.any(read[:, ~gone], 1) & np.any(there[:, gone], 1)
    if not np.any(lost):
        return
    row = int(np.argmax(lost))
    names = [unknowns(model)[i] for i in np.flatnonzero(gone & read[row])]
    is_zero = f"{listed(names)} {'is' if len(names) == 1 else 'are'} 0"
    warnings.warn(
        message(
            f"{model.name}, steady state",
            f"{is_zero} in the one that was found, and equation {model.equation_names[row]!r} holds"
            " there whatever the other variables are.",
            "An equation that a variable multiplies has the root at which that is zero, beside the"
            " one that is meant.",
            "begin nearer to the other, divide the equation by that variable, or use its"
            " logarithm as the variable.",
        ),
        DegenerateRoot,
        stacklevel=3,
    )
