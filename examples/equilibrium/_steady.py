"""Steady states, with calibration: a target for a variable frees a parameter.

The unknowns are controls, states and `tau`, one number for each parameter that may be freed: theta
+ free @ tau. Each `tau` has an equation of its own, tau = 0 where nothing is freed and (variable =
target) where something is. Which is which is data, so a calibrated steady state and one at given
parameters are the same program. It returns the derivatives it ended with, which are all that
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

from ._calibration import Calibration, calibration, unknowns
from ._fail import ModelError, NoSteadyState, message
from ._given import lines, made_by, number
from ._local import Local
from ._model import Model, Persistence
from ._newton import CONVERGED, newton, solve
from ._rolled import elements
from ._unfound import undetermined, warn_if_degenerate, why
from ._variables import named

TOLERANCE = 1e-12
# residuals of a steady state from elsewhere: published ones are printed with some seven digits
CLOSE = 1e-6


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

    def __repr__(self) -> str:
        pairs = zip(unknowns(self.model), np.concatenate([self.u, self.x]), strict=True)
        rows = {name: f"{value:.6g}" for name, value in pairs}
        return lines(f"{self.model.name}, {self.kind}", rows)

    @property
    def kind(self) -> str:
        """The state, in words."""
        return "the steady state"

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

    def scales(self, dates: int) -> tuple[np.ndarray, np.ndarray]:
        """What deviations of controls and states are multiplied by at each date; see `Growth`."""
        return np.ones((dates, self.u.size)), np.ones((dates, self.x.size))

    def levels(self, dates: int) -> tuple[np.ndarray, np.ndarray]:
        """Controls and states at each date, rows."""
        return np.tile(self.u, (dates, 1)), np.tile(self.x, (dates, 1))

    def after(self, u: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What controls and states of a date become by the next."""
        return u, x

    def __getitem__(self, name: str) -> float:
        """A variable by name, `c` or `K[3]`."""
        return float(
            np.concatenate([self.u, self.x])[
                named(f"{self.model.name}, steady state", unknowns(self.model), name)
            ]
        )


def search(
    local: Local, rho: Persistence, theta: Any, targets: Calibration, u0: Any, x0: Any
) -> Found:
    """The steady state near a guess; traced."""
    slots, sizes = targets.active.shape[0], local.sizes
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
        own = jnp.concatenate(
            [jnp.diag(1.0 - targets.active), targets.active[:, None] * targets.pick], 1
        )
        return -solve(jnp.concatenate([top, own]), residual[:, None])[:, 0]

    start = jnp.concatenate([jnp.zeros(slots), u0, x0])
    end = newton(evaluate, direction, start, TOLERANCE, keep=lambda _, entries: entries)
    calibrated = theta + targets.free @ end.point[:slots]
    u, x = end.point[slots : slots + nu], end.point[slots + nu :]
    return Found(calibrated, u, x, rho(calibrated), end.kept, end.turns, end.ended)


@lru_cache(maxsize=64)
def program(model: Model) -> Any:
    """The compiled search."""
    # here and in `_path.py` and `_sweep.py`, so that `before.py` is measured without it
    import jitney

    local, rho = model.local, model.rho

    @jitney.optimize
    def steady(
        theta: Float[Array, "p"], targets: Any, u0: Float[Array, "u"], x0: Float[Array, "x"]
    ) -> Any:
        return search(local, rho, theta, targets, u0, x0)

    return steady


def steady_state(
    model: Model,
    params: Any,
    targets: Mapping[str, tuple[str, float]] | None = None,
    guess: Any = None,
) -> Steady:
    """Find the steady state.

    Args:
        model: The model.
        params: Its parameters; those that targets free are where their search begins.
        targets: From the name of a parameter to a variable and its value; see `calibration`.
        guess: A `Steady` to begin at, instead of the model's own guess.

    Raises:
        ModelError: Something that is given does not fit the model, or its equations cannot
            determine its variables.
        NoSteadyState: The search did not converge, or other steady states are near, as with a unit
            root. The message names equations.

    Warns:
        DegenerateRoot: A variable ended at zero, where an equation holds whatever the others are.
    """
    made_by("steady_state", "model", model, Model, "Model(...)")
    u0, x0 = model.guess if guess is None else begun(model, guess)
    wanted = calibration(model, {} if targets is None else targets)
    with jax.enable_x64(True):
        found = jax.device_get(program(model)(model.theta(params), wanted, u0, x0))
    who = undetermined(model, wanted, found)
    if found.status != CONVERGED or who is not None:
        raise NoSteadyState(why(model, found, who))
    warn_if_degenerate(model, found, u0, x0)
    return Steady(
        model,
        found.theta,
        found.u,
        found.x,
        found.rho,
        model.local.blocks(found.entries),
        int(found.turns),
    )


def begun(model: Model, guess: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where a search begins that is given a steady state of this model or of one with the same
    variables.
    """
    made_by(f"{model.name}, steady state", "guess", guess, Steady, "steady_state(model, params)")
    if unknowns(guess.model) != unknowns(model):
        raise ModelError(
            message(
                f"{model.name}, steady state",
                f"the guess has the variables {', '.join(unknowns(guess.model))}.",
                f"This model's are {', '.join(unknowns(model))}.",
                "pass a steady state of the same model at other parameters.",
            )
        )
    return guess.u, guess.x


def at(model: Model, params: Any, controls: Any, states: Any, tolerance: float = CLOSE) -> Steady:
    """Take a steady state from elsewhere as it is: nothing is solved, and its Jacobian blocks are
    computed there.

    Args:
        model: The model.
        params: Its parameters.
        controls: Controls there.
        states: States there.
        tolerance: How large a residual may be.

    Raises:
        ModelError: The equations do not hold there. The message names the one that is furthest off.
    """
    made_by("at", "model", model, Model, "Model(...)")
    where = f"{model.name}, steady state"
    (u_layout, x_layout, z_layout), limit = model.layouts, number(where, "tolerance", tolerance)
    theta, z = model.theta(params), np.zeros(z_layout.size)
    u, x = (
        u_layout.vector(controls, f"{where}, controls"),
        x_layout.vector(states, f"{where}, states"),
    )
    with jax.enable_x64(True):
        residual, blocks = jax.device_get(
            model.residual.value_and_jacobian(theta, u, x, z, u, x, z)
        )
        rho = np.asarray(model.rho(theta))
    sizes = np.where(np.isfinite(residual), np.abs(residual), np.inf)
    worst = int(np.argmax(sizes))
    if not sizes[worst] <= limit:
        raise ModelError(
            message(
                where,
                f"the point is none: equation {model.equation_names[worst]!r} is off by"
                f" {residual[worst]:.3g}.",
                f"In a steady state all residuals are 0, up to tolerance={limit:g}.",
                "solve for it with `steady_state`, look whether its parameters are these, or pass"
                " the tolerance it was found with.",
            )
        )
    return Steady(model, theta, u, x, rho, blocks, 0)
