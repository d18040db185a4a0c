"""What a user can get wrong in the arguments, each with its own error: what came, the rule, the
fix.

Everything here sees concrete values on the host, where a check must cost no more than a microsecond
or two. What the functions return is checked in `_shapes.py`, what only the numbers show in
`_outcome.py`.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._fail import fail
from ._losses import EPS, LOSSES

TOLERANCES = ("ftol", "xtol", "gtol")
NUMBERS = (*TOLERANCES, "f_scale", "max_nfev")
PLAIN = (float, int, type(None))
FEW = 32  # numbers that are looked at one by one


def numbers(values: Any, name: str, rule: str, fix: str) -> np.ndarray:
    """Real numbers as an array of float64."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        fail(f"{name} is {values!r}.", rule, fix)
    if array.dtype == np.float64:
        return array
    if array.dtype.kind == "c":
        fail(f"{name} must be real.", rule, fix)  # SciPy's words, and its class
    if not (array.dtype.kind in "fiub" or jnp.issubdtype(array.dtype, jnp.floating)):
        fail(f"{name} has dtype {array.dtype}.", rule, fix, TypeError)
    return array.astype(np.float64)


def start(x0: Any, name: str) -> np.ndarray:
    """The start as float64, of rank 1, or 2 for a batch of fits."""
    x = numbers(
        x0,
        f"`{name}`",
        "The parameters are real numbers.",
        "pass numbers; fit real and imaginary parts as two parameters.",
    )
    if x.ndim == 0:
        x = x[None]
    if x.ndim > 2 or x.size == 0:
        fail(
            f"`{name}` has shape {x.shape}.",
            "It is one number per parameter, and for a batch of fits has one more leading axis.",
            "reshape it.",
        )
    return x


def levels(values: Any) -> tuple[float, ...]:
    """Probabilities of intervals."""
    rule, fix = "A level is a probability, between 0 and 1.", "write 0.95, or (0.6827, 0.9545)."
    array = np.atleast_1d(numbers(values, "`levels`", rule, fix))
    if array.ndim != 1 or not ((array > 0) & (array < 1)).all():
        fail(f"`levels` is {values!r}.", rule, fix)
    return tuple(array.tolist())


def converged(result: Any, rule: str) -> None:
    """That a result is of one fit that met a tolerance."""
    if np.ndim(result.cost) or not result.success:
        fail(
            "The result is not of one fit that met a tolerance.",
            rule,
            "take one fit of a batch, or raise `max_nfev`.",
        )


def pair(bounds: Any, name: str = "bounds") -> tuple[Any, Any]:
    """Lower and upper bounds, from a pair or `scipy.optimize.Bounds`."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return bounds.lb, bounds.ub
    if (
        not isinstance(bounds, tuple | list | np.ndarray | jax.Array)
        or getattr(bounds, "ndim", 1) == 0
        or len(bounds) != 2
    ):
        fail(
            f"`{name}` is {bounds!r}.",
            "It is a pair: lower, upper.",
            "pass (lower, upper), each a number or one per parameter.",
        )
    return bounds[0], bounds[1]


def box(bounds: Any, x0: np.ndarray, start: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Lower and upper bounds in the shape of x0, or `None` if all are infinite."""
    sides = []
    for name, side in zip(("lower", "upper"), pair(bounds), strict=True):
        side = numbers(
            side,
            f"The {name} bound",
            "Bounds are numbers or infinite.",
            "use -inf or inf where there is no bound.",
        )
        if side.shape not in ((), x0.shape, x0.shape[-1:]):
            fail(
                f"The {name} bound has shape {side.shape} and `{start}` has {x0.shape}.",
                "A bound is a number or one per parameter.",
                "make the shapes agree.",
            )
        sides.append(side if side.shape == x0.shape else np.broadcast_to(side, x0.shape))
    low, high = sides
    if x0.size <= FEW:
        # Python's own numbers, since each call of NumPy takes as long as all of them
        least, most = low.ravel().tolist(), high.ravel().tolist()
        rows = zip(least, x0.ravel().tolist(), most, strict=True)
        within = all(a <= x <= b and a != b for a, x, b in rows)
        is_open = all(a == -np.inf for a in least) and all(b == np.inf for b in most)
    else:
        within = bool(((low <= x0) & (x0 <= high) & (low < high)).all())
        is_open = bool((low == -np.inf).all() and (high == np.inf).all())
    if not within:
        _feasible(low, high, x0, start)
    return None if is_open else (low, high)


def _feasible(low: np.ndarray, high: np.ndarray, x0: np.ndarray, start: str) -> None:
    """Bounds are numbers and in order, and the start, if it is numbers, lies between them."""
    if np.isnan(low).any() or np.isnan(high).any():
        fail(
            "A bound is NaN.",
            "Bounds are numbers or infinite.",
            "use -inf or inf where there is no bound.",
        )
    if (low >= high).any():
        i = _first(low >= high)
        fail(
            f"Bounds of {start}{list(i)} are reversed or equal: lower {low[i]}, upper {high[i]}.",
            "Each lower bound is below its upper one.",
            f"swap them; to hold a parameter fixed, take it out of `{start}`.",
        )
    outside = (x0 < low) | (x0 > high)
    if outside.any():
        i = _first(outside)
        fail(
            f"{start}{list(i)} = {x0[i]} is infeasible: its bounds are {low[i]} and {high[i]}.",
            "The start lies within the bounds.",
            f"move the start, e.g. with np.clip({start}, lower, upper), or widen the bounds.",
        )


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def scale(x_scale: Any, x0: np.ndarray) -> tuple[bool, np.ndarray | None]:
    """Whether the Jacobian sets the scale, and if not, the scale of each parameter."""
    if isinstance(x_scale, str):
        if x_scale == "jac":
            return True, None
        fail(
            f"`x_scale` is {x_scale!r}.",
            'It is "jac", a number, or one per parameter.',
            'write "jac" or numbers.',
        )
    values = numbers(
        x_scale,
        "`x_scale`",
        'It is "jac", a number, or one per parameter.',
        'write "jac" or numbers.',
    )
    if values.shape not in ((), x0.shape[-1:]):
        fail(
            f"`x_scale` has shape {values.shape} and `x0` has {x0.shape}.",
            "It is a number or one per parameter.",
            "make the shapes agree.",
        )
    if not (np.isfinite(values) & (values > 0)).all():
        fail(
            f"`x_scale` is {values}.",
            "A scale is positive and finite.",
            "pass typical sizes of the parameters.",
        )
    return False, np.broadcast_to(values, x0.shape[-1:])


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """`NUMBERS` as Python's own, which have a hash."""
    return tuple(
        v if type(v) in PLAIN else _number(v, name) for name, v in zip(NUMBERS, values, strict=True)
    )


def _number(value: Any, name: str) -> float:
    if (
        isinstance(value, str | bool)
        or np.ndim(value) != 0
        or np.asarray(value).dtype.kind not in "fiu"
    ):
        fail(f"`{name}` is {value!r}.", "It is one number.", "pass a number.", TypeError)
    return float(value)


def controls(
    ftol: float | None, xtol: float | None, gtol: float | None, f_scale: float, max_nfev: float
) -> tuple[float, ...]:
    """Tolerances (0 for `None`), scale of the loss and limit, as floats."""
    tolerances = dict(zip(TOLERANCES, (ftol or 0.0, xtol or 0.0, gtol or 0.0), strict=True))
    for name, value in tolerances.items():
        if not value >= 0:
            fail(
                f"`{name}` is {value}.",
                "A tolerance is not negative.",
                "pass a positive number, or None to switch the test off.",
            )
    if max(tolerances.values()) < EPS:
        fail(
            "No tolerance is above the rounding unit.",
            "At least one of `ftol`, `xtol`, `gtol` must be able to stop the fit.",
            "pass one, such as 1e-8.",
        )
    if f_scale is None or not (np.isfinite(f_scale) and f_scale > 0):
        fail(
            f"`f_scale` is {f_scale}.",
            "It is a positive size of a residual.",
            "pass the size at which residuals become outliers.",
        )
    if not (max_nfev >= 1 and float(max_nfev).is_integer()):
        fail(
            f"`max_nfev` is {max_nfev}.",
            "It is a whole number; at least the start is evaluated.",
            "pass a positive integer or None.",
        )
    return (*tolerances.values(), float(f_scale), float(max_nfev))


def too_fine(tolerances: tuple[float, ...]) -> tuple[str, ...]:
    """What to warn of: tolerances that no change of a float64 can meet."""
    return tuple(
        f"`{name}` = {value:.2e} is below the rounding unit {EPS:.2e} of float64.\nNo change that"
        " small can be told from none.\nFix: pass a larger number, or None to switch the test off."
        for name, value in zip(TOLERANCES, tolerances, strict=True)
        if 0 < value < EPS
    )


def further(args: Any, kwargs: Any) -> None:
    """The further arguments as a tuple and a mapping."""
    if not isinstance(args, tuple | list):
        fail(
            f"`args` is of type {type(args).__name__}.",
            "It holds the arguments after x, in order.",
            "pass a tuple: (value,) for one.",
            TypeError,
        )
    if type(kwargs) is not dict and not isinstance(kwargs, Mapping):
        fail(
            f"`kwargs` is of type {type(kwargs).__name__}.",
            "It holds arguments by name.",
            "pass a dict.",
            TypeError,
        )


def functions(fun: Any, jac: Any, loss: Any) -> None:
    """Callables, and a loss that is known."""
    if not callable(fun):
        fail(
            f"`fun` is {fun!r}.",
            "It is a function of the parameters.",
            "pass a callable.",
            TypeError,
        )
    if jac is not None and not callable(jac):
        fail(
            f"`jac` is {jac!r}.",
            "Derivatives are exact here: by automatic differentiation, or yours.",
            "leave `jac` out, or pass a callable.",
        )
    if not callable(loss) and loss not in LOSSES:
        fail(
            f"`loss` is {loss!r}.",
            f"It is one of {', '.join(LOSSES)}, or a function of z = (f / f_scale)^2.",
            "choose one of these.",
        )


def counted(mask: Any, x0: np.ndarray) -> np.ndarray:
    """The mask, which leaves every fit enough points."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        fail(
            f"`mask` has dtype {mask.dtype}.",
            "It says of every point whether it counts: True or False.",
            "pass booleans, e.g. mask=weights > 0; indices of points are not a mask.",
            TypeError,
        )
    if mask.ndim == 0 or mask.ndim > x0.ndim or mask.shape[:-1] not in ((), x0.shape[:-1]):
        fail(
            f"`mask` has shape {mask.shape} for a start of shape {x0.shape}.",
            "The mask has one entry per residual; in a batch it may have a row for each fit.",
            "make the shapes agree.",
        )
    k = x0.shape[-1]
    left = mask.sum(axis=-1).max()  # in a batch a fit that has too few fails alone
    if left < k:
        fail(
            f"The mask leaves {left} points for {k} parameters.",
            "A fit needs at least as many points as parameters.",
            "mask fewer points or hold parameters fixed.",
        )
    return mask
