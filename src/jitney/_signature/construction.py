"""How values of Python's own classes are built: what their `==` leaves out.

`Decimal("1.0") == Decimal("1")`, `range(0, 3, 2) == range(0, 4, 2)`, times in two zones are equal,
and so are data types with and without alignment; a body can tell each pair apart. What a copy of
one would be built from (`__reduce_ex__`) tells them apart as well. A class of the user's own that
says what is equal is believed, as `static_values.py` has it.
"""

from __future__ import annotations

import copyreg
import enum
import pickle
import sys
import types
from typing import Any
from weakref import ReferenceType

import numpy as np

from .._jax.trees import is_a, type_of

_OWN = frozenset((*sys.stdlib_module_names, "numpy"))
_WITH_EXACT_EQUALITY = (int, str, bytes, enum.Enum, type(None), ReferenceType)
_CALLABLES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodType,
    types.CodeType,
)


def has_coarse_equality(kind: type[Any]) -> bool:
    """Whether values of a class may be equal and differ: Python or NumPy has written its `==` and
    its hash.
    """
    if kind.__hash__ is None or issubclass(kind, (type, *_WITH_EXACT_EQUALITY, *_CALLABLES)):
        return False
    owner = next(base for base in kind.__mro__ if "__eq__" in vars(base))
    return owner is not object and owner.__module__.partition(".")[0] in _OWN


def construction(value: Any) -> tuple[Any, ...] | None:
    """The parts that a copy of `value` is built from; None where its `==` says all, or it cannot be
    copied.
    """
    if not has_coarse_equality(type_of(value)):
        return None
    if (
        is_a(value, np.dtype)
        and value.names is None
        and value.metadata is None
        and value.subdtype is None
    ):
        return value.str, value.char
    # of unions and patterns, as `copy` and `pickle` ask
    registered = copyreg.dispatch_table.get(type_of(value))
    try:
        built: Any = value.__reduce_ex__(4) if registered is None else registered(value)
    except (TypeError, pickle.PicklingError):
        return None
    if is_a(built, str):  # the name of a constant
        return None
    parts = [
        tuple(part) if is_a(part, (types.GeneratorType, *_ITERATORS)) else part for part in built
    ]
    return (*parts, value.char) if is_a(value, np.dtype) else tuple(parts)


# over the items of a list or a dict
_ITERATORS = (type(iter([])), type(iter(dict[int, int]().items())))
