"""From what the user gave to a result: validate, choose the program, run it, wrap the numbers.

This is the host's share of every call, so all that depends on functions and options alone is kept
from the last call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import NoneType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from . import _check, _outcome
from ._curve import Residual
from ._fail import fail
from ._held import argument_names, parameter_names
from ._losses import EPS
from ._problem import Data, Setup
from ._program import SCALARS, Programs, programs
from ._result import Result

UNBOUNDED = (-np.inf, np.inf)
STATUS, RESOLUTION, PIVOT = map(SCALARS.index, ("status", "resolution", "pivot"))


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
    quiet: bool = False  # the caller looks at what the numbers show
    cosine: bool = False  # see `Setup`


@dataclass(frozen=True, eq=False)
class Prepared:
    """What calls with the same functions and options share."""

    programs: Programs
    controls: jax.Array
    finest: float
    warnings: tuple[str, ...]


def run(
    request: Request,
    x0: Any,
    bounds: Any,
    mask: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Result:
    """Fit, in float64 whatever the global flag says, under a trace or not."""
    _check.further(args, kwargs)
    box = None if bounds is UNBOUNDED else bounds
    values = (x0, box, request.x_scale, mask, *args, *kwargs.values(), *request.numbers)
    traced = any_traced(*values) or closes_over_tracer(request.fun)
    args = tuple(map(_as_data, args))
    if kwargs:
        kwargs = {name: _as_data(value) for name, value in kwargs.items()}
    with jax.enable_x64(True):
        return (_run_traced if traced else _run)(request, x0, bounds, mask, args, kwargs)


def _run(
    request: Request,
    x0: Any,
    bounds: Any,
    mask: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Result:
    """Fit concrete values: check them, and bring the result to the host."""
    name = "p0" if isinstance(request.fun, Residual) else "x0"
    x0 = _check.start(x0, name)
    box = None if bounds is UNBOUNDED else _check.box(bounds, x0, name)
    by_jac, scale = False, None
    if request.x_scale is not None:
        by_jac, scale = _check.scale(request.x_scale, x0)
    if mask is not None:
        mask = _check.counted(mask, x0)
    prepared = _prepared(request, box is not None, by_jac, x0.shape[-1])
    lower, upper = box or (None, None)
    data = Data(lower, upper, scale, prepared.controls, mask, args, kwargs)
    for warning in prepared.warnings:
        _outcome.warn(warning)
    packed, records, mapped, shared = _called(prepared.programs, x0, data, request)
    if isinstance(packed, Tracer):
        # all that came is concrete, but the call stands in a trace or `fun` holds its stand-ins
        return Result(packed, records, prepared.programs, mapped, shared, None)
    packed = np.asarray(packed)
    result = Result(packed, records, prepared.programs, mapped, shared, None)
    _outcome.check_start(packed, STATUS, x0, name, mask, lambda: _named(request.fun, data))
    if request.quiet:
        return result
    _outcome.check_resolution(packed, RESOLUTION, prepared.finest)
    _outcome.check_determined(
        result, packed, PIVOT, lambda: parameter_names(request.fun, x0.shape[-1])
    )
    return result


def _run_traced(
    request: Request,
    x0: Any,
    bounds: Any,
    mask: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Result:
    """Fit inside an outer trace: nothing is known but shapes."""
    _check.functions(request.fun, request.jac, request.loss)
    args, kwargs = jax.tree.map(_widened, (args, kwargs))
    x0 = jnp.atleast_1d(jnp.asarray(x0, jnp.float64))
    lower = upper = scale = None
    if bounds is not UNBOUNDED:
        lower, upper = (
            jnp.broadcast_to(jnp.asarray(side, x0.dtype), x0.shape) for side in _check.pair(bounds)
        )
    by_jac = False
    if isinstance(request.x_scale, str):
        by_jac, _ = _check.scale(request.x_scale, x0)
    elif request.x_scale is not None:
        scale = jnp.broadcast_to(jnp.asarray(request.x_scale, x0.dtype), x0.shape[-1:])
    *others, max_nfev = request.numbers
    limit = 100 * x0.shape[-1] if max_nfev is None else max_nfev
    numbers = (*others, jnp.maximum(limit, 1))
    controls = jnp.stack(
        [jnp.asarray(0.0 if number is None else number, x0.dtype) for number in numbers]
    )
    mask = None if mask is None else jnp.asarray(mask)
    records = int(limit) if request.history else None
    made = programs(
        Setup(
            request.fun,
            request.jac,
            request.loss,
            lower is not None,
            by_jac,
            records,
            request.cosine,
        )
    )
    packed, rows, mapped, data = _called(
        made, x0, Data(lower, upper, scale, controls, mask, args, kwargs), request
    )
    return Result(packed, rows, made, mapped, data, None)


def _prepared(request: Request, bounded: bool, by_jac: bool, k: int) -> Prepared:
    """What is kept for this request; functions are kept by equality, so they must have a hash."""
    try:
        return prepare(
            request.fun,
            request.jac,
            request.loss,
            bounded,
            by_jac,
            request.history,
            k,
            request.numbers,
            request.cosine,
        )
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        numbers = _check.plain(request.numbers)
        if any(type(number).__hash__ is None for number in request.numbers):  # arrays of one number
            return _prepared(replace(request, numbers=numbers), bounded, by_jac, k)
        fail(
            f"A function cannot be kept: {error}.",
            "Programs are kept by their functions, which must be hashable.",
            "give the class of the callable a hash, or make it an `equinox.Module`, whose arrays"
            " are data.",
            TypeError,
        )


@lru_cache(maxsize=256)
def prepare(
    fun: Any,
    jac: Any,
    loss: Any,
    bounded: bool,
    by_jac: bool,
    history: bool,
    k: int,
    numbers: tuple[Any, ...],
    cosine: bool,
) -> Prepared:
    """Check functions and numbers, find their programs, and put the numbers on the device."""
    _check.functions(fun, jac, loss)
    *others, max_nfev = _check.plain(numbers)
    numbers = _check.controls(*others, 100 * k if max_nfev is None else max_nfev)
    records = int(numbers[-1]) if history else None
    setup = Setup(fun, jac, loss, bounded, by_jac, records, cosine)
    with jax.ensure_compile_time_eval():  # what is kept must not be a stand-in of an outer trace
        on_device = jnp.asarray(np.asarray(numbers))  # else a program converts Python's floats
    tolerances = numbers[:3]
    return Prepared(
        programs(setup),
        on_device,
        min(t for t in tolerances if t >= EPS),
        _check.too_fine(tolerances),
    )


def _called(
    made: Programs, x0: Any, data: Data, request: Request
) -> tuple[Any, Any, Data | None, Data]:
    """Run the program for one fit or for a batch; gives the data back as the result will need
    it.
    """
    if x0.ndim == 1:
        if request.mapped:
            fail(
                f"`mapped` names {', '.join(request.mapped)}, and the start is that of one fit.",
                "A batch has a row of starts for each fit.",
                "repeat the start, e.g. with np.tile(x0, (fits, 1)), or leave `mapped` out.",
            )
        return *made.fit(x0, data), None, data
    names = _mappable(request, data)
    mapped, shared = _parted(data, [name in request.mapped for name in names], request.mapped)
    return *made.fit_batch(x0, mapped, shared), mapped, shared


def _parted(data: Data, are_own: list[bool], names: tuple[str, ...]) -> tuple[Data, Data]:
    """Data of each fit, and of all; `eqx.combine` puts them together."""
    mask = data.mask
    own_mask, mask = (mask, None) if mask is not None and mask.ndim == 2 else (None, mask)
    args = list(map(_on_its_side, data.args, are_own))
    kwargs = {name: _on_its_side(data.kwargs[name], name in names) for name in data.kwargs}
    own, shared = (
        {
            "args": tuple(arg[i] for arg in args),
            "kwargs": {name: both[i] for name, both in kwargs.items()},
        }
        for i in range(2)
    )
    return (
        data._replace(x_scale=None, controls=None, mask=own_mask, **own),
        data._replace(lower=None, upper=None, mask=mask, **shared),
    )


def _on_its_side(value: Any, is_own: bool) -> tuple[Any, Any]:
    """The value and what is in its place on the other side, the first for a value of each fit."""
    # `jax.tree.map` takes as long as all else here
    nothing = None if _is_plain(type(value)) else jax.tree.map(lambda _: None, value)
    return (value, nothing) if is_own else (nothing, value)


def _mappable(request: Request, data: Data) -> tuple[str, ...]:
    """Names of the positional arguments in `args`, among which are those that `mapped` names."""
    names = _names(request.fun, len(data.args))
    for name in request.mapped:
        if name not in names and name not in data.kwargs:
            called = ", ".join(name for name in (*names, *data.kwargs) if name)
            fail(
                f"`mapped` names {name!r}.",
                f"The named arguments of `fun` that are passed are: {called or 'none'}.",
                "name arguments that are passed in `args` or `kwargs`.",
            )
    return names


@lru_cache(maxsize=256)
def _names(fun: Callable[..., Any], count: int) -> tuple[str, ...]:
    """What `argument_names` gives. The function has been hashed: a program is kept for it."""
    return tuple(argument_names(fun, count))


def _named(fun: Callable[..., Any], data: Data) -> dict[str, Any]:
    """The data as the user calls them; factors of `sigma` are not the user's."""
    names = [name or f"args[{i}]" for i, name in enumerate(argument_names(fun, len(data.args)))]
    named = {**dict(zip(names, data.args, strict=True)), **data.kwargs}
    return {
        name: value
        for name, value in named.items()
        if not (isinstance(fun, Residual) and name == "sigma")
    }


def any_traced(*values: Any) -> bool:
    """Tell whether one of the values is a stand-in of an outer trace, or holds one."""
    others = [v for v in values if not _is_plain(type(v))]
    if not others:
        return False
    leaves = jax.tree.leaves(others)
    return any(isinstance(leaf, Tracer) for leaf in leaves if not _is_plain(type(leaf)))


@lru_cache(maxsize=1024)
def _is_plain(kind: type) -> bool:
    """Tell by its type that a value is no stand-in and holds none."""
    return issubclass(
        kind, np.ndarray | np.generic | jax.Array | float | int | str | NoneType
    ) and not issubclass(kind, Tracer)


def closes_over_tracer(fun: Any) -> bool:
    """Tell whether a function that was defined inside an outer trace holds one of its stand-ins."""
    cells = getattr(getattr(fun, "model", fun), "__closure__", None)
    return cells is not None and any_traced(*(cell.cell_contents for cell in cells))


def _as_data(value: Any) -> Any:
    """Python floats, lists of numbers and other libraries' columns are data, not part of the
    program.
    """
    convert = _conversion(type(value))
    return value if convert is None else convert(value)


@lru_cache(maxsize=1024)
def _conversion(kind: type) -> Callable[[Any], np.ndarray] | None:
    """How values of a type become data, by the type alone; `None` if they stay what they are."""
    if issubclass(kind, float | list):
        return partial(np.asarray, dtype=np.float64)
    own = issubclass(kind, np.ndarray | np.generic | jax.Array | Tracer)
    return np.asarray if hasattr(kind, "__array__") and not own else None


def _widened(leaf: Any) -> Any:
    """Stand-ins of a trace in float64: one of a float32 trace that holds float64 values is refused
    by `jax.jit` under the scoped flag.
    """
    if isinstance(leaf, Tracer) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.asarray(leaf, jnp.float64)
    return leaf
