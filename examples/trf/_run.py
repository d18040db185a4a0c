"""From what the user gave to a result: validate, choose the program, run it, wrap the numbers.

This is the host's share of every call, so what can be kept from the last call is kept.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from examples.trf import _check
from examples.trf._problem import Data, Setup
from examples.trf._program import SCALARS, fit, fit_batch
from examples.trf._result import Result

UNBOUNDED = (-np.inf, np.inf)
STATUS, RESOLUTION = SCALARS.index("status"), SCALARS.index("resolution")
Numbers = tuple[float | None, float | None, float | None, float, int | None]


@dataclass(frozen=True)
class Request:
    """What the user asked for that is not an array."""

    fun: Callable[..., Any]
    jac: Callable[..., Any] | None
    loss: str | Callable[..., Any]
    scale_by_jac: bool
    history: bool
    mapped: tuple[str, ...]


def run(
    request: Request, x0: Any, bounds: Any, x_scale: Any, mask: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], numbers: Numbers
) -> Result:
    """Fit, in float64 whatever the global flag says, under a trace or not."""
    *tolerances, f_scale, max_nfev = numbers
    args, kwargs = tuple(_as_data(arg) for arg in args), {name: _as_data(value) for name, value in kwargs.items()}
    with jax.enable_x64(True):
        under_trace = traced((x0, bounds, x_scale, mask, args, kwargs, numbers)) or closes_over_tracer(request.fun)
        if under_trace:
            args, kwargs = jax.tree.map(_widened, (args, kwargs))
            x0 = jnp.atleast_1d(jnp.asarray(x0, jnp.float64))
            box = None if bounds is UNBOUNDED else tuple(jnp.broadcast_to(jnp.asarray(side, x0.dtype), x0.shape) for side in bounds)
            scale = None if x_scale is None else jnp.broadcast_to(jnp.asarray(x_scale, x0.dtype), x0.shape[-1:])
            limit = 100 * x0.shape[-1] if max_nfev is None else max_nfev
            packed = jnp.stack([jnp.asarray(number or 0.0, x0.dtype) for number in (*tolerances, f_scale, limit)])
        else:
            x0 = _check.start(x0)
            box = None if bounds is UNBOUNDED else _check.box(bounds, x0)
            scale = _check.scale(x_scale, x0)
            mask = _counted(mask, x0)
            limit = 100 * x0.shape[-1] if max_nfev is None else max_nfev
            packed = controls(*tolerances, f_scale, limit)
        setup = Setup(request.fun, request.jac, request.loss, box is not None, request.scale_by_jac, int(limit) if request.history else None)
        data = Data(*(box or (None, None)), scale, packed, mask, args, kwargs)
        result = _fitted(setup, x0, data, request)
        if under_trace:
            return result
    host = result.on_host()
    _check.outcome(host.packed[..., STATUS], host.packed[..., RESOLUTION].max(), tolerances)
    return host


@lru_cache(maxsize=256)
def controls(*numbers: float | None) -> jax.Array:
    """Check the numbers that steer the solver and put them on the device, once for each set of values."""
    return jnp.asarray(_check.controls(*numbers))


def traced(tree: Any) -> bool:
    """Tell whether any array is a stand-in of an outer trace."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def closes_over_tracer(fun: Any) -> bool:
    """Tell whether a function defined inside an outer trace holds one of its stand-ins."""
    cells = getattr(getattr(fun, "model", fun), "__closure__", None) or ()
    return traced([cell.cell_contents for cell in cells])


def _as_data(value: Any) -> Any:
    """Python floats and lists of numbers are data, not part of the program."""
    return np.asarray(value, dtype=np.float64) if isinstance(value, float | list) else value


def _widened(leaf: Any) -> Any:
    """Stand-ins of a trace in float64: one of a float32 trace that holds float64 values is refused by `jax.jit` under the scoped flag."""
    if isinstance(leaf, Tracer) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.asarray(leaf, jnp.float64)
    return leaf


def _counted(mask: Any, x0: np.ndarray) -> np.ndarray | None:
    if mask is None:
        return None
    mask = np.asarray(mask, dtype=bool)
    _check.counted(mask, x0.shape[-1])
    return mask


def _fitted(setup: Setup, x0: Any, data: Data, request: Request) -> Result:
    """Run the program for one fit or for a batch."""
    if x0.ndim == 1:
        packed, records = fit(setup, x0, data)
        return Result(packed, records, setup, None, data, None)
    names = argument_names(request.fun, data, request.mapped)
    own = Data(
        lower=True, upper=True, x_scale=False, controls=False, mask=data.mask is not None and data.mask.ndim == 2,
        args=tuple(name in request.mapped for name in names), kwargs={name: name in request.mapped for name in data.kwargs},
    )  # fmt: skip
    mapped, shared = eqx.partition(data, own)
    packed, records = fit_batch(setup, x0, mapped, shared)
    return Result(packed, records, setup, mapped, shared, None)


def argument_names(fun: Callable[..., Any], data: Data, mapped: tuple[str, ...]) -> list[str]:
    """Names of the positional arguments in `args`."""
    parameters = [p.name for p in inspect.signature(fun).parameters.values()][1:]
    names = [parameters[i] if i < len(parameters) else "" for i in range(len(data.args))]
    for name in mapped:
        if name not in names and name not in data.kwargs:
            _check.fail(f"`mapped` names {name!r}.", f"`fun` is called with {', '.join([*names, *data.kwargs]) or 'no further arguments'}.",
                        "name arguments that are passed in `args` or `kwargs`.")  # fmt: skip
    return names
