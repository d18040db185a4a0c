"""Steady states, with calibration: a target for a variable frees a parameter.

The unknowns are controls, states and `tau`, one number for each parameter that may be freed: theta + free @ tau. Each `tau` has an
equation of its own, tau = 0 where nothing is freed and (variable = target) where something is. Which is which is data, so a calibrated
steady state and one at given parameters are the same program. It returns the derivatives it ended with, which are all that
linearisation needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from examples.equilibrium._fail import ModelError, NoSteadyState, message
from examples.equilibrium._model import Model
from examples.equilibrium._newton import CONVERGED, STUCK, newton, solve
from examples.equilibrium._rolled import elements

TOLERANCE = 1e-12


class Calibration(NamedTuple):
    """Targets as data: `pick @ (controls, states) = value` where `active` is 1, and the columns of `free` say which parameter gives way."""

    free: Float[Array, "p slots"]
    pick: Float[Array, "slots v"]
    value: Float[Array, "slots"]
    active: Float[Array, "slots"]


class Found(NamedTuple):
    """What the program of the steady state returns."""

    theta: Float[Array, "p"]
    u: Float[Array, "u"]
    x: Float[Array, "x"]
    rho: Float[Array, "z"]
    entries: Float[Array, "entries"]
    turns: Float[Array, ""]
    status: Float[Array, ""]


@dataclass(frozen=True, eq=False)
class Steady:
    """A steady state on the host."""

    model: Model
    theta: np.ndarray
    u: np.ndarray
    x: np.ndarray
    rho: np.ndarray
    blocks: dict[str, np.ndarray]
    turns: int

    @property
    def params(self) -> Any:
        """Parameters, with what the calibration found."""
        return self.model.parameters.group(self.theta)

    @property
    def controls(self) -> Any:
        """Controls as the model groups them."""
        return self.model.layouts[0].group(self.u)

    @property
    def states(self) -> Any:
        """States as the model groups them."""
        return self.model.layouts[1].group(self.x)

    def __getitem__(self, name: str) -> float:
        """A variable by name, `c` or `K[3]`."""
        named = dict(zip((*self.model.layouts[0].names, *self.model.layouts[1].names), (*self.u, *self.x), strict=True))
        return float(named[name])


def calibration(model: Model, targets: Mapping[str, tuple[str, float]]) -> Calibration:
    """Targets as arrays.

    Args:
        model: The model.
        targets: From the name of a parameter that is freed to the variable that has a target and its value:
            `{"beta": ("logK[0]", 0.4)}`.

    Raises:
        ModelError: A name is unknown, or there are more targets than `model.slots`.
    """
    if len(targets) > model.slots:
        raise ModelError(
            message(
                f"{model.name}, steady state",
                f"there are {len(targets)} targets and {model.slots} slots.",
                "Each target frees one parameter, and the program has room for `slots` of them.",
                f"make the model with slots={len(targets)}.",
            )
        )
    u, x, _ = model.layouts
    known = (*u.names, *x.names)
    found = Calibration(
        *(np.zeros(shape) for shape in ((model.parameters.size, model.slots), (model.slots, len(known)))), *np.zeros((2, model.slots))
    )
    for slot, (parameter, (variable, value)) in enumerate(targets.items()):
        found.free[model.parameters.index(f"{model.name}, parameters", parameter), slot] = 1.0
        if variable not in known:
            raise ModelError(
                message(
                    f"{model.name}, steady state",
                    f"the target {variable!r} is no variable.",
                    f"Targets are of {', '.join(known)}.",
                    "correct the name.",
                )
            )
        found.pick[slot, known.index(variable)] = 1.0
        found.value[slot], found.active[slot] = value, 1.0
    return found


def search(model: Model, theta: Any, targets: Calibration, u0: Any, x0: Any) -> Found:
    """The steady state near a guess; traced."""
    local, slots, sizes = model.local, model.slots, model.sizes
    rows, nu, nx, z = local.rows, sizes["u"], sizes["x"], jnp.zeros(sizes["z"])
    cuts = np.cumsum([sizes["theta"], nu, nx, nu])
    where = local.read(("theta", "u", "x", "u_next", "x_next"))

    def evaluate(point: Any) -> Any:
        tau, v = point[:slots], point[slots:]
        inputs = jnp.concatenate([theta + targets.free @ tau, v, z, v, z])
        entries = local.entries(inputs[:, None])[:, 0]
        own = targets.active * (targets.pick @ v - targets.value) + (1.0 - targets.active) * tau
        return jnp.concatenate([entries[:rows], own]), entries

    def direction(residual: Any, entries: Any) -> Any:
        by_theta, u, x, u_next, x_next = jnp.split(elements(entries, where), cuts, axis=1)
        top = jnp.concatenate([by_theta @ targets.free, u + u_next, x + x_next], 1)
        own = jnp.concatenate([jnp.diag(1.0 - targets.active), targets.active[:, None] * targets.pick], 1)
        return -solve(jnp.concatenate([top, own]), residual[:, None])[:, 0]

    start = jnp.concatenate([jnp.zeros(slots), u0, x0])
    end = newton(evaluate, direction, start, TOLERANCE, keep=lambda _, entries: entries)
    calibrated = theta + targets.free @ end.point[:slots]
    u, x = end.point[slots : slots + nu], end.point[slots + nu :]
    return Found(calibrated, u, x, model.rho(calibrated), end.kept, end.turns, end.ended)


@lru_cache(maxsize=64)
def program(model: Model) -> Any:
    """The compiled search."""

    @jitney.optimize
    def steady(theta: Float[Array, "p"], targets: Any, u0: Float[Array, "u"], x0: Float[Array, "x"]) -> Any:
        return search(model, theta, targets, u0, x0)

    return steady


def steady_state(model: Model, params: Any, targets: Mapping[str, tuple[str, float]] | None = None, guess: Any = None) -> Steady:
    """Find the steady state.

    Args:
        model: The model.
        params: Its parameters; those that targets free are where their search begins.
        targets: From the name of a parameter to a variable and its value; see `calibration`.
        guess: A `Steady` to begin at, instead of the model's own guess.

    Raises:
        NoSteadyState: The search did not converge. The message names the equation with the largest residual.
    """
    u0, x0 = model.guess if guess is None else (guess.u, guess.x)
    with jax.enable_x64(True):
        found = jax.device_get(program(model)(model.theta(params), calibration(model, targets or {}), u0, x0))
    if found.status != CONVERGED:
        raise NoSteadyState(_why(model, found))
    return Steady(model, found.theta, found.u, found.x, found.rho, model.local.blocks(found.entries), int(found.turns))


def _why(model: Model, found: Found) -> str:
    residual = found.entries[: model.local.rows]
    sizes = np.abs(residual)
    worst = int(np.argmax(np.where(np.isfinite(sizes), sizes, np.inf)))
    started = bool(np.all(np.isfinite(residual))) and found.turns > 1
    ended = "the step no longer reduces the residuals, or the Jacobian is singular" if found.status == STUCK else "the limit was reached"
    return message(
        f"{model.name}, steady state",
        f"no convergence in {int(found.turns)} evaluations: {ended}. "
        f"The largest residual is {residual[worst]:.3g}, of equation {model.equation_names[worst]!r}.",
        "Newton's method needs a guess at which all equations are finite, and as many independent equations as unknowns.",
        "begin nearer, with `guess=` a steady state at other parameters, or better numbers in the model's groups."
        if started
        else "give the model's groups numbers at which this equation is finite and independent of the others.",
    )


def at(model: Model, params: Any, controls: Any, states: Any) -> Steady:
    """Take a steady state from elsewhere as it is: nothing is solved, and its Jacobian blocks are computed there."""
    u_layout, x_layout, z_layout = model.layouts
    theta, u, x, z = model.theta(params), u_layout.vector(controls), x_layout.vector(states), np.zeros(z_layout.size)
    with jax.enable_x64(True):
        blocks = jax.device_get(model.residual.jacobian(theta, u, x, z, u, x, z))
    rho = z_layout.vector(model.persistence(model.parameters.group(theta)))
    return Steady(model, theta, u, x, rho, blocks, 0)
