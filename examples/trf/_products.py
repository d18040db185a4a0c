"""The same method where residuals and Jacobian are never there as a whole: all that it needs are
their products.

A trial step takes the cost and the triangle of the Jacobian. Both come from the Gram matrix of [J,
r], (parameters + 1) squared numbers that can be summed over any pieces of the data. The loop runs
on the host, since evaluating the products is anybody's business: one program, a program in chunks,
a stream from disk. Forming J^T J squares the condition number, so columns are scaled to length 1
first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from . import _check
from ._coleman_li import Bounds
from ._fail import fail
from ._jit import COMPILER, optimize
from ._problem import Data, Model, Setup
from ._result import OneStatus
from ._run import UNBOUNDED
from ._solve import Proposal, Trial, advance, proposed, start
from ._state import NOT_FINITE, RUNNING, State

Gram = Float[Array, "k+1 k+1"]


@dataclass(frozen=True)
class ProductsResult(OneStatus):
    """A fit by products.

    Args:
        x: Parameters.
        cost: Half the sum of squares.
        covariance: Of the parameters, scaled by the residual variance.
        optimality: Largest component of the scaled gradient.
        nfev: How often the products were evaluated.
        status: As of SciPy's `least_squares`.
    """

    x: np.ndarray
    cost: float
    covariance: np.ndarray
    optimality: float
    nfev: int
    status: int

    @property
    def errors(self) -> np.ndarray:
        """Standard errors of the parameters."""
        return np.sqrt(np.diag(self.covariance))


def least_squares_by_products(
    gram: Callable[[np.ndarray], ArrayLike],
    x0: ArrayLike,
    points: int,
    bounds: Any = UNBOUNDED,
    *,
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: ArrayLike | str | None = "jac",
    max_nfev: int | None = None,
    polish: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> ProductsResult:
    """Minimise 0.5 sum f(x)^2 over a box, by the Trust Region Reflective method, from products of
    the Jacobian J and the residuals r alone.

    Args:
        gram: At x, the matrix [[J^T J, J^T r], [r^T J, r^T r]] in float64.
        x0: Start.
        points: Number of residuals.
        bounds: As of `least_squares`.
        ftol: As of `least_squares`.
        xtol: As of `least_squares`.
        gtol: As of `least_squares`.
        x_scale: As of `least_squares`.
        max_nfev: As of `least_squares`.
        polish: So many Gauss-Newton steps at the end, judged by the gradient. The cost does not see
            steps below the root of its rounding, 1e-8 of a parameter; these bring fits whose sums
            were added in another order together.
        progress: Called after each evaluation, with their number and the cost.
    Raises:
        ValueError: An argument is infeasible or has a wrong shape, or the products at the start are
            not finite or not of full rank.
    """
    with jax.enable_x64(True):
        start = _check.start(x0, "x0")
        box = None if bounds is UNBOUNDED else _check.box(bounds, start, "x0")
        by_jac, scale = (False, None) if x_scale is None else _check.scale(x_scale, start)
        limit = 100 * start.size if max_nfev is None else max_nfev
        controls = jnp.asarray(_check.controls(ftol, xtol, gtol, 1.0, limit))
        lower, upper = box or (None, None)
        data = Data(lower, upper, scale, controls, None, (), {})
        run = _Run(
            _programs(Setup(_none, None, "linear", box is not None, by_jac, None)),
            gram,
            data,
            points,
            progress,
        )
        return run(jnp.asarray(start), int(limit), polish)


def _none() -> None:
    """In the place of residuals, which nobody asks for here."""


class _Run:
    """One fit."""

    def __init__(
        self,
        programs: tuple[Any, Any, Any, Any, Any],
        gram: Any,
        data: Data,
        points: int,
        progress: Any,
    ):
        self.begin, self.propose, self.judge, self.newton, self.model = programs
        self.gram, self.data, self.progress = gram, data, progress
        self.count = jnp.asarray(float(points))
        self.points = points
        self.nfev = 0

    def __call__(self, x0: Array, limit: int, polish: int) -> ProductsResult:
        state = self.begin(x0, self.data)
        while int(state.status) == RUNNING and self.nfev < limit:
            step = self.propose(state, self.count, self.data)
            state = self.judge(state, step, self.products(step.x), self.data)
        if int(state.status) == NOT_FINITE:
            fail(
                "The products at the start are not finite, or not of full rank.",
                "Each parameter has to change the residuals, and none as others do together.",
                "start elsewhere, or leave out a parameter.",
            )
        status = max(int(state.status), 0)
        x, model = self.polished(state.x, state.model, polish)
        inverse = np.linalg.inv(np.asarray(model.R))
        cost = float(model.cost)
        covariance = inverse @ inverse.T * (2 * cost / max(1, self.points - x.size))
        return ProductsResult(
            np.asarray(x), cost, covariance, float(state.optimality), self.nfev, status
        )

    def products(self, x: Array) -> Array:
        found = np.asarray(self.gram(np.asarray(x)), np.float64)
        if found.shape != (x.size + 1, x.size + 1):
            fail(
                f"`gram` gave an array of shape {found.shape}.",
                f"At {x.size} parameters it is {x.size + 1} by {x.size + 1}.",
                "return the Gram matrix of [J, r].",
            )
        self.nfev += 1
        if self.progress is not None:
            self.progress(self.nfev, 0.5 * float(found[-1, -1]))
        return jnp.asarray(found)

    def polished(self, x: Array, model: Model, steps: int) -> tuple[Array, Model]:
        """Gauss-Newton steps, as long as they stay inside the box."""
        for _ in range(steps):
            new = self.newton(x, model)
            outside = self.data.lower is not None and bool(
                np.any((new <= self.data.lower) | (new >= self.data.upper))
            )
            if outside or not np.all(np.isfinite(np.asarray(new))):
                break
            x, model = new, self.model(self.products(new))
        return x, model


@lru_cache(maxsize=64)
def _programs(setup: Setup) -> tuple[Any, Any, Any, Any, Any]:
    """What runs between two evaluations, compiled once."""

    def box(data: Data) -> Bounds | None:
        return Bounds(data.lower, data.upper) if setup.bounded else None

    @optimize(compiler=COMPILER)
    def begin(x0: Float[Array, "k"], data: Data) -> State:
        return start(setup, x0, data, box(data))

    @optimize(compiler=COMPILER)
    def propose(state: State, count: Float[Array, ""], data: Data) -> Proposal:
        return proposed(state, box(data), count)

    @optimize(compiler=COMPILER)
    def judge(state: State, step: Proposal, gram: Gram, data: Data) -> State:
        return advance(setup, data, state, Trial(step, model_of(gram)), box(data))

    @optimize(compiler=COMPILER)
    def newton(x: Float[Array, "k"], model: Model) -> Float[Array, "k"]:
        return x - jax.scipy.linalg.solve_triangular(model.R, model.c)

    return begin, propose, judge, newton, optimize(compiler=COMPILER)(model_of)


def model_of(gram: Gram) -> Model:
    """Cost and triangle from the products: Cholesky, of columns scaled to length 1. Not of full
    rank: NaN.
    """
    inner, mixed = gram[:-1, :-1], gram[:-1, -1]
    lengths = jnp.sqrt(jnp.diag(inner))
    lengths = jnp.where(lengths > 0, lengths, 1.0)
    lower = jnp.linalg.cholesky(inner / (lengths[:, None] * lengths)) * lengths[:, None]
    c = jax.scipy.linalg.solve_triangular(lower, mixed, lower=True)
    return Model(0.5 * gram[-1, -1], jnp.column_stack([lower.T, c]))
