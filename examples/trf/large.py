"""The same method for many parameters: steps from products with the Jacobian, which is never there
as a whole.

A turn solves the subproblem in the plane of the gradient and of the Gauss-Newton step, which LSMR
finds from products alone, as SciPy's `tr_solver="lsmr"` does. Products come from `jax.linearize`:
one costs about an evaluation of the residuals. Where the Jacobian itself is asked for, it is sparse
and comes from few products (`jitney`'s coloured derivatives).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from . import _check, _outcome
from ._coleman_li import Bounds, active, distance, rescaled
from ._fail import fail
from ._held import Held, without_arrays
from ._jit import lazy_derivatives, optimize
from ._losses import reweigh, rho_of
from ._lsmr import lsmr
from ._problem import Controls, Data, Setup, residuals
from ._qr import triangularise
from ._result import OneStatus
from ._run import UNBOUNDED
from ._shapes import check_shapes
from ._solve import Proposal, Trial, advance, ended, limit_of, proposal_of, start, unmet
from ._state import State
from ._subproblem import solve_subproblem

SCALARS = ("cost", "optimality", "nfev", "njev", "status")
Vector = Float[Array, "k"]
Rows = Float[Array, "points"]


class Sketch(eqx.Module):
    """Cost and gradient at a point, and the lengths of the Jacobian's columns where they are the
    scale of the parameters (1 otherwise).
    """

    cost: Float[Array, ""]
    g: Vector
    lengths: Vector

    def finite(self, optimality: Float[Array, ""]) -> Bool[Array, ""]:
        """Tell whether cost and derivatives can be used; the optimality here is of all of `g`."""
        numbers = jnp.stack([self.cost, optimality])
        return jnp.all(jnp.isfinite(numbers)) & jnp.all(jnp.isfinite(self.lengths))


class Products(eqx.Module):
    """The local model in scaled parameters, as `Hat`, by products: the rows are those of the
    Jacobian and, where there are bounds, below them the roots of the curvature that they add.
    """

    d: Vector
    g: Vector
    curvature: Vector | None
    push: Callable[[Vector], Rows]
    pull: Callable[[Rows], Vector]

    def times(self, s: Vector) -> Float[Array, "m"]:
        """Rows times a step."""
        above = self.push(self.d * s)
        if self.curvature is None:
            return above
        return jnp.concatenate([above, jnp.sqrt(self.curvature) * s])

    def transposed(self, u: Float[Array, "m"]) -> Vector:
        """Rows, transposed."""
        if self.curvature is None:
            return self.d * self.pull(u)
        points = u.shape[0] - self.d.shape[0]
        return self.d * self.pull(u[:points]) + jnp.sqrt(self.curvature) * u[points:]

    def regularised(self, extra: Float[Array, ""]) -> tuple["Products", Float[Array, ""]]:
        """The same with more curvature, of which a part may be the damping of LSMR."""
        if self.curvature is None:
            return self, jnp.sqrt(extra)
        more = self.curvature + extra
        return Products(self.d, self.g, more, self.push, self.pull), jnp.zeros(())


class Inner(eqx.Module):
    """Numbers that steer LSMR."""

    atol: Float[Array, ""]
    btol: Float[Array, ""]
    turns: Float[Array, ""]


@dataclass(frozen=True, eq=False, repr=False)
class LargeResult(OneStatus):
    """A fit of many parameters; the attributes are those of SciPy's `OptimizeResult`.

    Attributes:
        x: The parameters.
        cost: Half the sum of squares, or of the loss.
        fun: Residuals.
        grad: Gradient of the cost.
        optimality: Its largest component, each times the distance to the bound it points to.
        active_mask: -1 where the lower bound holds the parameter, 1 where the upper does, else 0.
        nfev: Evaluations.
        njev: Points that were accepted.
        status: As of `Result`.
    """

    x: Float[np.ndarray, "k"]
    cost: float
    fun: Float[np.ndarray, "points"]
    grad: Float[np.ndarray, "k"]
    optimality: float
    active_mask: np.ndarray
    nfev: int
    njev: int
    status: int
    setup: Setup
    data: Data

    @property
    def jac(self) -> scipy.sparse.csr_array:
        """The sparse Jacobian at the solution, its rows weighted by the loss, from as few products
        as its structure needs; computed when asked for.
        """
        with jax.enable_x64(True):
            _, _, weight = _weights(self.setup, jnp.asarray(self.fun), self.data)
        return scipy.sparse.diags_array(np.asarray(weight)) @ self.unweighted

    @cached_property
    def unweighted(self) -> scipy.sparse.csr_array:
        """The same without the weights."""
        with jax.enable_x64(True):
            J = _programs(self.setup).jacobian(self.x, self.data)
        row, column = np.asarray(J.indices).T
        return scipy.sparse.csr_array((np.asarray(J.data), (row, column)), shape=J.shape)

    def __repr__(self) -> str:
        names = ("message", "status", "success", "cost", "optimality", "nfev", "njev", "x")
        return "\n".join(f"{name:>12}: {getattr(self, name)}" for name in names)


def least_squares_large(
    fun: Callable[..., Array],
    x0: ArrayLike,
    bounds: Any = UNBOUNDED,
    *,
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: ArrayLike | str | None = None,
    loss: str | Callable[[Array], Array] = "linear",
    f_scale: float = 1.0,
    max_nfev: int | None = None,
    mask: ArrayLike | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    atol: float = 1e-6,
    btol: float = 1e-6,
    maxiter: int | None = None,
) -> LargeResult:
    """Minimise as `least_squares` does, for thousands of parameters, of which a residual depends on
    few: `scipy.optimize.least_squares(method="trf", tr_solver="lsmr")`.

    Args:
        fun: Residuals at x, as of `least_squares`.
        x0: Start of one fit.
        bounds: As of `least_squares`.
        ftol: As of `least_squares`; so are the others up to `kwargs`.
        xtol: See `ftol`.
        gtol: See `ftol`.
        x_scale: As of `least_squares`; "jac" takes the sparse Jacobian at each point that is tried.
        loss: See `ftol`.
        f_scale: See `ftol`.
        max_nfev: See `ftol`.
        mask: See `ftol`.
        args: See `ftol`.
        kwargs: See `ftol`.
        atol: Tolerance of LSMR, by which Gauss-Newton steps are found; see SciPy's `lsmr`.
        btol: Likewise.
        maxiter: Limit of its iterations, by default the number of parameters.
    """
    kwargs = {} if kwargs is None else kwargs
    held, (fun,) = without_arrays(fun)
    if held is not None:
        fun, args = Held(fun, 0), (held, *args)
    _check.functions(fun, None, loss)
    _check.further(args, kwargs)
    with jax.enable_x64(True):
        start = _check.start(x0, "x0")
        if start.ndim > 1:
            fail(
                f"`x0` has shape {start.shape}.",
                "A fit of many parameters is one fit.",
                "fit a batch by `least_squares`.",
            )
        box = None if bounds is UNBOUNDED else _check.box(bounds, start, "x0")
        by_jac, scale = (False, None) if x_scale is None else _check.scale(x_scale, start)
        counts = None if mask is None else _check.counted(mask, start)
        limit = 100 * start.size if max_nfev is None else max_nfev
        controls = np.asarray(_check.controls(ftol, xtol, gtol, f_scale, limit))
        lower, upper = box or (None, None)
        data = Data(lower, upper, scale, controls, counts, tuple(args), kwargs)
        setup = Setup(fun, None, loss, box is not None, by_jac, None)
        return run(setup, start, data, (atol, btol, start.size if maxiter is None else maxiter))


def run(setup: Setup, x0: np.ndarray, data: Data, inner: tuple[float, float, float]) -> LargeResult:
    """Fit, and bring what was found to the host."""
    programs = _programs(setup)
    groups = programs.groups(x0, data) if setup.scale_by_jac else None
    steer = Inner(*(np.asarray(float(number)) for number in inner))
    packed, x, f, g, holds = jax.device_get(programs.fit(x0, data, steer, groups))
    cost, optimality, nfev, njev, status = packed.tolist()
    status = int(status)
    if status < 0:
        row = np.zeros((1, len(SCALARS)))
        row[0, -1] = status
        _outcome.check_start(row[0], len(SCALARS) - 1, x0, "x0", data.mask, dict)
    return LargeResult(x, cost, f, g, optimality, holds, int(nfev), int(njev), status, setup, data)


class Groups(eqx.Module):
    """Structure of a Jacobian, and directions that reach all of it: each column is in one group,
    and the columns of a group share no row.
    """

    seeds: Float[Array, "groups k"]
    group: Array  # of each element that is not zero
    row: Array
    column: Array


@dataclass(frozen=True, eq=False)
class LargePrograms:
    """What is compiled for one setup."""

    setup: Setup
    fit: Any
    values: Any

    def jacobian(self, x: np.ndarray, data: Data) -> Any:
        """The Jacobian without the loss's weights, sparse, by coloured derivatives."""
        return self.values.jacobian(jnp.asarray(x), data)

    def groups(self, x: np.ndarray, data: Data) -> Groups:
        """The groups of columns."""
        J = self.jacobian(x, data)
        return _groups(np.asarray(J.indices).tobytes(), str(J.indices.dtype), J.shape)


@lru_cache(maxsize=16)
def _groups(indices: bytes, kind: str, shape: tuple[int, int]) -> Groups:
    """Those of a structure, which is the same from fit to fit."""
    row, column = np.frombuffer(indices, kind).reshape(-1, 2).T
    group = grouped(row, column, shape)
    seeds = np.zeros((int(group.max(initial=0)) + 1, shape[1]))
    seeds[group, np.arange(shape[1])] = 1.0
    return Groups(*map(jnp.asarray, (seeds, group[column], row, column)))


def grouped(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A group for each column, the first that has none of its rows (Curtis, Powell and Reid)."""
    order = np.argsort(column, kind="stable")
    rows = np.split(row[order], np.searchsorted(column[order], np.arange(1, shape[1])))
    group, taken = np.zeros(shape[1], int), np.zeros((1, shape[0]), bool)
    for i, own in enumerate(rows):
        free = ~taken[:, own].any(axis=1)
        group[i] = int(np.argmax(free)) if free.any() else len(taken)
        if not free.any():
            taken = np.vstack([taken, np.zeros((1, shape[0]), bool)])
        taken[group[i], own] = True
    return group


@lru_cache(maxsize=64)
def _programs(setup: Setup) -> LargePrograms:
    """Programs for a setup, made once."""

    # without XLA's emitters by MLIR (`_jit.py`) passes over long vectors take twice as long
    @optimize
    def fit(x0: Float[Array, "k"], data: Data, inner: Inner, groups: Groups | None) -> Any:
        return fitted(setup, x0, data, inner, groups)

    @lazy_derivatives(wrt="x", sparse=True)
    def values(x: Float[Array, "k"], data: Data) -> Float[Array, "points"]:
        return residuals(setup, x, data)

    return LargePrograms(setup, fit, values)


def fitted(setup: Setup, x0: Vector, data: Data, inner: Inner, groups: Groups | None) -> Any:
    """The loop of `solve`, with other local models."""
    check_shapes(setup, x0, data)
    bounds = Bounds(data.lower, data.upper) if setup.bounded else None
    limit = limit_of(data)

    def attempt(state: State) -> Trial:
        step = _proposed(setup, data, state, bounds, inner)
        return Trial(step, sketch_at(setup, step.x, data, groups))

    def turn(state: State) -> State:
        return advance(setup, data, state, attempt(state), bounds)

    def unfinished(state: State) -> Bool[Array, ""]:
        return unmet(state, limit)

    zeros = jnp.zeros_like(x0)
    blank = Sketch(jnp.full((), jnp.inf), zeros, zeros + 1)
    last = ended(lax.while_loop(unfinished, turn, start(setup, x0, data, bounds, blank)))
    holds = zeros.astype(int)
    if bounds is not None:
        holds = active(last.x, bounds, Controls.unpack(data.controls).xtol)
    numbers = (last.model.cost, last.optimality, last.nfev, last.njev, last.status)
    return jnp.stack(numbers), last.x, residuals(setup, last.x, data), last.model.g, holds


def _weights(
    setup: Setup, f: Rows, data: Data
) -> tuple[Float[Array, ""], Rows, Rows | Float[Array, ""]]:
    """Cost, residuals and row weights of the linear problem that stands for the loss."""
    rho = rho_of(setup.loss)
    if rho is None:
        return 0.5 * (f @ f), f, jnp.ones_like(f)
    return reweigh(rho, f, Controls.unpack(data.controls).f_scale, data.mask)


def _linear(setup: Setup, x: Vector, data: Data) -> tuple[Any, Rows, Any, Any]:
    """Cost, weighted residuals, and products with the weighted Jacobian and its transpose."""
    f, push = jax.linearize(lambda x: residuals(setup, x, data), x)
    pull = jax.linear_transpose(push, x)
    cost, f, weight = _weights(setup, f, data)
    if setup.loss == "linear":
        return cost, f, push, lambda u: pull(u)[0]
    return cost, f, lambda s: weight * push(s), lambda u: pull(weight * u)[0]


def sketch_at(setup: Setup, x: Vector, data: Data, groups: Groups | None) -> Sketch:
    """Evaluate cost and gradient at x."""
    cost, f, push, pull = _linear(setup, x, data)
    lengths = jnp.ones_like(x)
    if groups is not None:
        compressed = jax.vmap(push)(groups.seeds)
        squares = compressed[groups.group, groups.row] ** 2
        lengths = jnp.sqrt(jnp.zeros_like(x).at[groups.column].add(squares))
    return Sketch(cost, pull(f), lengths)


def _proposed(
    setup: Setup, data: Data, state: State, bounds: Bounds | None, inner: Inner
) -> Proposal:
    """Solve the subproblem in the plane of the gradient and of the Gauss-Newton step."""
    _, f, push, pull = _linear(setup, state.x, data)
    scale, g = state.scale, state.model.g
    d, curvature, rhs = scale, None, f
    if bounds is not None:
        v, dv = distance(state.x, g, bounds)
        d, curvature = jnp.sqrt(rescaled(v, dv, scale)) * scale, g * dv * scale
        rhs = jnp.pad(f, (0, d.size))
    local = Products(d, d * g, curvature, push, pull)
    full, damp = local.regularised(_regularisation(local, state.radius))
    newton = lsmr(
        full.times,
        full.transposed,
        rhs,
        inner.atol,
        inner.btol,
        jnp.where(state.first, 0.0, inner.turns),
        damp,
    )
    plane = _plane(local.g, newton)
    columns = jnp.stack([local.times(s) for s in plane])
    small = triangularise(columns, rhs)
    q, alpha = solve_subproblem(
        small[:, :2], small[:, 2], state.radius, state.alpha, jnp.asarray(float(f.size))
    )
    return proposal_of(state, local, q @ plane, alpha, bounds)


def _regularisation(local: Products, radius: Float[Array, ""]) -> Float[Array, ""]:
    """Curvature for LSMR by which a singular problem has a step: what the model falls along the
    gradient within the region, over the square of its radius, as SciPy has it.
    """
    length = jnp.linalg.norm(local.g)
    rows = local.times(local.g)
    a, b = 0.5 * (rows @ rows), -(length**2)
    most = radius / jnp.where(length > 0, length, 1.0)
    best = jnp.clip(jnp.where(a > 0, -0.5 * b / jnp.where(a > 0, a, 1.0), most), 0.0, most)
    return -best * (a * best + b) / radius**2


def _plane(g: Vector, newton: Vector) -> Float[Array, "2 k"]:
    """Two vectors of length 1 that span it; the second is zero where they are parallel."""
    first = _unit(g)
    rest = newton
    for _ in range(2):  # once more for what rounding left
        rest = rest - (first @ rest) * first
    small = jnp.linalg.norm(rest) <= 1e-12 * jnp.linalg.norm(newton)
    return jnp.stack([first, jnp.where(small, 0.0, _unit(rest))])


def _unit(vector: Vector) -> Vector:
    length = jnp.linalg.norm(vector)
    return vector / jnp.where(length > 0, length, 1.0)
