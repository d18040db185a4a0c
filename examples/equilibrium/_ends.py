"""Whether a path can end as it is asked to, and whether it has: both ends lie at the steady
state.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ._calibration import unknowns
from ._fail import ModelError, NotSettled, message
from ._given import made_by
from ._growth import Growth
from ._independence import singular
from ._linear import UNIT, Linear
from ._persistence import largest
from ._steady import Steady

SAME = 1e-8  # two steady states are one if no parameter or variable is further apart
SETTLED = 1e-3  # what a path may be off by at its end


def check_linear(steady: Steady, linear: Any) -> None:
    """See that a linear solution is one at this steady state."""
    where = f"{steady.model.name}, path"
    made_by(where, "linear", linear, Linear, "linearise(steady)")
    other = linear.solved.steady
    rule, fix = (
        "The first guess and the end of the path are the linear policy at its own steady state.",
        "pass linear=linearise(steady).",
    )
    if other.model is not steady.model:
        raise ModelError(
            message(where, f"linear= is of another model, {other.model.name}.", rule, fix)
        )
    names = (*steady.model.parameters.names, *unknowns(steady.model))
    here, there = (np.concatenate([at.theta, at.u, at.x]) for at in (steady, other))
    apart = np.abs(here - there) / (1.0 + np.abs(here))
    if np.max(apart) > SAME:
        i = int(
            np.argmax(
                apart[: steady.theta.size]
                if np.max(apart[: steady.theta.size], initial=0.0) > SAME
                else apart
            )
        )
        raise ModelError(
            message(
                where,
                f"linear= is from elsewhere: there {names[i]!r} is {there[i]:.6g}, here"
                f" {here[i]:.6g}.",
                rule,
                fix,
            )
        )


def check_shocks(steady: Steady, z0: np.ndarray) -> None:
    """See that shocks that are given do not explode."""
    names = steady.model.layouts[2].names
    growth = steady.rho
    if growth.ndim == 2:  # which of them grows depends on all
        growth = np.full(z0.size, largest(steady.rho))
    for name, rho, size in zip(names, growth, z0, strict=True):
        if abs(rho) >= UNIT and size != 0.0:
            raise ModelError(
                message(
                    f"{steady.model.name}, path",
                    f"the shock {name!r} explodes: it grows by {rho:.6g} each period.",
                    "A path goes back to the steady state, so shocks have a persistence of size up"
                    " to 1.",
                    "correct the model's persistence or its parameters.",
                )
            )


def off(rest: Any, x: Any, z: Any) -> Any:
    """How far states are from those of the steady state, relative to one more than their size
    there, and shocks from zero; the largest.
    """
    return np.max(
        np.concatenate([np.abs(x - rest) / (1.0 + np.abs(rest)), np.abs(z)], -1),
        -1,
        initial=0.0,
    )


def warn_unless_settled(
    steady: Steady, path: Any, longer: Callable[[], Any], terminal: str
) -> None:
    """Warn of a path that another end would change: one that ends far from the steady state is
    compared with one of twice the dates.
    """
    rest = steady.levels(len(path.x))[1][-1]
    left = float(off(rest, path.x[-1], path.z[-1]))
    if left <= (SETTLED if terminal == "steady" else 0.0 if steady.model.linear else SETTLED**0.5):
        return
    other = longer()
    error = None if other is None else _apart(steady, path, other)
    moving = None if other is None else _moving(steady, other)
    if error is not None and error <= SETTLED and moving is None:
        return
    ends = f"at {steady.kind}" if terminal == "steady" else "on the linear policy"
    wrong = (
        "with twice the dates none was found"
        if error is None
        else f"with twice the dates, and the end on the linear policy, it is another, by up to"
        f" {error:.1g}"
        if terminal == "steady" and other.terminal == "stable" and error > SETTLED
        else f"with twice the dates it is another, by up to {error:.1g}"
        if error > SETTLED
        else f"there is a unit root, and with twice the dates it does not come to rest: {moving}"
    )
    warnings.warn(
        message(
            f"{steady.model.name}, path",
            f"at the last date it is {left:.2g} off {steady.kind}.",
            f"A path ends {ends}, which is right only near it: {wrong}.",
            _remedy(steady, terminal),
        ),
        NotSettled,
        stacklevel=3,
    )


def _remedy(steady: Steady, terminal: str) -> str:
    stable = 'terminal="stable" with linear=linearise(steady)'
    if not _unit_root(steady):
        return "take more dates" + (f", or {stable}." if terminal == "steady" else ".")
    if terminal == "steady":  # more dates never bring it back
        other = (
            "on another level of growth"
            if isinstance(steady, Growth)
            else "at another steady state"
        )
        return f"pass {stable}: with a unit root a path ends {other}."
    if isinstance(steady, Growth):
        return "take more dates, begin nearer, or hold the levels at which the path ends."
    return "begin nearer, or give `at` the steady state where the path ends."


def _unit_root(steady: Steady) -> bool:
    """Whether there are other steady states next to this one, so that nothing brings a path back
    to it.
    """
    by = steady.blocks
    return singular(np.hstack([by["u"] + by["u_next"], by["x"] + by["x_next"]]))


def _moving(steady: Steady, path: Any) -> str | None:
    """With a unit root, the equation that does not hold if the last date is repeated for ever; the
    end of a path is right where all hold, whichever steady state it is.
    """
    if not _unit_root(steady):
        return None
    u, x, z = path.u[-1], path.x[-1], np.zeros_like(path.z[-1])
    after = steady.after(u, x)
    with jax.enable_x64(True):
        at_rest = steady.model.residual.value_and_jacobian(steady.theta, u, x, z, *after, z)[0]
    sizes = np.abs(np.asarray(at_rest))
    worst = int(np.argmax(np.where(np.isfinite(sizes), sizes, np.inf)))
    if sizes[worst] <= SETTLED:
        return None
    return f"{steady.model.equation_names[worst]!r} is off by {sizes[worst]:.1g}"


def _apart(steady: Steady, path: Any, other: Any) -> float:
    """How far a path is from a longer one at the dates of both, relative to one more than the size
    at the steady state.
    """
    u, x = steady.levels(len(path.x))
    pairs = ((path.u, other.u, u), (path.x, other.x, x))
    return max(
        float(np.max(np.abs(a - b[: len(a)]) / (1.0 + np.abs(rest)), initial=0.0))
        for a, b, rest in pairs
    )
