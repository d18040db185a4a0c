"""What a user can get wrong, each with its own error: what came, the rule, the fix.

`check_shapes` runs while a program is traced, the rest on concrete values on the host, where a check must cost no more than a
microsecond or two.
"""

import warnings
from typing import Any, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from examples.trf._losses import EPS, LOSSES
from examples.trf._problem import Data, Setup, residual_type


def fail(what: str, rule: str, fix: str, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise an error in three sentences."""
    raise kind(f"{what}\n{rule}\nFix: {fix}")


def start(x0: Any) -> np.ndarray:
    """x0 as float64, of rank 1, or 2 for a batch of fits."""
    x = np.asarray(x0)
    if x.dtype != np.float64:
        if x.dtype.kind not in "fiub":
            fail(
                f"`x0` has dtype {x.dtype}.",
                "The parameters are real numbers.",
                "pass numbers; fit real and imaginary parts as two parameters.",
                TypeError,
            )
        x = x.astype(np.float64)
    if x.ndim == 0:
        x = x[None]
    if x.ndim > 2 or x.size == 0:
        fail(
            f"`x0` has shape {x.shape}.",
            "It is one number per parameter, and for a batch of fits has one more leading axis.",
            "reshape it.",
        )
    return x


def box(bounds: Any, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower and upper bounds in the shape of x0, or `None` if all are infinite."""
    if hasattr(bounds, "lb"):  # scipy.optimize.Bounds
        bounds = (bounds.lb, bounds.ub)
    if len(bounds) != 2:
        fail(
            f"`bounds` has {len(bounds)} elements.",
            "It is a pair: lower, upper.",
            "pass (lower, upper), each a number or one per parameter.",
        )
    sides = []
    for name, side in zip(("lower", "upper"), bounds, strict=True):
        side = np.asarray(side, dtype=np.float64)
        if side.shape not in ((), x0.shape, x0.shape[-1:]):
            fail(
                f"The {name} bound has shape {side.shape} and `x0` has {x0.shape}.",
                "A bound is a number or one per parameter.",
                "make the shapes agree.",
            )
        sides.append(np.broadcast_to(side, x0.shape))
    low, high = sides
    if np.isnan(low).any() or np.isnan(high).any():
        fail("A bound is NaN.", "Bounds are numbers or infinite.", "use -inf or inf where there is no bound.")
    if (low >= high).any():
        i = _first(low >= high)
        fail(f"Bounds of x0{list(i)} are reversed or equal: lower {low[i]}, upper {high[i]}.", "Each lower bound is below its upper one.",
             "swap them; to hold a parameter fixed, take it out of `x0`.")  # fmt: skip
    outside = (x0 < low) | (x0 > high)
    if outside.any():
        i = _first(outside)
        fail(f"x0{list(i)} = {x0[i]} is infeasible: its bounds are {low[i]} and {high[i]}.", "The start lies within the bounds.",
             "move the start, e.g. with np.clip(x0, lower, upper), or widen the bounds.")  # fmt: skip
    return None if np.isneginf(low).all() and np.isposinf(high).all() else (low, high)


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def scale(x_scale: Any, x0: np.ndarray) -> tuple[bool, np.ndarray | None]:
    """Whether the Jacobian sets the scale, and if not, the scale of each parameter."""
    if isinstance(x_scale, str):
        if x_scale == "jac":
            return True, None
        fail(f"`x_scale` is {x_scale!r}.", 'It is "jac", a number, or one per parameter.', 'write "jac" or numbers.')
    values = np.asarray(x_scale, dtype=np.float64)
    if values.shape not in ((), x0.shape[-1:]):
        fail(
            f"`x_scale` has shape {values.shape} and `x0` has {x0.shape}.", "It is a number or one per parameter.", "make the shapes agree."
        )
    if not (np.isfinite(values) & (values > 0)).all():
        fail(f"`x_scale` is {values}.", "A scale is positive and finite.", "pass typical sizes of the parameters.")
    return False, np.broadcast_to(values, x0.shape[-1:])


def controls(ftol: float | None, xtol: float | None, gtol: float | None, f_scale: float, max_nfev: int) -> tuple[float, ...]:
    """Tolerances (0 for `None`), scale of the loss and limit, as floats."""
    tolerances = {"ftol": ftol or 0.0, "xtol": xtol or 0.0, "gtol": gtol or 0.0}
    for name, value in tolerances.items():
        if not value >= 0:
            fail(f"`{name}` is {value}.", "A tolerance is not negative.", "pass a positive number, or None to switch the test off.")
        if 0 < value < EPS:
            warnings.warn(
                f"`{name}` = {value:.2e} is below the rounding unit {EPS:.2e} of float64.\nNo change that small can be told from none.\n"
                "Fix: pass a larger number, or None to switch the test off.",
                stacklevel=4,
            )
    if max(tolerances.values()) < EPS:
        fail(
            "No tolerance is above the rounding unit.",
            "At least one of `ftol`, `xtol`, `gtol` must be able to stop the fit.",
            "pass one, such as 1e-8.",
        )
    if not (np.isfinite(f_scale) and f_scale > 0):
        fail(f"`f_scale` is {f_scale}.", "It is a positive size of a residual.", "pass the size at which residuals become outliers.")
    if max_nfev <= 0:
        fail(f"`max_nfev` is {max_nfev}.", "At least the start is evaluated.", "pass a positive integer or None.")
    return (*tolerances.values(), float(f_scale), float(max_nfev))


def functions(fun: Any, jac: Any, loss: Any) -> None:
    """Callables, and a loss that is known."""
    if not callable(fun):
        fail(f"`fun` is {fun!r}.", "It is a function of the parameters.", "pass a callable.", TypeError)
    if jac is not None and not callable(jac):
        fail(
            f"`jac` is {jac!r}.",
            "Derivatives are exact here: by automatic differentiation, or yours.",
            "leave `jac` out, or pass a callable.",
        )
    if not callable(loss) and loss not in LOSSES:
        fail(f"`loss` is {loss!r}.", f"It is one of {', '.join(LOSSES)}, or a function of z = (f / f_scale)^2.", "choose one of these.")


def counted(mask: Any, x0: np.ndarray) -> np.ndarray:
    """The mask, which leaves every fit enough points."""
    mask = np.asarray(mask, dtype=bool)
    k = x0.shape[-1]
    left = mask.sum(axis=-1).min()
    if left < k:
        fail(f"The mask leaves {left} points for {k} parameters.", "A fit needs at least as many points as parameters.",
             "mask fewer points or hold parameters fixed.")  # fmt: skip
    return mask


def check_shapes(setup: Setup, x: Any, data: Data) -> None:
    """Residuals in one dimension and enough of them; Jacobian and mask to match."""
    f, k = residual_type(setup, x, data), x.shape[0]
    if len(f.shape) != 1:
        fail(f"`fun` returns shape {f.shape}.", "Residuals have one axis.", "return residuals.ravel().")
    if not jnp.issubdtype(f.dtype, jnp.floating):
        fail(
            f"`fun` returns {f.dtype}.",
            "Residuals are real numbers.",
            "return real floats; stack the real and imaginary parts of complex ones.",
            TypeError,
        )
    if f.shape[0] < k:
        fail(
            f"There are {f.shape[0]} points for {k} parameters.",
            "A fit needs at least as many points as parameters.",
            "add points or hold parameters fixed.",
        )
    if data.mask is not None and data.mask.shape != f.shape:
        fail(
            f"`mask` has shape {data.mask.shape} and the residuals have {f.shape}.",
            "The mask has one entry per residual.",
            "make the shapes agree.",
        )
    if setup.jac is None:
        return
    J = eqx.filter_eval_shape(lambda x, data: jnp.asarray(setup.jac(x, *data.args, **data.kwargs)), x, data)
    if J.shape != (f.shape[0], k):
        fail(
            f"`jac` returns shape {J.shape}.",
            f"It is (points, parameters) = {(f.shape[0], k)}.",
            "return df_i / dx_j in row i and column j.",
        )


def outcome(packed: np.ndarray, status: int, resolution: int, finest: float, x0: np.ndarray) -> None:
    """A start that could be evaluated, and residuals fine enough for the tolerances."""
    bad = packed[status] < 0 if packed.ndim == 1 else (packed[:, status] < 0).any()
    if bad:
        fits = "" if packed.ndim == 1 else f" of fits {np.flatnonzero(packed[:, status] < 0).tolist()}"
        what = "Residuals or their Jacobian are" if np.isfinite(x0).all() else "`x0` is"
        fail(f"{what} not finite at the start{fits}.", "The solver needs a finite cost and slope to leave a point.",
             "move the start to where the model is defined, or leave points out with `mask`.")  # fmt: skip
    unit = packed[resolution] if packed.ndim == 1 else packed[0, resolution]
    if unit > finest:
        warnings.warn(
            f"`fun` returns residuals with a rounding unit of {unit:.1e}, and the finest tolerance is {finest:.1e}.\n"
            "A change of the cost below the rounding unit is noise, so the tolerance may never be met.\n"
            "Fix: compute the residuals in float64 (data as float64, no casts to float32), or raise the tolerances.",
            stacklevel=5,
        )
