"""Static values as data of JSON: what they are worth, and the names of what can only be named
(functions, classes, members of enums).

Two values are the same here if their data are: `1`, `True` and `1.0` differ, and so do `0.0` and
`-0.0`. A function is its name, since a file holds no code of Python's; one without a name, such as
a lambda, is a digest of its code.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._errors import repr_of
from .._jax.trees import attribute, is_a, type_of

Data = Any
"""What JSON can hold: here always a list that begins with a kind."""


_DECIMAL = 2048  # bits: 617 digits
_NAMED = ("name", "code", "record")
"""Kinds of which a file holds a name, and not all that it stands for."""


class LeftOut:
    """Stands for a default that a file does not hold."""

    def __repr__(self) -> str:
        return "a default that the file does not hold"


class NoData(Exception):
    """A value that a file cannot hold; the text says what it is. It never leaves jitney."""


def data_of(value: Any) -> Data:
    """A value as data.

    Raises:
        NoData: It is of a kind that has none.
    """
    kind = type_of(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    if is_a(value, enum.Enum):
        return ["name", *_named(kind, value), f"{kind.__qualname__}.{value.name}"]
    if kind in (tuple, list):
        return [kind.__name__, [data_of(part) for part in value]]
    if kind is dict:
        return ["dict", [[data_of(name), data_of(part)] for name, part in value.items()]]
    if kind in (set, frozenset):
        return [kind.__name__, sorted((data_of(part) for part in value), key=repr)]
    if (
        is_a(value, (np.ndarray, np.generic))
        and not value.dtype.hasobject
        and kind.__module__ == "numpy"
    ):
        return [
            "array",
            kind.__name__ == "ndarray",
            _dtype(value.dtype),
            list(value.shape),
            np.asarray(value).tobytes().hex(),
        ]
    if is_a(value, np.dtype):
        return ["dtype", _dtype(value)]
    if kind is functools.partial:
        return ["partial", data_of(value.func), data_of(value.args), data_of(value.keywords)]
    if is_a(value, tuple) and hasattr(kind, "_fields"):
        return [
            "record",
            *_name_of(kind),
            [[name, data_of(part)] for name, part in zip(kind._fields, value, strict=True)],
        ]
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return [
            "record",
            *_name_of(kind),
            [[name, data_of(getattr(value, name))] for name in fields],
        ]
    return (
        _function(value)
        if is_a(value, types.FunctionType) and "<" in value.__qualname__
        else ["name", *_name_of(value)]
    )


def _function(function: types.FunctionType) -> Data:
    """A function without a name is its code, which is that of one version of Python.

    Raises:
        NoData: It holds values that its code does not tell.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        raise NoData(f"{name}, a function in a function that holds values")
    return [
        "code",
        function.__module__,
        function.__qualname__,
        hashlib.sha256(repr(_code(function.__code__)).encode()).hexdigest(),
    ]


def _code(code: types.CodeType) -> tuple[Any, ...]:
    constants = [
        _code(part) if is_a(part, types.CodeType) else data_of(part) for part in code.co_consts
    ]
    return code.co_code.hex(), code.co_names, code.co_varnames, code.co_flags, constants


def _named(kind: type, value: Any) -> list[str]:
    if getattr(kind, str(value.name), None) is not value:  # a combination of flags may have no name
        raise NoData(f"{value!r}, which is no member by its name")
    return _name_of(kind)[:1]


def _name_of(value: Any) -> list[str]:
    """Module and name under which an object is found.

    Raises:
        NoData: It is not found there.
    """
    module: Any = attribute(value, "__module__", None)
    name: Any = attribute(value, "__qualname__", None)
    if not is_a(module, str) or not is_a(name, str):
        raise NoData(
            f"a {type_of(value).__qualname__}, which is neither plain data nor found by a name"
        )
    if _reached(sys.modules.get(module), name) is not value:
        raise NoData(f"{module}.{name}, which is not found by that name")
    return [module, name]


def _reached(module: Any, name: str) -> Any:
    reached = module
    for part in name.split("."):
        reached = getattr(reached, part, None)
    return reached


def _dtype(dtype: Any) -> str:
    try:
        known: Any = jnp.dtype(dtype.name)
    except TypeError:  # of texts and of records, which numpy does not find by their names
        known = None
    if known != dtype:
        raise NoData(f"an array of {dtype}")
    return dtype.name


def _bytes(value: bytes) -> Data:
    return ["bytes", value.hex()]


def _whole(value: int) -> str:
    """In decimal, as far as Python reads that in every process: 640 digits are the least that its
    limit can be set to.
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
    slice: lambda value: [
        "slice",
        [data_of(part) for part in (value.start, value.stop, value.step)],
    ],
    type(...): lambda _: ["ellipsis"],
}


Find = Callable[[str, str], Any]
"""From a module and a name in it to what is found there; None where nothing is."""


def unseen(_module: str, _name: str) -> None:
    """Finds nothing, and imports nothing."""


def imported(module: str, name: str) -> Any:
    """What is found under a name; None where it is not, as where the code is not installed."""
    try:
        return _reached(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            return None
        raise  # a module that is there needs another one


def value_of(data: Data, find: Find = imported) -> Any:
    """The value that data stand for. What is known by its name only, and cannot be imported, is
    that name; such a record is a dict.
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
            return _record(
                find(module, name), {field: value_of(part, find) for field, part in fields}
            )
        case "dict":
            return {value_of(name, find): value_of(part, find) for name, part in rest[0]}
        case "array":
            is_array, dtype, shape, held = rest
            array = np.frombuffer(bytes.fromhex(held), jnp.dtype(dtype)).reshape(shape)
            return array.copy() if is_array else array[()]
        case "partial":
            func, args, keywords = (value_of(part, find) for part in rest)
            return (
                functools.partial(func, *args, **keywords)
                if callable(func)
                else f"partial of {func}"
            )
        case "tuple" | "list" | "set" | "frozenset":
            return _CONTAINERS[kind](value_of(part, find) for part in rest[0])
        case _:
            return _READ[kind](*rest)


_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}


def _int(text: str) -> int:
    return int(text, 16 if "x" in text else 10)


def _complex(real: str, imag: str) -> complex:
    return complex(float.fromhex(real), float.fromhex(imag))


def _slice(parts: list[Data]) -> slice:
    start, stop, step = map(value_of, parts)
    return slice(start, stop, step)


def _dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(jnp.dtype(name))


_READ: dict[str, Callable[..., Any]] = {
    "none": lambda: None,
    "bool": bool,
    "int": _int,
    "float": float.fromhex,
    "complex": _complex,
    "str": str,
    "bytes": bytes.fromhex,
    "slice": _slice,
    "ellipsis": lambda: ...,
    "dtype": _dtype_of,
}


def _record(cls: Any, fields: dict[str, Any]) -> Any:
    if cls is None:
        return fields
    if hasattr(cls, "_fields"):  # a named tuple
        return cls(**fields)
    record: Any = object.__new__(cls)
    for name, part in fields.items():
        object.__setattr__(record, name, part)
    return record


def text_of(data: Data) -> str:
    """Data in a few words, for messages."""
    kind, *rest = data
    if kind in _NAMED:
        return f"{rest[0]}.{rest[1]}"
    text = repr_of(value_of(data, unseen))
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_same(data: Data, held: Any, given: Any) -> bool:
    """Whether a value is the one that data stand for, or `held`, which `value_of` gives in its
    place.
    """
    try:
        own = data_of(given)
        return own == data or (
            type_of(given) in (str, dict) and data[0] in _NAMED and own == data_of(held)
        )
    except NoData:
        return False
