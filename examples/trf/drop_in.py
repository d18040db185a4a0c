"""SciPy's `curve_fit` and `least_squares`, by their own signatures: change the import, keep the
script.

    from jitney_examples.trf.drop_in import curve_fit, least_squares  # in a clone: examples

Functions in NumPy are traced by JAX (`_numpy.py`), so their derivatives are exact, `jac="2-point"`
included, and the fit is one compiled program. What cannot be traced is called with NumPy's arrays
(`_host.py`), with a warning. `method="lm"` and `"dogbox"` are answered by Trust Region Reflective,
"lm" with MINPACK's scale of the parameters.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cholesky, qr, solve_triangular
from scipy.optimize import OptimizeResult, OptimizeWarning, leastsq

from . import _numpy
from ._held import argument_names
from ._losses import EPS
from ._result import inverse_of
from ._scipys import Call, box_of, fitted
from ._scipys import NotTraced as NotTraced

UNBOUNDED = (-np.inf, np.inf)
MINPACKS = ("epsfcn", "factor", "col_deriv")  # of `leastsq`, without meaning here
LEASTSQ = frozenset(("ftol", "xtol", "gtol", "maxfev", "diag", *MINPACKS))
TOLERANCES = {"ftol": 1e-8, "xtol": 1e-8, "gtol": 0.0}  # `leastsq` has 1.49e-8, 1.49e-8, 0


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = "2-point",
    bounds: Any = UNBOUNDED,
    method: str = "trf",
    ftol: float | None = 1e-8,
    xtol: float | None = 1e-8,
    gtol: float | None = 1e-8,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: str | None = None,
    tr_options: Mapping[str, Any] | None = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Callable[..., Any] | None = None,
    workers: Any = None,
) -> OptimizeResult:
    """Solve a nonlinear least-squares problem with bounds: `scipy.optimize.least_squares`.

    The arguments, their order and their defaults are SciPy's, and so is the result. A function that
    can be traced is called twice, once with numbers and once with what JAX traces, however many
    evaluations are counted; `diff_step`, `jac_sparsity` and `workers` then have no effect, since
    nothing is approximated.
    """
    result, _ = _solved(**locals())
    return result


def _solved(
    *,
    fun: Any,
    jac: Any,
    args: Any,
    kwargs: Any,
    workers: Any,
    ftol: Any,
    xtol: Any,
    gtol: Any,
    **others: Any,
) -> tuple[OptimizeResult, float]:
    """The result, and the rounding unit of its derivatives."""
    del workers  # the program uses the processors that there are
    call = Call.checked(jac=jac, tolerances=(ftol, xtol, gtol), **others)
    return fitted(call, _with(fun, args, kwargs), _with(jac, args, kwargs))


def _with(fun: Any, args: Any, kwargs: Mapping[str, Any] | None) -> Any:
    """The function with its further arguments."""
    if not callable(fun) or not (args or kwargs):
        return fun
    named = dict(kwargs or {})

    def of_x(x: Any) -> Any:
        return fun(x, *args, **named)

    return of_x


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = UNBOUNDED,
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **kwargs: Any,
) -> Any:
    """Fit a function to data by nonlinear least squares: `scipy.optimize.curve_fit`.

    The arguments, their order and their defaults are SciPy's, and so are `popt, pcov`. A parameter
    that the data do not determine has inf in its row and column of `pcov` (everywhere for "lm", as
    in SciPy), and the `OptimizeWarning` names it.
    """
    p0, lower, upper = _start(f, p0, bounds)
    bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    method = method or ("trf" if bounded else "lm")
    if method == "lm" and bounded:
        raise ValueError(
            "Method 'lm' only works for unconstrained problems. Use 'trf' or 'dogbox' instead."
        )
    if method == "lm":
        p0 = p0.ravel()  # as MINPACK takes it
        if p0.dtype.kind not in "biufO":
            rule = f"`p0` is of {p0.dtype}, and the parameters are real numbers."
            raise TypeError(f"{rule}\nFix: pass an array of floats.")
    if any(isinstance(data, np.ma.MaskedArray) for data in (xdata, ydata)):
        rule = "`curve_fit` ignores the mask of a masked array, as SciPy's does: all points count."
        warnings.warn(f"{rule}\nFix: pass `xdata[~mask]` and `ydata[~mask]`.", stacklevel=2)
    finite = nan_policy is None if check_finite is None else check_finite
    asarray = np.asarray_chkfinite if finite else np.asarray
    if np.iscomplexobj(ydata):
        raise ValueError("`ydata` must be real.")
    ydata = asarray(ydata, float)
    if isinstance(xdata, range):
        xdata = np.asarray(xdata)  # NumPy's numbers make an array of it too, and tracers do not
    if isinstance(xdata, list | tuple | np.ndarray) and not np.iscomplexobj(xdata):
        xdata = asarray(xdata, float)
    if ydata.size == 0:
        raise ValueError("`ydata` must not be empty!")
    if not finite and nan_policy is not None:
        xdata, ydata, sigma = _without_nan(xdata, ydata, sigma, nan_policy)
    if "args" in kwargs:
        raise ValueError("'args' is not a supported keyword argument.")
    whiten = _whitening(sigma, ydata)
    # one number of data may be that of many points
    points = ydata.size if ydata.size != 1 or p0.size == 1 else np.size(f(xdata, *p0))
    if method == "lm" and p0.size > points:
        raise TypeError(
            f"The number of func parameters={p0.size} must not exceed the number of data"
            f" points={points}"
        )

    by_columns = method == "lm" and bool(kwargs.get("col_deriv"))

    def residual(p: Any) -> Any:
        made = f(xdata, *p)
        return whiten((np.asarray(made) if isinstance(made, list | tuple) else made) - ydata)

    def jacobian(p: Any) -> Any:
        made = jac(xdata, *p)
        made = np.asarray(made) if isinstance(made, list | tuple) else made
        if method == "lm":
            made = made.T if by_columns else made
            made = made[:, None] if p0.size == 1 and np.ndim(made) == 1 else made
            if np.shape(made) != (points, p0.size):
                raise TypeError(
                    "leastsq: there is a mismatch between the input and output shape of `jac`:"
                    f" it should be {(points, p0.size)}, and it is {np.shape(made)}."
                )
        return whiten(made)

    own = jacobian if callable(jac) else jac or "2-point"
    options = _options(method, kwargs, p0.size, 1 if callable(jac) else 2)
    try:
        given = inspect.signature(least_squares).bind(
            residual, p0, own, (lower, upper), method, **options
        )
    except TypeError as error:
        raise TypeError(f"least_squares() {error}") from error
    given.apply_defaults()
    result, unit = _solved(**given.arguments)
    status, message = result.status, result.message
    if method == "lm" and status >= 0:
        status, message = _minpacks(status, given.arguments, p0.size)
    if not result.success:
        raise RuntimeError("Optimal parameters not found: " + message)
    names = [name or f"p[{i}]" for i, name in enumerate(argument_names(f, p0.size))]
    covariance = _covariance(result, unit, absolute_sigma, names, everywhere=method == "lm")
    if not full_output:
        return result.x, covariance
    about = {"nfev": result.nfev, "fvec": result.fun, **_factors(result, method)}
    if method == "lm" and callable(jac):
        about["njev"] = result.njev
    return result.x, covariance, about, message, status


def _start(f: Callable[..., Any], p0: Any, bounds: Any) -> tuple[np.ndarray, Any, Any]:
    """The start, guessed from the signature and the bounds where none is given."""
    if p0 is not None:
        p0 = np.atleast_1d(p0)
        return p0, *box_of(bounds, p0.size)
    kinds = inspect.Parameter
    of = inspect.signature(f).parameters.values()
    plain = [p for p in of if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    if len(plain) < 2:
        raise ValueError("Unable to determine number of fit parameters.")
    lower, upper = box_of(bounds, len(plain) - 1)
    lower, upper = (
        np.full(len(plain) - 1, side) if side.size == 1 else side for side in (lower, upper)
    )  # fewer bounds leave the last parameters their defaults
    low, high = np.isfinite(lower), np.isfinite(upper)
    p0 = np.where(low, lower + 1, np.where(high, upper - 1, 1.0))
    both = low & high
    p0[both] = 0.5 * (lower[both] + upper[both])
    return p0, lower, upper


def _without_nan(xdata: Any, ydata: Any, sigma: Any, policy: str) -> tuple[Any, Any, Any]:
    """The points without NaN, or an error, as the policy says."""
    if policy == "propagate":
        raise ValueError("`nan_policy='propagate'` is not supported by this function.")
    if policy not in ("raise", "omit"):
        raise ValueError("nan_policy must be one of {None, 'raise', 'omit'}")
    bad = np.isnan(xdata)
    bad = bad.any(axis=tuple(range(bad.ndim - 1))) | np.isnan(ydata)
    if not bad.any():
        return xdata, ydata, sigma
    if policy == "raise":
        raise ValueError("The input contains nan values")
    if sigma is not None:
        sigma = np.asarray(sigma)
        sigma = sigma[~bad] if sigma.ndim == 1 else sigma
        sigma = sigma[~bad][:, ~bad] if sigma.ndim == 2 else sigma
    return xdata[..., ~bad], ydata[~bad], sigma


def _whitening(sigma: Any, ydata: np.ndarray) -> Callable[[Any], Any]:
    """What makes residuals, or rows of a Jacobian, of unit variance."""
    if sigma is None:
        return lambda misfit: misfit
    sigma = np.asarray(sigma)
    if sigma.size == 1 or sigma.shape == (ydata.size,):
        bad = np.flatnonzero((sigma == 0) | np.isnan(sigma))
        if bad.size:
            raise ValueError(
                f"`sigma` is 0 or NaN at {bad.size} points, the first of them {bad[0]}: their"
                " residuals are not finite in the initial point. To leave a point out, make it inf."
            )
        weight = 1.0 / sigma
        columns = weight[:, None] if weight.ndim == 1 else weight
        return lambda misfit: (
            (columns if np.ndim(misfit) == 2 else weight)  # of a Jacobian, or of residuals
            * (misfit if isinstance(misfit, _numpy.Array) else np.asarray(misfit))
        )
    if sigma.shape != (ydata.size, ydata.size):
        raise ValueError("`sigma` has incorrect shape.")
    try:
        lower = cholesky(sigma, lower=True)
    except np.linalg.LinAlgError as error:
        raise ValueError("`sigma` must be positive definite.") from error
    return lambda misfit: _numpy.solved(lower, misfit, solve_triangular)


def _options(method: str, given: Mapping[str, Any], k: int, calls: int) -> dict[str, Any]:
    """Further arguments by the names of `least_squares`. For "lm" the limit is that of `leastsq`,
    100 `calls` a parameter, and one more.
    """
    options = dict(given)
    others = sorted(set(given) - LEASTSQ) if method == "lm" else []
    if others:
        rule = f"leastsq() got an unexpected keyword argument '{others[0]}'"
        raise TypeError(f"{rule}: it is one of `least_squares`.\nFix: `method='trf'`.")
    if method != "lm":
        if "max_nfev" not in options:
            options["max_nfev"] = options.pop("maxfev", None)
        return options
    limit = options.pop("maxfev", None) or 0
    options["max_nfev"] = limit if limit > 0 else calls * 100 * (k + 1)
    diag = options.pop("diag", None)
    diag = None if diag is None else np.asarray(diag, float)
    tolerances = [options.get(name, default) or 0.0 for name, default in TOLERANCES.items()]
    improper = options.get("factor", 1) <= 0 or (diag is not None and np.any(diag <= 0))
    if improper or min(tolerances) < 0:
        raise RuntimeError("Optimal parameters not found: Improper input parameters.")
    if max(tolerances) < EPS:
        raise RuntimeError(
            f"Optimal parameters not found: ftol={tolerances[0]:f} is too small, no further"
            " reduction in the sum of squares\n  is possible."
        )
    options.update(zip(TOLERANCES, (one or None for one in tolerances), strict=True))
    if diag is not None:
        options["x_scale"] = 1 / diag
    for name in MINPACKS:
        options.pop(name, None)
    return options


def _minpacks(status: int, given: Mapping[str, Any], k: int) -> tuple[int, str]:
    """The number and the words by which `leastsq` says how a fit ended."""
    ftol, xtol, gtol = (given[name] or 0.0 for name in ("ftol", "xtol", "gtol"))
    fell = (
        "Both actual and predicted relative reductions in the sum of squares\n  are at most"
        f" {ftol:f}"
    )
    moved = "he relative error between two consecutive iterates is at"
    words = {
        0: (5, f"Number of calls to function has reached maxfev = {given['max_nfev'] or 100 * k}."),
        1: (
            4,
            "The cosine of the angle between func(x) and any column of the\n  Jacobian is at most"
            f" {gtol:f} in absolute value",
        ),
        2: (1, fell),
        3: (2, f"T{moved} most {xtol:f}"),
        4: (3, f"{fell} and t{moved} \n  most {xtol:f}"),
    }
    return words[status]


def _covariance(
    result: OptimizeResult, unit: float, absolute: bool, names: list[str], *, everywhere: bool
) -> np.ndarray:
    """Of the parameters, with a warning where it is not known."""
    m, k = result.jac.shape
    R = np.linalg.qr(result.jac, mode="r")
    noise = 4 * unit if unit > EPS else EPS * max(m, 64)
    inverse, loose = inverse_of(np, np.pad(R, ((0, k - len(R)), (0, 0))), np.asarray(noise))
    why = ""
    if loose.any():
        which = ", ".join(f"`{names[i]}`" for i in np.flatnonzero(loose))
        verb = "has no effect of its" if loose.sum() == 1 else "have no effect of their"
        why = f": {which} {verb} own on the residuals at the solution."
        infinite = np.ones((k, k), bool) if everywhere else loose[:, None] | loose
        inverse = np.where(infinite, np.inf, inverse)
    if not absolute and m > k:
        variance = 2 * result.cost / (m - k)
        inverse = inverse * variance if variance > 0 else np.where(np.isinf(inverse), np.inf, 0.0)
    elif not absolute:
        inverse = np.full((k, k), np.inf)
        why = why or f": {m} points for {k} parameters leave their scatter unknown."
    if why:
        warnings.warn(
            "Covariance of the parameters could not be estimated" + why,
            OptimizeWarning,
            stacklevel=3,
        )
    return inverse


def _factors(result: OptimizeResult, method: str) -> dict[str, Any]:
    """The pivoted QR factors that MINPACK gives, for "lm"."""
    if method != "lm":
        return {}
    Q, R, order = qr(result.jac, mode="economic", pivoting=True)
    fjac = np.zeros(result.jac.T.shape)
    fjac[:, : R.shape[0]] = R.T
    return {"fjac": fjac, "ipvt": (order + _first()).astype(np.int32), "qtf": Q.T @ result.fun}


@cache
def _first() -> int:
    """The number that SciPy's `ipvt` gives the first column: 1, and 0 in versions whose MINPACK is
    in C.
    """
    return int(leastsq(lambda x: x, [1.0], full_output=True)[2]["ipvt"][0])
