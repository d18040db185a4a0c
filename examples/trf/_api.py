"""What users call: `least_squares` and `curve_fit`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ._curve import Residual, ResidualJacobian
from ._fail import fail
from ._held import Held, without_arrays
from ._measured import measured, spread
from ._result import Result
from ._run import UNBOUNDED, Request, any_traced, run

Loss = str | Callable[[Array], Array]


def least_squares(
    fun: Callable[..., Array],
    x0: ArrayLike,
    jac: Callable[..., Array] | None = None,
    bounds: Any = UNBOUNDED,
    *,
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: ArrayLike | str | None = None,
    loss: Loss = "linear",
    f_scale: float = 1.0,
    max_nfev: int | None = None,
    mask: ArrayLike | None = None,
    history: bool = False,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    mapped: str | Sequence[str] = (),
) -> Result:
    """Minimise 0.5 sum C^2 rho((f(x) / C)^2) over a box, by the Trust Region Reflective method, as
    one compiled program.

    Meant as `scipy.optimize.least_squares(method="trf", tr_solver="exact")` for functions written
    in JAX: the same options mean the same, the same rules choose, resize and stop. The program is
    kept for the pair of functions, so define them once rather than in a loop.

    Args:
        fun: Residuals at x: `fun(x, *args, **kwargs)`, one axis, at least as many as parameters.
            Written for JAX. The arrays of an `equinox.Module` are data: another module of the same
            structure runs the same program.
        x0: Start. With one more leading axis: a batch of independent fits, one for each row. Within
            `with jitney.mesh(fit=-1):` devices share the fits of a batch; their number divides that
            of the fits.
        jac: Jacobian (points, parameters) with the same arguments; by default JAX's forward
            derivative of `fun`.
        bounds: Lower and upper bounds, each a number or one per parameter (in a batch also one row
            per fit), or `scipy.optimize.Bounds`. Each lower bound is below its upper one.
        ftol: Stop when the cost falls by less than this fraction, in a step that the model
            predicted well. `None` switches it off.
        xtol: Stop when a step is shorter than this fraction of x.
        gtol: Stop when the gradient, scaled by the distance to the bounds, is below this.
        x_scale: Typical size of the parameters, or "jac" for the inverse lengths of the Jacobian's
            columns.
        loss: "linear", "huber", "soft_l1", "cauchy", "arctan", or a function of z = (f / C)^2. The
            function gives rho, rho', rho'' stacked as SciPy's do, or rho alone, elementwise, whose
            derivatives are then taken.
        f_scale: The C above, in units of the residuals. No effect on the linear loss.
        max_nfev: Limit of evaluations; by default 100 per parameter.
        mask: True for the residuals that count; in a batch also one row per fit. The others may be
            anything, NaN included.
        history: Keep a record of every trial step in `result.history`.
        args: Further arguments of `fun` and `jac`: arrays and floats are data, all else is fixed at
            compile time.
        kwargs: The same by keyword.
        mapped: In a batch, the parameters of `fun` that hold one entry per fit on their leading
            axis; the others are shared.
    Returns:
        A `Result`. In float64, whatever JAX's global flag is. Within `jax.jit`, `jax.vmap` or a
        derivative its fields are JAX's own, nothing is checked that needs values, and `x` and
        `cost` carry derivatives with respect to the data.
    Raises:
        ValueError: An argument is infeasible, has a wrong shape or value, or the start is not
            finite; see the message.
        TypeError: An argument is not of the right kind.
        MeshError: The devices of the mesh around the call do not divide the fits.
    """
    held, (fun, jac) = without_arrays(fun, jac)
    if held is not None:
        fun, jac, args = Held(fun, 0), jac and Held(jac, 1), (held, *args)
    mapped = (mapped,) if isinstance(mapped, str) else tuple(mapped)
    request = Request(
        fun, jac, loss, x_scale, history, (ftol, xtol, gtol, f_scale, max_nfev), mapped
    )
    return run(request, x0, bounds, mask, args, {} if kwargs is None else kwargs)


def _batched(p0: Any, t: Any, y: Any, sigma: Any, whiten: str) -> tuple[Any, tuple[str, ...]]:
    """One start per fit, and which of the data each fit has for itself."""
    shape = np.shape(p0)
    fits = y.shape[0] if y.ndim == 2 else shape[0]
    if len(shape) > 2 or (len(shape) == 2 and shape[0] != fits):
        fail(
            f"`p0` has shape {shape} and `y` has {y.shape}.",
            "In a batch both have a row for each fit, or one of them is shared.",
            "make their first axes agree.",
        )
    xp = jnp if any_traced(p0) else np
    own = {
        "t": y.ndim == 2 and t.shape == y.shape,
        "y": y.ndim == 2,
        "sigma": sigma is not None and sigma.ndim == (3 if whiten == "matrix" else 2),
    }
    return xp.broadcast_to(p0, (fits, shape[-1] if shape else 1)), tuple(
        name for name, is_own in own.items() if is_own
    )


def curve_fit(
    model: Callable[..., Array],
    t: ArrayLike,
    y: ArrayLike,
    p0: ArrayLike,
    sigma: ArrayLike | None = None,
    absolute_sigma: bool = False,
    bounds: Any = UNBOUNDED,
    *,
    jac: Callable[..., Array] | None = None,
    **options: Any,
) -> Result:
    """Fit y = model(t, *p) by `least_squares`, with the covariance of the parameters.

    Args:
        model: Curve at t for the parameters: `model(t, *p)`, one value per point. Written for JAX;
            may be an `equinox.Module`.
        t: Where y was measured; any array that `model` takes.
        y: The measurements. With one more leading axis: a batch of fits, each with its own y, and
            with its own t where that has the shape of y. A NaN among them is an error: leave such
            points out with `mask`.
        p0: Start, one number per parameter; in a batch also one row per fit.
        sigma: Standard deviation of y, a number or one per point, or the covariance matrix of the
            points. In a batch the shape of y means one standard deviation per point and fit.
        absolute_sigma: Whether `sigma` is in the units of y. Otherwise only its proportions count,
            and the scatter of the residuals sets its size.
        bounds: As in `least_squares`.
        jac: Jacobian (points, parameters) of the model, `jac(t, *p)`; by default JAX's forward
            derivative.
        options: All others of `least_squares` but `args`, `kwargs` and `mapped`. `x_scale` is
            "jac" unless given, as in MINPACK, which SciPy's `curve_fit` calls.
    Returns:
        A `Result`; its residuals and Jacobian are divided by sigma.
    Raises:
        ValueError: As `least_squares` does; or `sigma` has the wrong shape, is not positive, or is
            not positive definite.
    """
    if not callable(model):
        fail(
            f"`model` is {model!r}.",
            "It is a function model(t, *p).",
            "pass a callable.",
            TypeError,
        )
    fixed = [name for name in options if name in ("args", "kwargs", "mapped")]
    if fixed:
        fail(
            f"`{fixed[0]}` is not an option of `curve_fit`.",
            "A model is called with t and the parameters alone.",
            "let the model hold what else it needs, or use `least_squares`.",
            TypeError,
        )
    y, t = measured(y, "y", "fiub"), measured(t, "t", "fiubc")
    whiten, sigma = spread(sigma, y)
    if whiten == "matrix" and options.get("mask") is not None:
        fail(
            "`mask` came with a covariance matrix.",
            "Correlated points are fitted as mixtures, which cannot be left out one by one.",
            "take the points out of `t`, `y` and both axes of `sigma`.",
        )
    mapped: tuple[str, ...] = ()
    if y.ndim == 2 or np.ndim(p0) > 1:
        p0, mapped = _batched(p0, t, y, sigma, whiten)
    held, (model, jac) = without_arrays(model, jac)
    columns = None if jac is None else ResidualJacobian(jac, whiten)
    data = (t, y, sigma) if held is None else (t, y, sigma, held)
    options.setdefault("x_scale", "jac")
    result = least_squares(
        Residual(model, whiten, "t" in mapped),
        p0,
        columns,
        bounds,
        args=data,
        mapped=mapped,
        **options,
    )
    return result.with_known_variance() if absolute_sigma else result
