"""The same method, one evaluation at a time on the host: for functions that JAX cannot trace,
Jacobians that are sparse or operators, and callbacks.

Between evaluations the programs of the solver run, on k numbers a parameter. What the functions
raise comes out as it is, which it would not from within a compiled program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._coleman_li import Bounds
from ._jit import COMPILER, optimize
from ._losses import EPS
from ._problem import Data, Model, Setup
from ._solve import Proposal, Trial, advance, proposed, start
from ._state import NOT_FINITE, RUNNING, State

Vector = Float[np.ndarray, "k"]
STOPPED = -2  # SciPy's code of a callback that stopped the fit


@dataclass(frozen=True)
class Turn:
    """Where the fit stands, as a callback sees it."""

    x: Vector
    fun: np.ndarray
    cost: float
    nit: int
    nfev: int
    step: float
    optimality: float


@dataclass(frozen=True)
class Problem:
    """What is evaluated, and by which rules.

    Attributes:
        fun: Residuals at x.
        jac: Jacobian at x, dense, given the residuals there.
        weigh: From residuals and Jacobian to the cost, and to those of the linear problem that
            stands for the loss.
        lower: Bounds.
        upper: Bounds.
        scale: Scale of the parameters; `None` for the Jacobian's.
        controls: Tolerances, scale of the loss, limit of evaluations.
        each: Called after each iteration; gives True to stop.
        cosine: Whether `gtol` is MINPACK's (`Setup`).
    """

    fun: Callable[[Vector], np.ndarray]
    jac: Callable[[Vector, np.ndarray], np.ndarray]
    weigh: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray, np.ndarray]]
    lower: Vector
    upper: Vector
    scale: Vector | None
    controls: tuple[float, ...]
    each: Callable[[Turn], bool]
    cosine: bool


@dataclass(frozen=True)
class Ended:
    """The last point."""

    x: Vector
    nfev: int
    njev: int
    status: int


def run(problem: Problem, x0: Vector) -> Ended:
    """Fit from x0, which is strictly inside the bounds."""
    bounded = bool(np.isfinite(problem.lower).any() or np.isfinite(problem.upper).any())
    begin, propose, judge = _programs(bounded, problem.scale is None, problem.cosine)
    with jax.enable_x64(True):
        box = (problem.lower, problem.upper) if bounded else (None, None)
        data = Data(*box, problem.scale, jnp.asarray(problem.controls), None, (), {})
        return _looped(problem, begin(jnp.asarray(x0), data), data, propose, judge)


def _looped(problem: Problem, state: State, data: Data, propose: Any, judge: Any) -> Ended:
    f, nfev, njev, nit, limit = np.zeros(0), 0, 0, 0, problem.controls[-1]
    status = int(RUNNING)
    while status == RUNNING and nfev < limit:
        step = propose(state, jnp.asarray(float(max(f.size, 1))), data)
        x = np.array(step.x)
        tried = np.asarray(problem.fun(x))
        nfev += 1
        model = _model(problem, x, tried, float(state.model.cost))
        before, state = state, judge(state, step, model, data)
        moved = float(state.njev) > float(before.njev)
        f, njev = (tried, njev + 1) if moved else (f, njev)
        status = int(state.status)
        if nfev > 1 and (moved or status != RUNNING):
            nit += 1
        if nfev == 1 or moved or status != RUNNING:
            length = float(step.length) if moved else 0.0
            cost, optimality = float(state.model.cost), float(state.optimality)
            turn = Turn(np.array(state.x), f, cost, nit, nfev, length, optimality)
            if problem.each(turn) and status != NOT_FINITE:
                status = STOPPED
                break
    else:
        status = 0 if status == RUNNING else status
    return Ended(np.array(state.x), nfev, njev, status)


def _model(problem: Problem, x: Vector, f: np.ndarray, cost: float) -> Model:
    """Cost and triangle; the Jacobian is asked for only where the cost fell."""
    blank = np.zeros((x.size, x.size + 1))
    if not np.isfinite(f).all():
        return Model(jnp.asarray(np.nan), jnp.asarray(blank))
    new, _, _ = problem.weigh(f, np.zeros((f.size, 0)))
    if not new < cost:
        return Model(jnp.asarray(new), jnp.asarray(blank))
    new, weighted, J = problem.weigh(f, problem.jac(x, f))
    return Model(jnp.asarray(new), jnp.asarray(triangle(J, weighted)))


def triangle(J: np.ndarray, f: np.ndarray) -> np.ndarray:
    """R and Q^T f of J = Q R, with rows of zeros where there are fewer points than parameters."""
    if not np.isfinite(J).all():
        return np.full((J.shape[1], J.shape[1] + 1), np.nan)
    rows = np.linalg.qr(np.column_stack([J, f]), mode="r")[: J.shape[1]]
    return np.pad(rows, ((0, J.shape[1] - len(rows)), (0, 0)))


@lru_cache(maxsize=8)
def _programs(bounded: bool, by_jac: bool, cosine: bool) -> tuple[Any, Any, Any]:
    """What runs between two evaluations, compiled once for each number of parameters."""
    setup = Setup(_none, None, "linear", bounded, by_jac, None, cosine)

    def box(data: Data) -> Bounds | None:
        return Bounds(data.lower, data.upper) if bounded else None

    @optimize(compiler=COMPILER)
    def begin(x0: Float[Array, "k"], data: Data) -> State:
        return start(setup, x0, data, box(data))

    @optimize(compiler=COMPILER)
    def propose(state: State, count: Float[Array, ""], data: Data) -> Proposal:
        return proposed(state, box(data), count)

    @optimize(compiler=COMPILER)
    def judge(state: State, step: Proposal, model: Model, data: Data) -> State:
        return advance(setup, data, state, Trial(step, model), box(data))

    return begin, propose, judge


def _none() -> None:
    """In the place of residuals, which nobody asks for here."""


def differences(
    fun: Callable[[Any], np.ndarray],
    x: Vector,
    f: np.ndarray,
    scheme: str,
    step: Any,
    box: tuple[Vector, Vector],
) -> np.ndarray:
    """Jacobian by differences that stay inside the bounds.

    Args:
        fun: Residuals.
        x: Where.
        f: Residuals there; their type sets the step.
        scheme: "2-point", "3-point" or "cs".
        step: Relative step, or `None`.
        box: Lower and upper bounds.
    """
    unit = np.finfo(f.dtype).eps if f.dtype.kind == "f" else EPS
    size = unit ** (1 / 3 if scheme == "3-point" else 1 / 2)
    h = size * np.where(x < 0, -1.0, 1.0) * np.maximum(1.0, np.abs(x))
    if step is not None:
        own = np.asarray(step) * np.where(x < 0, -1.0, 1.0) * np.abs(x)
        h = np.where(x + own == x, h, own)
    return np.stack([_column(fun, x, f, i, h[i], scheme, box) for i in range(x.size)], axis=1)


def _column(
    fun: Callable[[Any], np.ndarray],
    x: Vector,
    f: np.ndarray,
    i: int,
    h: float,
    scheme: str,
    box: tuple[Vector, Vector],
) -> np.ndarray:
    def at(step: complex) -> np.ndarray:
        moved = x.astype(type(step) if isinstance(step, complex) else float)
        moved[i] += step
        return np.atleast_1d(fun(moved))

    if scheme == "cs":
        return at(1j * abs(h)).imag / abs(h)
    below, above = x[i] - box[0][i], box[1][i] - x[i]
    if scheme == "3-point" and min(below, above) >= abs(h):
        return (at(abs(h)) - at(-abs(h))) / ((x[i] + abs(h)) - (x[i] - abs(h)))
    reach, sign = (2 if scheme == "3-point" else 1) * abs(h), np.sign(h)
    room, other = (above, below) if sign > 0 else (below, above)
    if room < reach and other > room:
        room, sign = other, -sign
    signed = sign * min(1.0, room / reach) * abs(h)
    if scheme == "2-point":
        return (at(signed) - f) / ((x[i] + signed) - x[i])
    return (4 * at(signed) - 3 * f - at(2 * signed)) / (2 * signed)
