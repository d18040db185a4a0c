"""Constant folding on the host: values that depend on constants and sizes alone, mostly positions.

Integers are computed by NumPy in the program's own dtypes, in which NumPy and XLA wrap alike; all
other dtypes by JAX on the CPU, with the operation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ..._jax.typed import DType
from ..dims import evaluate
from ..interpreter import Op, PaddedInterpreter, mentions
from ..rules import RULES
from ..typed_jax import dtypes
from .graph import Value


def _selected(which: Any, *cases: Any) -> Any:
    return np.select([which == i for i in range(len(cases))], cases)


def _clamped(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _same(x: jax.Array) -> Any:
    return x


_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "not": np.invert,
    "select_n": _selected,
    "clamp": _clamped,
    "copy": _same,
    "stop_gradient": _same,
}


def is_integer(dtype: DType) -> bool:
    """Return whether NumPy computes with a dtype as XLA does: bools, and integers, which wrap
    alike.
    """
    return dtype == np.bool_ or (
        dtypes.issubdtype(dtype, np.integer) and np.dtype(dtype).kind in "iu"
    )


class Evaluator:
    """Evaluator of known values, memoised."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Value, Any]] = {}

    def __call__(self, value: Value) -> Any:
        """The value as an array on the host."""
        if value.const is not None:
            return _on_host(value.const)
        held = self._done.get(id(value))
        if held is None:
            # The entry holds the value: an id is unique only while its object lives.
            held = self._done[id(value)] = (value, self._made(value))
        return held[1]

    def _made(self, value: Value) -> Any:
        operands = [self(read) for read in value.reads]
        if is_integer(value.dtype) and all(is_integer(read.dtype) for read in value.reads):
            # Wrapping is meant: NumPy warns of it for scalars.
            with np.errstate(over="ignore"):
                out = _by_numpy(value, operands)
            if out is not None:
                return np.asarray(out).astype(value.dtype, copy=False)
        return _by_jax(value, operands)


def _by_numpy(value: Value, xs: list[Any]) -> Any:
    params, name = value.params, value.name
    if name == "dim_as_value":
        return np.asarray(evaluate(params["dim"], value.scope))
    if name == "iota":
        shape = [1] * len(value.shape)
        shape[params["dimension"]] = -1
        return np.broadcast_to(
            np.arange(value.shape[params["dimension"]], dtype=value.dtype).reshape(shape),
            value.shape,
        )
    if name in ("reshape", "squeeze", "expand_dims"):
        return xs[0].reshape(value.shape)
    if name == "broadcast_in_dim":
        shape = [1] * len(value.shape)
        for axis, size in zip(params["broadcast_dimensions"], xs[0].shape, strict=True):
            shape[axis] = size
        return np.broadcast_to(xs[0].reshape(shape), value.shape)
    if name == "convert_element_type":
        return xs[0].astype(value.dtype)
    if name == "concatenate":
        return np.concatenate(xs, params["dimension"])
    if name == "transpose":
        return np.transpose(xs[0], params["permutation"])
    if name == "rev":
        return np.flip(xs[0], params["dimensions"])
    function = _ELEMENTWISE.get(name)
    return None if function is None else function(*xs)


def _by_jax(value: Value, xs: list[Any]) -> Any:
    """Evaluate the operation with JAX, by its rule if a symbolic size occurs in it."""
    if value.name == "dim_as_value":
        return np.asarray(evaluate(value.params["dim"], value.scope)).astype(value.dtype)

    # Evaluated now, also inside of an outer trace.
    walk, op = PaddedInterpreter(value.scope, value.scope, RULES), Op(value.eqn)
    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        out = (
            RULES[op.name].pad(walk, op, xs)
            if mentions(op) and op.name in RULES
            else walk.bind(op, xs)
        )
        return _on_host(out[value.index])


def _on_host(x: jax.Array) -> Any:
    """Convert an array to NumPy; random keys, for which NumPy has no dtype, stay as they are."""
    return x if dtypes.issubdtype(x.dtype, dtypes.extended) else np.asarray(x)
