"""What users call: `least_squares` and `curve_fit`."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from examples.trf import _check
from examples.trf._curve import Residual, ResidualJacobian
from examples.trf._measured import measured, spread
from examples.trf._result import Result
from examples.trf._run import UNBOUNDED, Request, any_traced, run

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
    mapped: tuple[str, ...] = (),
) -> Result:
    """Minimise 0.5 sum C^2 rho((f(x) / C)^2) over a box, by the Trust Region Reflective method, as one compiled program.

    Meant as `scipy.optimize.least_squares(method="trf", tr_solver="exact")` for functions written in JAX: the same options mean the
    same, the same rules choose, resize and stop. The program is kept for the pair of functions, so define them once rather than in a loop.

    Args:
        fun: Residuals at x: `fun(x, *args, **kwargs)`, one axis, at least as many as parameters.
        x0: Start. With one more leading axis: a batch of independent fits, one for each row.
        jac: Jacobian (points, parameters) with the same arguments; by default JAX's forward derivative of `fun`.
        bounds: Lower and upper bounds, each a number or one per parameter, or `scipy.optimize.Bounds`.
        ftol: Stop when the cost falls by less than this fraction, in a step that the model predicted well. `None` switches it off.
        xtol: Stop when a step is shorter than this fraction of x.
        gtol: Stop when the gradient, scaled by the distance to the bounds, is below this.
        x_scale: Typical size of the parameters, or "jac" for the inverse lengths of the Jacobian's columns.
        loss: "linear", "huber", "soft_l1", "cauchy", "arctan", or a function of z = (f / C)^2. The function gives rho, rho', rho''
            stacked as SciPy's do, or rho alone, elementwise, whose derivatives are then taken.
        f_scale: The C above, in units of the residuals. No effect on the linear loss.
        max_nfev: Limit of evaluations; by default 100 per parameter.
        mask: True for the residuals that count. The others may be anything, NaN included.
        history: Keep a record of every trial step in `result.history`.
        args: Further arguments of `fun` and `jac`: arrays and floats are data, all else is fixed at compile time.
        kwargs: The same by keyword.
        mapped: In a batch, the parameters of `fun` that hold one entry per fit on their leading axis; the others are shared.
    Returns:
        A `Result`. In float64, whatever JAX's global flag is. Within `jax.jit`, `jax.vmap` or a derivative its fields are JAX's own,
        nothing is checked that needs values, and `x` and `cost` carry derivatives with respect to the data.
    Raises:
        ValueError: An argument is infeasible, has a wrong shape or value, or the start is not finite; see the message.
        TypeError: An argument is not of the right kind.
    """
    request = Request(fun, jac, loss, x_scale, history, (ftol, xtol, gtol, f_scale, max_nfev), mapped)
    return run(request, x0, bounds, mask, args, kwargs or {})


def _batched(p0: Any, t: Any, y: Any, sigma: Any, whiten: str) -> tuple[Any, tuple[str, ...]]:
    """One start per fit, and which of the data each fit has for itself."""
    fits = y.shape[0] if y.ndim == 2 else np.shape(p0)[0]
    xp = jnp if any_traced(p0) else np
    own = {
        "t": y.ndim == 2 and t.shape == y.shape,
        "y": y.ndim == 2,
        "sigma": sigma is not None and sigma.ndim == (3 if whiten == "matrix" else 2),
    }
    return xp.broadcast_to(p0, (fits, np.shape(p0)[-1])), tuple(name for name, is_own in own.items() if is_own)


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
        model: Curve at t for the parameters: `model(t, *p)`, one value per point.
        t: Where y was measured; any array that `model` takes.
        y: The measurements. With one more leading axis: a batch of fits, each with its own y, and with its own t where that has the
            shape of y.
        p0: Start, one number per parameter; in a batch also one row per fit.
        sigma: Standard deviation of y, a number or one per point, or the covariance matrix of the points. In a batch the shape of y
            means one standard deviation per point and fit.
        absolute_sigma: Whether `sigma` is in the units of y. Otherwise only its proportions count, and the scatter of the residuals sets
            its size.
        bounds: As in `least_squares`.
        jac: Jacobian (points, parameters) of the model, `jac(t, *p)`; by default JAX's forward derivative.
        options: All others of `least_squares`.
    Returns:
        A `Result`; its residuals and Jacobian are divided by sigma.
    Raises:
        ValueError: As `least_squares` does; or `sigma` has the wrong shape, is not positive, or is not positive definite.
    """
    if not callable(model):
        _check.fail(f"`model` is {model!r}.", "It is a function model(t, *p).", "pass a callable.", TypeError)
    if not any_traced(t, y, p0, sigma):
        y, t = measured(y, "y"), measured(t, "t")
    whiten, sigma = spread(sigma, y)
    mapped: tuple[str, ...] = ()
    if y.ndim == 2 or np.ndim(p0) == 2:
        p0, mapped = _batched(p0, t, y, sigma, whiten)
    columns = None if jac is None else ResidualJacobian(jac, whiten)
    result = least_squares(Residual(model, whiten), p0, columns, bounds, args=(t, y, sigma), mapped=mapped, **options)
    return result.with_known_variance() if absolute_sigma else result
