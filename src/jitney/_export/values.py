"""Static values as JSON data: plain values by content, functions, classes and enum members by name.

Two values are equal here if their data are: `1`, `True` and `1.0` differ, and so do `0.0` and
`-0.0`. A function is its name, since a file holds no Python code; one without a name, such as a
lambda, is a digest of its bytecode.

    data_of((1, 0.5, jnp.tanh))
    # ["tuple", [["int", "1"], ["float", "0x1.0000000000000p-1"], ["name", "jax.numpy", "tanh"]]]
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import repr_of
from .._jax.trees import attribute
from .._jax.typed import DType
from .._values.kinds import (
    BY_NAME,
    DICT,
    FROZENSET,
    LIST,
    PARTIAL,
    SET,
    SLICE,
    TUPLE,
    Shape,
    ValueKind,
    exact_kind,
)

Data = Any
"""JSON data, here always a list that begins with a kind."""


# in bits: 617 digits
_DECIMAL = 2048
_NAMED = ("name", "code", "record")
"""Kinds that record the name of an object, and not all of its content."""


class LeftOut:
    """Placeholder for a default value that a file does not hold."""

    def __repr__(self) -> str:
        return "a default that the file does not hold"


class NoData(Exception):
    """A value cannot be represented as data: a description, and its path in a tree. It never leaves
    jitney.
    """

    def __init__(self, what: str, path: str = ""):
        super().__init__(what)
        self.what, self.path = what, path


def _is_of_numpy(value: object) -> bool:
    """Return whether a value is an array or a scalar of a class of NumPy's own, without objects."""
    return (
        isinstance(value, (np.ndarray, np.generic))
        and not value.dtype.hasobject
        and type(value).__module__ == "numpy"
    )


def data_of(value: Any) -> Data:
    """Convert a value to data.

    Raises:
        NoData: The value is of a kind that has no data.
    """
    kind = type(value)

    # By exact type: `True` is not an int here, and neither is a member of an `IntEnum`.
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    if isinstance(value, enum.Enum):
        return ["name", *_member_name(kind, value), f"{kind.__qualname__}.{value.name}"]
    entry = exact_kind(value)
    if entry in _BY_PARTS:
        return _parts_data(value, entry)
    if _is_of_numpy(value):
        return [
            "array",
            kind.__name__ == "ndarray",
            _dtype(value.dtype),
            list(value.shape),
            np.asarray(value).tobytes().hex(),
        ]
    if isinstance(value, np.dtype):
        return ["dtype", _dtype(value)]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return [
            "record",
            *_name_of(kind),
            [[name, data_of(part)] for name, part in zip(kind._fields, value, strict=True)],
        ]
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind) if hasattr(value, field.name)]
        return [
            "record",
            *_name_of(kind),
            [[name, data_of(getattr(value, name))] for name in fields],
        ]
    if isinstance(value, types.FunctionType) and "<" in value.__qualname__:
        return _function(value)
    return ["name", *_name_of(value)]


_BY_PARTS = frozenset((LIST, TUPLE, DICT, SET, FROZENSET, SLICE, PARTIAL))


def _parts_data(value: object, entry: ValueKind) -> Data:
    parts = [data_of(part) for part in entry.parts(value)]
    if entry is PARTIAL:
        return [entry.name, *parts]
    if entry is DICT:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [entry.name, [[*pair] for pair in pairs]]
    # Sorted, since the order of a set differs between processes.
    return [entry.name, sorted(parts, key=repr) if entry.shape is Shape.SET else parts]


def _function(function: types.FunctionType) -> Data:
    """Represent a function without a name by a digest of its bytecode, which only the same version
    of Python reproduces.

    Raises:
        NoData: It has a closure or defaults, which its bytecode does not contain.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        raise NoData(f"{name}, a function in a function that holds values")
    text = repr(_code(function.__code__))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ["code", function.__module__, function.__qualname__, digest]


def _code(code: types.CodeType) -> tuple[object, ...]:
    constants = [
        _code(part) if isinstance(part, types.CodeType) else data_of(part)
        for part in code.co_consts
    ]
    return (
        code.co_code.hex(),
        code.co_names,
        code.co_varnames,
        code.co_flags,
        constants,
    )


def _member_name(kind: type, value: enum.Enum) -> list[str]:
    # A combination of flags may have no name of its own.
    if getattr(kind, str(value.name), None) is not value:
        raise NoData(f"{value!r}, which is not a member by its name")
    return _name_of(kind)[:1]


def _name_of(value: object) -> list[str]:
    """Return module and qualified name of an object.

    Raises:
        NoData: The name does not lead back to the object.
    """
    module = attribute(value, "__module__", None)
    name = attribute(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise NoData(
            f"a {type(value).__qualname__}, which is neither plain data nor found by a name"
        )
    if _lookup_attribute(sys.modules.get(module), name) is not value:
        raise NoData(f"{module}.{name}, which is not found by that name")
    return [module, name]


def _lookup_attribute(module: object, name: str) -> object:
    reached = module
    for part in name.split("."):
        reached = getattr(reached, part, None)
    return reached


def _dtype(dtype: DType) -> str:
    try:
        known = jnp.dtype(dtype.name)
    # Names of text and record dtypes do not lead back to the dtype.
    except TypeError:
        known = None
    if known != dtype:
        raise NoData(f"an array of {dtype}")
    return dtype.name


def _bytes(value: bytes) -> Data:
    return ["bytes", value.hex()]


def _whole(value: int) -> str:
    """Format an integer: in decimal if every process can parse it (640 digits are the lowest limit
    that Python allows to be set), else in hexadecimal.
    """
    return str(value) if value.bit_length() <= _DECIMAL else hex(value)


_PLAIN: dict[type, Callable[[Any], Data]] = {
    type(None): lambda _: ["none"],
    bool: lambda value: ["bool", value],
    int: lambda value: ["int", _whole(value)],
    float: lambda value: ["float", value.hex()],
    complex: lambda value: ["complex", value.real.hex(), value.imag.hex()],
    str: lambda value: ["str", value],
    bytes: _bytes,
    type(...): lambda _: ["ellipsis"],
}


Find = Callable[[str, str], Any]
"""Function from a module and a name to the object, or to None if there is none."""


def find_nothing(_module: str, _name: str) -> None:
    """Return None without importing anything; the `Find` of `imports=False`."""


def import_object(module: str, name: str) -> object:
    """Import the object of a name; None if there is none, as when its package is not installed."""
    try:
        return _lookup_attribute(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return None
        # The module exists, but a module that it imports does not.
        raise


def value_of(data: Data, find: Find = import_object) -> Any:
    """Convert data back to a value. An object that is known by name and cannot be imported becomes
    its name; a record of such a class becomes a dict.
    """
    kind, *rest = data
    match kind:
        case "name":
            module, name = rest
            value = find(module, name)
            return f"{module}.{name}" if value is None else value
        case "code":
            return f"{rest[0]}.{rest[1]}"
        case "record":
            module, name, fields = rest
            cls = find(module, name)
            return _record(cls, {field: value_of(part, find) for field, part in fields})
        case "array":
            is_array, dtype, shape, held = rest

            # `frombuffer` is a read-only view. A NumPy scalar was written as an array of rank 0.
            array = np.frombuffer(bytes.fromhex(held), jnp.dtype(dtype)).reshape(shape)
            return array.copy() if is_array else array[()]
        case "partial":
            parts = [value_of(part, find) for part in rest]
            return PARTIAL.build(partial, parts) if callable(parts[0]) else f"partial of {parts[0]}"
        case "dict":
            parts = [value_of(part, find) for pair in rest[0] for part in pair]
            return DICT.build(dict, parts)
        case "tuple" | "list" | "set" | "frozenset" | "slice":
            entry = BY_NAME[kind]
            return entry.build(entry.base, [value_of(part, find) for part in rest[0]])
        case _:
            return _READ[kind](*rest)


def _int(text: str) -> int:
    return int(text, 16 if "x" in text else 10)


def _complex(real: str, imag: str) -> complex:
    return complex(float.fromhex(real), float.fromhex(imag))


def _dtype_of(name: str) -> DType:
    return np.dtype(jnp.dtype(name))


_READ: dict[str, Callable[..., object]] = {
    "none": lambda: None,
    "bool": bool,
    "int": _int,
    "float": float.fromhex,
    "complex": _complex,
    "str": str,
    "bytes": bytes.fromhex,
    "ellipsis": lambda: ...,
    "dtype": _dtype_of,
}


def _record(cls: Any, fields: dict[str, object]) -> object:
    if cls is None:
        return fields
    if hasattr(cls, "_fields"):  # a named tuple
        return cls(**fields)

    # Without `__init__`, which may compute fields; also for frozen classes.
    record = object.__new__(cls)
    for name, part in fields.items():
        object.__setattr__(record, name, part)
    return record


def text_of(data: Data) -> str:
    """Format data briefly for messages."""
    kind, *rest = data
    if kind in _NAMED:
        return f"{rest[0]}.{rest[1]}"
    text = repr_of(value_of(data, find_nothing))
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_same(data: Data, held: object, given: object) -> bool:
    """Return whether a value equals the one that the data represent, or `held`, its replacement by
    `value_of`.
    """
    try:
        own = data_of(given)
        return own == data or (
            type(given) in (str, dict) and data[0] in _NAMED and own == data_of(held)
        )
    except NoData:
        return False
