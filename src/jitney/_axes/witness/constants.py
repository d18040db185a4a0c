"""Constant folding on the host: values that depend on constants and sizes alone, mostly positions.

Integers are computed by NumPy in the program's own dtypes, in which NumPy and XLA wrap alike; all
other dtypes by JAX on the CPU, with the operation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from ..._jax.trees import words_of_keys
from ..._jax.typed import Array, DType, NumPyArray
from ..dims import evaluate
from ..interpreter import Op, PaddedInterpreter, mentions
from ..rules import RULES
from ..typed_jax import dtypes
from .graph import Value


def _select(which: NumPyArray, *cases: NumPyArray) -> NumPyArray:
    conditions = [which == i for i in range(len(cases))]
    return np.select(conditions, cases)


def _clamp(low: NumPyArray, x: NumPyArray, high: NumPyArray) -> NumPyArray:
    return np.minimum(np.maximum(x, low), high)


def _identity(x: NumPyArray) -> NumPyArray:
    return x


_ELEMENTWISE: Mapping[str, Callable[..., NumPyArray]] = {
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
    "select_n": _select,
    "clamp": _clamp,
    "copy": _identity,
    "stop_gradient": _identity,
}


def is_integer(dtype: DType) -> bool:
    """Return whether NumPy computes with a dtype as XLA does: bools, and integers, which wrap
    alike.
    """
    if dtype == np.bool_:
        return True
    return dtypes.issubdtype(dtype, np.integer) and np.dtype(dtype).kind in "iu"


class Evaluator:
    """Evaluator of known values, memoised."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Value, Array]] = {}

    def __call__(self, value: Value) -> Array:
        """The value as an array on the host."""
        if value.const is not None:
            return _on_host(value.const)
        entry = self._done.get(id(value))
        if entry is None:
            # The entry holds the value: an id is unique only while its object lives.
            entry = self._done[id(value)] = (value, self._evaluate(value))
        return entry[1]

    def _evaluate(self, value: Value) -> Array:
        operands = [self(read) for read in value.reads]
        own = [value.dtype, *(read.dtype for read in value.reads)]
        if all(map(is_integer, own)):
            # Wrapping is meant: NumPy warns of it for scalars.
            with np.errstate(over="ignore"):
                out = _by_numpy(value, operands)
            if out is not None:
                return np.asarray(out).astype(value.dtype, copy=False)
        return _by_jax(value, operands)


def _by_numpy(value: Value, xs: Sequence[Array]) -> Array | None:
    params = value.params
    name = value.name
    if name == "dim_as_value":
        return np.asarray(evaluate(params["dim"], value.scope))
    if name == "iota":
        axis = params["dimension"]
        shape = [1] * len(value.shape)
        shape[axis] = -1
        positions = np.arange(value.shape[axis], dtype=value.dtype)
        return np.broadcast_to(positions.reshape(shape), value.shape)
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


def _by_jax(value: Value, xs: list[Array]) -> Array:
    """Evaluate the operation with JAX, by its rule if a symbolic size occurs in it."""
    if value.name == "dim_as_value":
        size = evaluate(value.params["dim"], value.scope)
        return np.asarray(size).astype(value.dtype)

    # Evaluated now, also inside of an outer trace.
    op = Op(value.equation)
    walk = PaddedInterpreter(value.scope, value.scope, RULES)
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.ensure_compile_time_eval(), jax.default_device(cpu):
        if mentions(op) and op.name in RULES:
            out = RULES[op.name].pad(walk, op, xs)
        else:
            out = walk.bind(op, xs)
        return _on_host(out[value.index])


def _on_host(x: Array) -> Array:
    """Convert an array to NumPy; random keys, for which NumPy has no dtype, stay as they are."""
    if dtypes.issubdtype(x.dtype, dtypes.extended):
        return x
    return np.asarray(x)


def equal_bits(a: Array, b: Array) -> bool:
    """Return whether two constants are equal to the bit."""
    if a is b:
        return True
    if np.shape(a) != np.shape(b):
        return False
    x, y = _contiguous(a), _contiguous(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return np.array_equal(_as_bytes(x), _as_bytes(y))


def _as_bytes(x: NumPyArray) -> NumPyArray:
    return x.reshape(-1).view(np.uint8)


def _contiguous(x: Array) -> NumPyArray:
    dtype = getattr(x, "dtype", np.float32)
    is_key = dtypes.issubdtype(dtype, dtypes.prng_key)
    return np.ascontiguousarray(words_of_keys(x) if is_key else x)
