"""What a fit gives back. Numbers come from one packed vector when asked for; residuals, Jacobian
and covariance are computed then.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from ._fail import fail
from ._losses import EPS
from ._outcome import listed
from ._problem import Data
from ._program import SCALARS, Programs
from ._state import Records

MESSAGES = MappingProxyType(
    {
        -3: "There are fewer points than parameters.",
        -1: "Residuals or their Jacobian are not finite at the start.",
        0: "The maximum number of function evaluations is exceeded.",
        1: "`gtol` termination condition is satisfied.",
        2: "`ftol` termination condition is satisfied.",
        3: "`xtol` termination condition is satisfied.",
        4: "Both `ftol` and `xtol` termination conditions are satisfied.",
    }
)


class OneStatus:
    """What the status of a single fit says."""

    status: int

    @property
    def success(self) -> bool:
        """Whether a tolerance was met."""
        return self.status > 0

    @property
    def message(self) -> str:
        """The status in words."""
        return MESSAGES[self.status]


SHOWN = 5  # fits of a batch that are printed
LOOSE = 1e-6  # part of a parameter in a direction without effect, columns scaled to length 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class History:
    """One row per trial step.

    Attributes:
        cost: Cost after the step; unchanged where it was refused.
        step: Length of the step taken, in the parameters' units; 0 where it was refused.
        radius: Radius of the trust region after it, in scaled parameters.
        optimality: Largest component of the (scaled) gradient after it.
    """

    cost: Float[np.ndarray, "trials"]
    step: Float[np.ndarray, "trials"]
    radius: Float[np.ndarray, "trials"]
    optimality: Float[np.ndarray, "trials"]


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A fit, or a batch of fits with a leading axis on every attribute.

    The attributes are those of SciPy's `OptimizeResult` for `least_squares`, and `covariance`.
    NumPy arrays in float64; JAX arrays inside `jax.jit` and its like, where `x` and `cost` carry
    derivatives with respect to the data.
    """

    packed: Any
    records: Records | None
    programs: Programs
    mapped: Data | None
    data: Data
    variance: float | None  # of one residual, where it is known

    def with_known_variance(self) -> "Result":
        """The same for residuals that are in units of their standard deviation."""
        return replace(self, variance=1.0)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Give JAX the arrays."""
        return (self.packed, self.records, self.mapped, self.data), (self.programs, self.variance)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, ...], arrays: tuple[Any, ...]) -> "Result":
        """Take them back."""
        packed, records, mapped, data = arrays
        programs, variance = fixed
        return cls(packed, records, programs, mapped, data, variance)

    def __getitem__(self, i: int) -> "Result":
        """One fit of a batch."""
        if self.packed.ndim == 1:
            fail(
                "The result is of one fit.",
                "A fit of a batch is taken by its index.",
                "leave the index out.",
                TypeError,
            )
        records, mapped = jax.tree.map(lambda leaf: leaf[i], (self.records, self.mapped))
        data = self.data if mapped is None else eqx.combine(mapped, self.data)
        return Result(self.packed[i], records, self.programs, None, data, self.variance)

    @property
    def _size(self) -> int:
        # scalars, two vectors of k and k * (k + 1) numbers
        return (isqrt(4 * (self.packed.shape[-1] - len(SCALARS)) + 9) - 3) // 2

    def _scalar(self, name: str) -> Any:
        return self.packed[..., SCALARS.index(name)][()]  # a NumPy scalar, not an array of rank 0

    def _count(self, name: str) -> Any:
        value = self._scalar(name)
        return (
            value.astype(int) if value.ndim else value if isinstance(value, Tracer) else int(value)
        )

    def _vector(self, i: int) -> Any:
        first = len(SCALARS) + i * self._size
        return self.packed[..., first : first + self._size]

    @property
    def _triangle(self) -> Any:
        k = self._size
        return self.packed[..., len(SCALARS) + 2 * k :].reshape(*self.packed.shape[:-1], k, k + 1)

    @property
    def x(self) -> Float[Array, "*fit k"]:
        """The parameters."""
        return self._vector(0)

    @property
    def cost(self) -> Float[Array, "*fit"]:
        """0.5 times the sum of C^2 rho((f / C)^2)."""
        return self._scalar("cost")

    @property
    def grad(self) -> Float[Array, "*fit k"]:
        """Gradient of the cost."""
        triangle = self._triangle
        xp = jnp if isinstance(self.packed, jax.Array) else np
        with jax.enable_x64(True):
            return xp.sum(triangle[..., :-1] * triangle[..., -1:], axis=-2)

    @property
    def active_mask(self) -> Any:
        """-1 where the lower bound holds the parameter, 1 where the upper does, else 0."""
        return self._vector(1).astype(int)

    @property
    def optimality(self) -> Float[Array, "*fit"]:
        """Largest component of the gradient, each times the distance to the bound it points to."""
        return self._scalar("optimality")

    @property
    def nfev(self) -> Any:
        """Points at which the residuals were needed: the start and every trial."""
        return self._count("nfev")

    @property
    def njev(self) -> Any:
        """Points at which the Jacobian was needed: the start and every accepted trial."""
        return self._count("njev")

    @property
    def status(self) -> Any:
        """Why it stopped, in SciPy's codes: 1 `gtol`, 2 `ftol`, 3 `xtol`, 4 both of these, 0
        `max_nfev`; -1: the start is not finite; -3: fewer points than parameters. A fit with one
        of the last two has NaN for its parameters.
        """
        return self._count("status")

    @property
    def success(self) -> Any:
        """Whether a tolerance was met."""
        return self.status > 0

    @property
    def message(self) -> Any:
        """The status in words; for a batch, how many fits have each and which failed."""
        status = self.status
        if isinstance(status, Tracer):
            return "Known when the compiled program has run."
        if isinstance(status, int):
            return MESSAGES[status]
        codes, counts = np.unique(status, return_counts=True)
        met = np.count_nonzero(status > 0)
        ends = [
            f"{count:,}: {MESSAGES[code]}"
            for code, count in zip(codes.tolist(), counts, strict=True)
        ]
        failed = np.flatnonzero(np.ravel(status) < 0).tolist()
        which = [f"Failed: fits {listed(failed)}."] if failed else []
        return "\n".join([f"{met:,} of {status.size:,} fits met a tolerance.", *ends, *which])

    @cached_property
    def _evaluated(self) -> tuple[Any, Any]:
        with jax.enable_x64(True):
            if self.mapped is None:
                both = self.programs.evaluate(self.x, self.data)
            else:
                both = self.programs.evaluate_batch(self.x, self.mapped, self.data)
        return both if isinstance(self.packed, jax.Array) else jax.device_get(both)

    @property
    def fun(self) -> Float[Array, "*fit points"]:
        """Residuals at the solution, 0 where masked out. Computed when first asked for."""
        return self._evaluated[0]

    @property
    def jac(self) -> Float[Array, "*fit points k"]:
        """Jacobian at the solution, its rows weighted by the loss, so that `jac.T @ jac`
        approximates the Hessian of the cost.
        """
        return self._evaluated[1]

    @property
    def loss_options(self) -> dict[str, Any]:
        """Options that give another fit the loss of this one."""
        scale = float(np.asarray(self.data.controls)[3])
        return {"loss": self.programs.setup.loss, "f_scale": scale}

    @property
    def counts(self) -> Bool[np.ndarray, "points"]:
        """Which points a single fit counts: those that no mask leaves out."""
        mask = self.data.mask
        return np.ones(self.fun.size, bool) if mask is None else np.asarray(mask)

    @property
    def correlations(self) -> Float[np.ndarray, "k k"]:
        """Of the parameters of a single fit; NaN where one is not determined."""
        errors = np.sqrt(np.diag(self.covariance))
        with np.errstate(invalid="ignore"):
            return np.asarray(self.covariance) / np.outer(errors, errors)

    @cached_property
    def covariance(self) -> Float[Array, "*fit k k"]:
        """Covariance of the parameters: the inverse of J^T J times the variance of a residual.

        The variance is 2 cost / (points - k) unless `curve_fit` was told that `sigma` is absolute;
        inf everywhere if points = k and it is not known. A parameter that is `undetermined` has
        inf in its row and column, and the others what they have without the directions that the
        data say nothing about. NaN for a fit that failed.
        """
        xp = jnp if isinstance(self.packed, jax.Array) else np
        k, m = self._size, self._scalar("points")
        unit, loose = self._inverse
        with jax.enable_x64(True):
            known = m > k if self.variance is None else m > 0
            if self.variance is None:
                variance = xp.where(known, 2 * self.cost / xp.where(known, m - k, 1.0), 1.0)
            else:
                variance = xp.where(known, self.variance, 1.0)
            infinite = loose[..., None] | loose[..., None, :] | ~known[..., None, None]
            covariance = xp.where(infinite, xp.inf, unit * variance[..., None, None])
            failed = (self._scalar("status") < 0)[..., None, None]
            return xp.where(failed, xp.nan, covariance)

    @property
    def undetermined(self) -> Bool[Array, "*fit k"]:
        """True for a parameter without effect on the residuals at the solution, and for those that
        do the same together: another value, with the others moved along, fits as well.
        """
        return self._inverse[1] & (self._scalar("status") >= 0)[..., None]

    @cached_property
    def _inverse(self) -> tuple[Any, Any]:
        """Pseudo-inverse of J^T J, and which parameters have a part in its null space."""
        xp = jnp if isinstance(self.packed, jax.Array) else np
        m = self._scalar("points")
        R = self._triangle[..., :-1]
        with jax.enable_x64(True):
            noise = xp.maximum(EPS * xp.maximum(m, 64.0), 4 * self._scalar("resolution"))
            return inverse_of(xp, R, noise)

    @cached_property
    def history(self) -> History | list[History] | None:
        """The trial steps, where `history=True` asked for them; a list for a batch. Inside a trace:
        with NaN behind the last step.
        """
        if self.records is None:
            return None
        if isinstance(self.packed, Tracer):
            return History(
                self.records.cost, self.records.step, self.records.radius, self.records.optimality
            )
        columns = jax.device_get(
            (self.records.cost, self.records.step, self.records.radius, self.records.optimality)
        )
        trials = np.asarray(self.nfev) - 1
        if trials.ndim == 0:
            return History(*(column[:trials] for column in columns))
        return [History(*(column[i, :n] for column in columns)) for i, n in enumerate(trials)]

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: all numbers, evaluated now, without the compiled programs."""
        numbers = jax.device_get(
            {
                **self.__dict__,
                "_evaluated": self._evaluated,
                "_inverse": self._inverse,
                "programs": None,
                "mapped": None,
                "data": None,
            }
        )
        return {**numbers, "variance": self.variance}

    def __repr__(self) -> str:
        names = (
            "message",
            "status",
            "success",
            "cost",
            "x",
            "grad",
            "optimality",
            "active_mask",
            "nfev",
            "njev",
        )
        if self.packed.ndim == 1 or isinstance(self.packed, Tracer):
            return "\n".join(f"{name:>12}: {getattr(self, name)}" for name in names)
        more = ["         ..."] if self.packed[..., 0].size > SHOWN else []
        return "\n".join(
            [self._summary(), *(f"{i:>12}: {line}" for i, line in enumerate(self._first())), *more]
        )

    def _summary(self) -> str:
        """How many fits there are, what they ended with, and where their figures lie."""
        status, cost, nfev = (np.asarray(of).ravel() for of in (self.status, self.cost, self.nfev))
        lines = [f"{'fits':>12}: {status.size:,}, {np.count_nonzero(status > 0):,} with success"]
        lines += [
            f"{f'status {code}':>12}: {np.count_nonzero(status == code):,}. {MESSAGES[code]}"
            for code in np.unique(status).tolist()
        ]
        for name, of in (("cost", cost), ("nfev", nfev)):
            of = of[np.isfinite(of)]
            if of.size:
                low, middle, high = np.min(of), np.median(of), np.max(of)
                lines.append(f"{name:>12}: {low:.6g} to {high:.6g}, {middle:.6g} in the middle")
        failed = np.flatnonzero(status < 0).tolist()
        lines += [f"{'failed':>12}: fits {listed(failed)}"] if failed else []
        return "\n".join(lines)

    def _first(self) -> list[str]:
        """The first few fits, in a line each."""
        status, cost = (
            np.asarray(self.status).ravel()[:SHOWN],
            np.asarray(self.cost).ravel()[:SHOWN],
        )
        x = np.asarray(self.x).reshape(-1, self._size)[:SHOWN]
        with np.printoptions(threshold=SHOWN, edgeitems=2, linewidth=10**6):
            return [
                f"status {code}, cost {of:.6g}, x {at}"
                for code, of, at in zip(status, cost, x, strict=True)
            ]


def inverse_of(xp: Any, R: Any, noise: Any) -> tuple[Any, Any]:
    """Pseudo-inverse of R^T R, and which parameters have a part in its null space.

    The columns of R are scaled to length 1 first, so that the units of the parameters do not
    matter.

    Args:
        xp: `numpy` or `jax.numpy`.
        R: Triangles.
        noise: Singular values that count as zero, as parts of the greatest.
    """
    fine = xp.isfinite(R).all(axis=(-2, -1))[..., None, None]
    R = xp.where(fine, R, xp.eye(R.shape[-1]))  # else NumPy refuses the whole batch
    lengths = xp.linalg.norm(R, axis=-2, keepdims=True)
    lengths = xp.where(lengths > 0, lengths, 1.0)
    _, s, vt = xp.linalg.svd(R / lengths)
    kept = s > noise[..., None] * s[..., :1]
    rows = vt * xp.where(kept, 1 / xp.where(kept, s, 1.0), 0.0)[..., None] / lengths
    loose = (xp.where(kept[..., None], 0.0, xp.abs(vt)) > LOOSE).any(axis=-2)
    return xp.swapaxes(rows, -1, -2) @ rows, loose
