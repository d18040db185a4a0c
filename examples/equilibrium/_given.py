"""What callers give, checked before it is used: a mistake is a sentence with the name of what was
given, not an error from within.

NumPy reads "0.9" as a number, spreads NaN without a word and takes `True` for one. Here they are
refused.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._fail import ModelError, UnknownName, message

FINITE = "Parameters, starting points, targets and shocks are finite real numbers."
# What equations and persistence raise where they do not fit the model; all else is the user's own
# business.
FAILURES = (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError)


def shown(value: Any) -> str:
    """A value in a message, short."""
    text = repr(value).splitlines()[0] if repr(value) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def few(names: Sequence[str], most: int = 12) -> str:
    """Names with commas, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "") or "none"


def lines(title: str, rows: Mapping[str, str]) -> str:
    """A title, and names with what stands beside them below it."""
    width = max(map(len, rows), default=0)
    return "\n".join([title, *(f"  {name:{width}}  {text}" for name, text in rows.items())])


def numbers(where: str, name: str, value: Any) -> np.ndarray:
    """An array of finite float64, on the host.

    Raises:
        ModelError: It is text, an object, complex, traced or not finite.
    """
    if isinstance(value, jax.core.Tracer):
        raise ModelError(
            message(
                where,
                f"{name!r} is traced.",
                "Models are solved on the host, by programs of their own.",
                "call `solution` and `foresight`, which JAX traces and differentiates, or call this"
                " outside `jax.jit`, `jax.grad` and `jax.vmap`; `sweep` solves many draws in one"
                " program.",
            )
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # a ragged list
        array = np.asarray(None)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise ModelError(
            message(
                where,
                f"{name!r} is {shown(value)}, not a number.",
                FINITE,
                "pass a float or an array of floats.",
            )
        )
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        at = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
        place = f"[{','.join(map(str, at))}]" if at else ""
        raise ModelError(
            message(where, f"{name + place!r} is {array[at]}.", FINITE, "look where it comes from.")
        )
    return array


def number(where: str, name: str, value: Any) -> float:
    """One finite number."""
    array = numbers(where, name, value)
    if array.size != 1:
        raise ModelError(
            message(
                where, f"{name!r} has shape {array.shape}.", "It is one number.", "pass a float."
            )
        )
    return float(array.ravel()[0])


def in_float64(where: str) -> None:
    """See that JAX computes in float64, as policies and what is made of them need."""
    if not jax.config.jax_enable_x64:
        raise ModelError(
            message(
                where,
                "JAX computes in float32 here.",
                "Policies and their derivatives are computed in float64.",
                "put `with jax.enable_x64(True):` around the call, and around `jax.grad` or"
                " `jax.jit` of it.",
            )
        )


def real(where: str, name: str, value: Any) -> Any:
    """What equations or persistence return for one name: an array of numbers, traced or not."""
    kind = getattr(value, "dtype", None) if hasattr(value, "dtype") else np.asarray(value).dtype
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise ModelError(
            message(
                where,
                f"{name} is {shown(value)}.",
                "It is an array of real numbers.",
                "return numbers, or arrays of them.",
            )
        )
    return (
        value
        if isinstance(value, jax.core.Tracer) and kind == np.float64
        else jnp.asarray(value, jnp.float64)
    )


def count(where: str, name: str, value: Any, least: int) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ModelError(
            message(
                where,
                f"{name} is {shown(value)}.",
                f"It is a whole number, {least} or more.",
                f"pass {name}={least}.",
            )
        )
    return int(value)


def one_of(where: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    """A word that is known."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise ModelError(
            message(
                where,
                f"{name} is {shown(value)}.",
                f"It is {listed}.",
                f'pass {name}="{choices[0]}".',
            )
        )


def made_by(where: str, name: str, value: Any, kind: type, maker: str) -> None:
    """An object of a class."""
    if not isinstance(value, kind):
        raise ModelError(
            message(
                where,
                f"{name} is {shown(value)}.",
                f"It is what {maker} gives, a {kind.__name__}.",
                f"pass {name}={maker}.",
            )
        )


def _correction(error: Exception) -> str:
    """What to write instead of a line that raised this."""
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return "write `jax.numpy` for `numpy` in that line: `jnp.exp(x)`, not `np.exp(x)`."
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return "write `jnp.where(condition, a, b)` for `if` on a variable in that line."
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return "write `jnp.exp(x)` for `math.exp(x)` in that line, and `x` for `float(x)`."
    return "correct that line."


def called(where: str, name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call what the user wrote; what does not fit the model is told with its line."""
    try:
        return function(*args)
    except ModelError:
        raise
    except FAILURES as error:
        line = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "site-packages" not in frame.filename
        ][-1]
        text = str(error).splitlines()[0] if str(error) else "no message"
        kind = UnknownName if isinstance(error, AttributeError) else ModelError
        raise kind(
            message(
                where,
                f"{name} raised {type(error).__name__} at {Path(line.filename).name}:{line.lineno}:"
                f" {text}",
                "Equations are a function of parameters, the point of today and that of tomorrow,"
                " persistence one of parameters; JAX traces both.",
                _correction(error),
            )
        ) from error
