"""From what the user gave to a result: validate, choose the program, run it, wrap the numbers.

This is the host's share of every call, so all that depends on functions and options alone is kept from the last call.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from examples.trf import _check
from examples.trf._losses import EPS
from examples.trf._problem import Data, Setup
from examples.trf._program import SCALARS, Programs, programs
from examples.trf._result import Result

UNBOUNDED = (-np.inf, np.inf)
STATUS, RESOLUTION = SCALARS.index("status"), SCALARS.index("resolution")


@dataclass(frozen=True)
class Request:
    """All arguments of `least_squares` that are not arrays of the problem."""

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    loss: str | Callable[..., Any]
    x_scale: Any
    history: bool
    numbers: tuple[Any, Any, Any, Any, Any]  # ftol, xtol, gtol, f_scale, max_nfev
    mapped: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Prepared:
    """What calls with the same functions and options share."""

    programs: Programs
    controls: jax.Array | None
    finest: float


def run(request: Request, x0: Any, bounds: Any, mask: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Result:
    """Fit, in float64 whatever the global flag says, under a trace or not."""
    values = (x0, bounds, request.x_scale, mask, *args, *kwargs.values(), *request.numbers)
    traced = any_traced(*values) or closes_over_tracer(request.fun)
    args = tuple(_as_data(arg) for arg in args)
    kwargs = {name: _as_data(value) for name, value in kwargs.items()}
    with jax.enable_x64(True):
        return (_run_traced if traced else _run)(request, x0, bounds, mask, args, kwargs)


def _run(request: Request, x0: Any, bounds: Any, mask: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Result:
    """Fit concrete values: check them, and bring the result to the host."""
    x0 = _check.start(x0)
    box = None if bounds is UNBOUNDED else _check.box(bounds, x0)
    by_jac, scale = False, None
    if request.x_scale is not None:
        by_jac, scale = _check.scale(request.x_scale, x0)
    if mask is not None:
        mask = _check.counted(mask, x0)
    prepared = _prepared(request, box is not None, by_jac, x0.shape[-1])
    lower, upper = box or (None, None)
    data = Data(lower, upper, scale, prepared.controls, mask, args, kwargs)
    packed, records, mapped, data = _called(prepared.programs, x0, data, request)
    packed = np.asarray(packed)
    _check.outcome(packed, STATUS, RESOLUTION, prepared.finest, x0)
    return Result(packed, records, prepared.programs, mapped, data, None)


def _run_traced(request: Request, x0: Any, bounds: Any, mask: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Result:
    """Fit inside an outer trace: nothing is known but shapes."""
    args, kwargs = jax.tree.map(_widened, (args, kwargs))
    x0 = jnp.atleast_1d(jnp.asarray(x0, jnp.float64))
    lower = upper = scale = None
    if bounds is not UNBOUNDED:
        lower, upper = (jnp.broadcast_to(jnp.asarray(side, x0.dtype), x0.shape) for side in bounds)
    by_jac = isinstance(request.x_scale, str)
    if request.x_scale is not None and not by_jac:
        scale = jnp.broadcast_to(jnp.asarray(request.x_scale, x0.dtype), x0.shape[-1:])
    *others, max_nfev = request.numbers
    limit = 100 * x0.shape[-1] if max_nfev is None else max_nfev
    controls = jnp.stack([jnp.asarray(0.0 if number is None else number, x0.dtype) for number in (*others, limit)])
    records = int(limit) if request.history else None
    made = programs(Setup(request.fun, request.jac, request.loss, lower is not None, by_jac, records))
    packed, rows, mapped, data = _called(made, x0, Data(lower, upper, scale, controls, mask, args, kwargs), request)
    return Result(packed, rows, made, mapped, data, None)


def _prepared(request: Request, bounded: bool, by_jac: bool, k: int) -> Prepared:
    """What is kept for this request; functions are kept by equality, so they must have a hash."""
    try:
        return prepare(request.fun, request.jac, request.loss, bounded, by_jac, request.history, k, request.numbers)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        _check.fail(
            f"A function or number cannot be kept: {error}.",
            "Programs are kept by their functions and options, which must be hashable.",
            "pass arrays that `fun` holds in `args`, and plain numbers for tolerances.",
            TypeError,
        )


@lru_cache(maxsize=256)
def prepare(fun: Any, jac: Any, loss: Any, bounded: bool, by_jac: bool, history: bool, k: int, numbers: tuple[Any, ...]) -> Prepared:
    """Check functions and numbers, find their programs, and put the numbers on the device."""
    _check.functions(fun, jac, loss)
    *others, max_nfev = numbers
    numbers = _check.controls(*others, 100 * k if max_nfev is None else max_nfev)
    setup = Setup(fun, jac, loss, bounded, by_jac, int(numbers[-1]) if history else None)
    return Prepared(programs(setup), jnp.asarray(numbers), min(tolerance for tolerance in numbers[:3] if tolerance >= EPS))


def _called(made: Programs, x0: Any, data: Data, request: Request) -> tuple[Any, Any, Data | None, Data]:
    """Run the program for one fit or for a batch; gives the data back as the result will need it."""
    if x0.ndim == 1:
        return *made.fit(x0, data), None, data
    names = argument_names(request.fun, data, request.mapped)
    own = Data(
        lower=True, upper=True, x_scale=False, controls=False, mask=data.mask is not None and data.mask.ndim == 2,
        args=tuple(name in request.mapped for name in names), kwargs={name: name in request.mapped for name in data.kwargs},
    )  # fmt: skip
    mapped, shared = eqx.partition(data, own)
    return *made.fit_batch(x0, mapped, shared), mapped, shared


def argument_names(fun: Callable[..., Any], data: Data, mapped: tuple[str, ...]) -> list[str]:
    """Names of the positional arguments in `args`."""
    parameters = [parameter.name for parameter in inspect.signature(fun).parameters.values()][1:]
    names = [parameters[i] if i < len(parameters) else "" for i in range(len(data.args))]
    for name in mapped:
        if name not in names and name not in data.kwargs:
            _check.fail(f"`mapped` names {name!r}.", f"`fun` is called with {', '.join([*names, *data.kwargs]) or 'no further arguments'}.",
                        "name arguments that are passed in `args` or `kwargs`.")  # fmt: skip
    return names


def any_traced(*values: Any) -> bool:
    """Tell whether one of the values is a stand-in of an outer trace, or holds one."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves([v for v in values if not _is_plain(type(v))]))


@lru_cache(maxsize=1024)
def _is_plain(kind: type) -> bool:
    """Tell by its type that a value is no stand-in and holds none."""
    return issubclass(kind, np.ndarray | np.generic | jax.Array | float | int | str | NoneType) and not issubclass(kind, Tracer)


def closes_over_tracer(fun: Any) -> bool:
    """Tell whether a function that was defined inside an outer trace holds one of its stand-ins."""
    cells = getattr(getattr(fun, "model", fun), "__closure__", None)
    return cells is not None and any_traced(*(cell.cell_contents for cell in cells))


def _as_data(value: Any) -> Any:
    """Python floats and lists of numbers are data, not part of the program."""
    return np.asarray(value, dtype=np.float64) if isinstance(value, float | list) else value


def _widened(leaf: Any) -> Any:
    """Stand-ins of a trace in float64: one of a float32 trace that holds float64 values is refused by `jax.jit` under the scoped flag."""
    if isinstance(leaf, Tracer) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.asarray(leaf, jnp.float64)
    return leaf
