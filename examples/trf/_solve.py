"""The method: one `lax.while_loop` over trial steps, from the start to the verdict.

SciPy nests a loop that shrinks the region inside one that moves the point. Here they are one loop,
whose body tries a step and either moves or shrinks, so that fits mapped over an axis do not wait
for each other at every move. The first trial is the start itself, so that residuals and Jacobian
are in the program once, and compiled once. The state is a few numbers a parameter: residuals and
Jacobian live within one turn, where XLA can fuse them away.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ._coleman_li import (
    Bounds,
    Hat,
    choose_step,
    distance,
    hat,
    model_value,
    off_bounds,
    rescaled,
    strictly_inside,
)
from ._implicit import without_derivative
from ._problem import Controls, Data, Model, Setup, model_at, points
from ._shapes import check_shapes
from ._state import NOT_FINITE, RUNNING, Carry, Records, State
from ._subproblem import solve_subproblem

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]


class Proposal(eqx.Module):
    """Where the subproblem leads."""

    x: Vector
    predicted: Scalar
    length: Scalar
    scaled_length: Scalar
    alpha: Scalar


class Trial(eqx.Module):
    """A step that was tried."""

    step: Proposal
    model: Model


def solve(setup: Setup, x0: Vector, data: Data) -> State:
    """Minimise 0.5 sum C^2 rho((f / C)^2) over the box, by SciPy's rules.

    Args:
        setup: Functions, loss and which parts of the method are needed.
        x0: Start, inside the bounds.
        data: Bounds, tolerances and what the functions take.
    Returns:
        The last state. Its status is SciPy's, or `NOT_FINITE` for a start where residuals or
        Jacobian are not finite.
    """
    check_shapes(setup, x0, data)
    x0, data = without_derivative((x0, data))
    bounds = Bounds(data.lower, data.upper) if setup.bounded else None
    limit = limit_of(data)

    def unfinished(carry: Carry) -> Bool[Array, ""]:
        return unmet(carry.state(), limit)

    def turn(carry: Carry) -> Carry:
        state = carry.state()
        return Carry.of(advance(setup, data, state, attempt(setup, data, state, bounds), bounds))

    last = lax.while_loop(unfinished, turn, Carry.of(start(setup, x0, data, bounds))).state()
    return ended(last)


def limit_of(data: Data) -> Scalar:
    """The limit of evaluations."""
    return Controls.unpack(data.controls).max_nfev


def unmet(state: State, limit: Scalar) -> Bool[Array, ""]:
    """Tell whether the loop goes on."""
    return (state.status == RUNNING) & (state.nfev < limit)


def ended(last: State) -> State:
    """The last state, with SciPy's status where the limit ended it."""
    return eqx.tree_at(
        lambda state: state.status, last, jnp.where(last.status == RUNNING, 0.0, last.status)
    )


def start(setup: Setup, x0: Vector, data: Data, bounds: Bounds | None, model: Any = None) -> State:
    """The state before the first trial, which is of the start itself: its model allows no step and
    its cost is infinite.
    """
    x = x0 if bounds is None else off_bounds(x0, bounds, 1e-10)
    scale = jnp.asarray(np.ones(x.size)) if data.x_scale is None else data.x_scale
    if model is None:
        triangle = jnp.asarray(np.eye(x.size, x.size + 1))
        model = Model(jnp.full((), jnp.inf), triangle, setup.few(x.size))
    zero, one = jnp.zeros(()), jnp.ones(())
    blank = None if setup.records is None else Records(*jnp.full((4, setup.records), jnp.nan))
    return State(x, model, scale, one, zero, zero, zero, zero, jnp.full((), RUNNING), blank)


def first_radius(x: Vector, model: Model, scale: Vector, bounds: Bounds | None) -> Scalar:
    """The length of the start, scaled."""
    scaled = x / scale
    if bounds is not None:
        v, dv = distance(x, model.g, bounds)
        scaled = scaled / jnp.sqrt(rescaled(v, dv, scale))
    radius = jnp.linalg.norm(scaled)
    return jnp.where(radius == 0, 1.0, radius)


def optimality_of(x: Vector, model: Model, bounds: Bounds | None) -> Scalar:
    """Largest component of the gradient, each times the distance to the bound that it points to."""
    g = model.g if bounds is None else model.g * distance(x, model.g, bounds)[0]
    return jnp.max(jnp.abs(g))


def cosine(model: Model) -> Scalar:
    """Largest cosine between the residuals and a column of the Jacobian, which no unit changes; 0
    where either is zero.
    """
    sizes = model.lengths * jnp.sqrt(2 * model.cost)
    return jnp.max(jnp.where(sizes > 0, jnp.abs(model.g) / jnp.where(sizes > 0, sizes, 1.0), 0.0))


def attempt(setup: Setup, data: Data, state: State, bounds: Bounds | None) -> Trial:
    """Step, and evaluate the model there."""
    step = proposed(state, bounds, points(setup, state.x, data))
    return Trial(step, model_at(setup, step.x, data))


def proposed(state: State, bounds: Bounds | None, count: Scalar) -> Proposal:
    """Solve the subproblem, for this number of residuals."""
    model, scale = state.model, state.scale
    if bounds is None:
        local = Hat(scale, scale * model.g, model.R * scale, model.c, model.few)
    else:
        local = hat(state.x, model.g, model.R, model.c, scale, bounds, model.few)
    p, alpha = solve_subproblem(local.R, local.c, state.radius, state.alpha, count, model.few)
    return proposal_of(state, local, p, alpha, bounds)


def proposal_of(
    state: State, local: Any, p: Vector, alpha: Scalar, bounds: Bounds | None
) -> Proposal:
    """Where a step of the local model, a `Hat` or its like, leads inside the bounds."""
    if bounds is None:
        s, value = p, model_value(local, p)
        x = state.x + local.d * s
    else:
        theta = jnp.maximum(0.995, 1 - state.optimality)
        step = choose_step(state.x, local, p, state.radius, theta, bounds)
        s, value = step.s, step.value
        x = strictly_inside(state.x + local.d * s, bounds)
    x = jnp.where(state.first, state.x, x)
    return Proposal(x, -value, jnp.linalg.norm(local.d * s), jnp.linalg.norm(s), alpha)


def advance(setup: Setup, data: Data, state: State, trial: Trial, bounds: Bounds | None) -> State:
    """Judge a trial: move or stay, resize the region, and stop if a tolerance is met."""
    controls = Controls.unpack(data.controls)
    optimality = optimality_of(trial.step.x, trial.model, bounds)
    finite = trial.model.finite(optimality)
    actual = jnp.where(finite, state.model.cost - trial.model.cost, -jnp.inf)
    ratio = gain(actual, trial.step.predicted)
    moved = (actual > 0) | state.first

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(moved, new, old)

    x = pick(trial.step.x, state.x)
    model = jax.tree.map(pick, trial.model, state.model)
    scale = shortest(state, model) if setup.scale_by_jac else state.scale
    optimality = pick(optimality, state.optimality)
    radius, alpha = resized(state, trial, ratio, finite)
    radius = jnp.where(state.first, first_radius(x, model, scale, bounds), radius)
    alpha = jnp.where(state.first, 0.0, alpha)
    status = jnp.where(
        finite,
        verdict(controls, state, trial, actual, ratio),
        jnp.where(state.first, NOT_FINITE, RUNNING),
    )
    slope = cosine(model) if setup.cosine else optimality
    status = jnp.where(finite & (slope < controls.gtol), 1, status)
    records = recorded(
        state, model.cost, jnp.where(moved, trial.step.length, 0.0), radius, optimality
    )
    return State(
        x,
        model,
        scale,
        radius,
        alpha,
        optimality,
        state.nfev + 1,
        state.njev + moved.astype(float),
        status,
        records,
    )


def shortest(state: State, model: Model) -> Vector:
    """One over the greatest length that each column of the Jacobian has had; 1 for one that is zero
    at the start.
    """
    norms = model.lengths
    scale = 1 / jnp.where(norms == 0, jnp.where(state.first, 1.0, 0.0), norms)
    return jnp.where(state.first, scale, jnp.minimum(state.scale, scale))


def gain(actual: Scalar, predicted: Scalar) -> Scalar:
    """Reduction of the cost as a fraction of what the model predicted; 1 if both are zero, 0 if the
    model predicted none.
    """
    down = predicted > 0
    neither = (predicted == 0) & (actual == 0)
    return jnp.where(down, actual / jnp.where(down, predicted, 1.0), jnp.where(neither, 1.0, 0.0))


def resized(
    state: State, trial: Trial, ratio: Scalar, finite: Bool[Array, ""]
) -> tuple[Scalar, Scalar]:
    """New radius and, with it, a new guess for the multiplier."""
    at_edge = trial.step.scaled_length > 0.95 * state.radius
    grown = jnp.where((ratio > 0.75) & at_edge, 2 * state.radius, state.radius)
    radius = jnp.where(finite & (ratio >= 0.25), grown, 0.25 * trial.step.scaled_length)
    return radius, jnp.where(finite, trial.step.alpha * (state.radius / radius), trial.step.alpha)


def verdict(
    controls: Controls, state: State, trial: Trial, actual: Scalar, ratio: Scalar
) -> Scalar:
    """Tell whether the cost (2), the step (3) or both (4) changed too little to go on."""
    by_cost = (actual < controls.ftol * state.model.cost) & (ratio > 0.25)
    by_step = trial.step.length < controls.xtol * (controls.xtol + jnp.linalg.norm(state.x))
    met = jnp.where(
        by_cost & by_step, 4.0, jnp.where(by_cost, 2.0, jnp.where(by_step, 3.0, RUNNING))
    )
    return jnp.where(state.first, RUNNING, met)


def recorded(
    state: State, cost: Scalar, step: Scalar, radius: Scalar, optimality: Scalar
) -> Records | None:
    """Write one row of the history."""
    if state.records is None:
        return None
    row = Records(cost, step, radius, optimality)
    # behind the end nothing is written
    i = jnp.where(state.first, state.records.cost.size, state.nfev.astype(int) - 1)
    return jax.tree.map(
        lambda column, value: column.at[i].set(value, mode="drop"), state.records, row
    )
