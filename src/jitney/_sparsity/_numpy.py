"""Values of operations on integers and booleans that are known while tracing: how positions are computed before they index.

Everything is evaluated by NumPy, because JAX would compile a program for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

Values = Sequence[Any]
np: Any = numpy
"""NumPy, whose types are partly unknown where shapes are."""


def _iota(_values: Values, params: Mapping[str, Any]) -> Any:
    shape, axis = params["shape"], params["dimension"]
    sizes = [shape[i] if i == axis else 1 for i in range(len(shape))]
    return np.broadcast_to(np.arange(shape[axis], dtype=params["dtype"]).reshape(sizes), shape)


def _broadcast(values: Values, params: Mapping[str, Any]) -> Any:
    sizes = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], np.shape(values[0]), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(values[0], sizes), params["shape"])


def _select(values: Values, _params: Mapping[str, Any]) -> Any:
    which, *cases = values
    return np.choose(np.asarray(which, int), cases) if np.ndim(which) else cases[int(which)]


def _slice(values: Values, params: Mapping[str, Any]) -> Any:
    steps = params["strides"] or (1,) * np.ndim(values[0])
    return values[0][tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _rev(values: Values, params: Mapping[str, Any]) -> Any:
    return np.flip(values[0], params["dimensions"])


def _divide(values: Values, _params: Mapping[str, Any]) -> Any:
    a, b = map(np.asarray, values)
    if a.dtype.kind == "f":
        return a / b
    whole = np.abs(a) // np.maximum(np.abs(b), 1)  # towards zero, as XLA has it
    return np.where(b == 0, -1, np.where((a < 0) != (b < 0), -whole, whole)).astype(a.dtype)


def _remainder(values: Values, _params: Mapping[str, Any]) -> Any:
    a, b = map(np.asarray, values)
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _plain(fn: Callable[..., Any]) -> Callable[[Values, Mapping[str, Any]], Any]:
    return lambda values, _: fn(*values)


KNOWN: Mapping[str, Callable[[Values, Mapping[str, Any]], Any]] = {
    **{name: _plain(getattr(np, name)) for name in ("sign", "floor", "abs", "square")},
    **{name: _plain(fn) for name, fn in {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
        "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "copy": np.asarray, "copy_p": np.asarray, "stop_gradient": np.asarray,
    }.items()},
    "div": _divide,
    "rem": _remainder,
    "integer_pow": lambda values, params: np.power(values[0], params["y"]),
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "select_n": _select,
    "slice": _slice,
    "rev": _rev,
    "clamp": lambda values, _: np.clip(values[1], values[0], values[2]),
    "concatenate": lambda values, params: np.concatenate(values, params["dimension"]),
    "convert_element_type": lambda values, params: np.asarray(values[0]).astype(params["new_dtype"]),
    "reshape": lambda values, params: np.reshape(values[0], params["new_sizes"]),
    "squeeze": lambda values, params: np.squeeze(values[0], tuple(params["dimensions"])),
    "expand_dims": lambda values, params: np.expand_dims(values[0], tuple(params["dimensions"])),
    "transpose": lambda values, params: np.transpose(values[0], params["permutation"]),
}  # fmt: skip
"""Name of a primitive -> its value, from known operands and its parameters."""
