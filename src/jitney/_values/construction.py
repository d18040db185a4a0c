"""Constructor arguments of values of Python's and NumPy's own classes, which distinguish values
that are equal by `==`.

`Decimal("1.0") == Decimal("1")` and `range(0, 3, 2) == range(0, 4, 2)`; times in two zones are
equal, and so are data types with and without alignment. A body can observe the difference in each
pair, and so can a copy: the parts that `__reduce_ex__` gives for one differ. A class of the user's
own that defines `==` is trusted, as in `static_values.py`.
"""

from __future__ import annotations

import copyreg
import enum
import pickle
import sys
import types
from weakref import ReferenceType

import numpy as np

_OWN = frozenset((*sys.stdlib_module_names, "numpy"))
_WITH_EXACT_EQUALITY = (
    int,
    str,
    bytes,
    enum.Enum,
    type(None),
    ReferenceType,
)
_CALLABLES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodType,
    types.CodeType,
)


def has_coarse_equality(kind: type[object]) -> bool:
    """Return whether distinct values of a class may be equal, because Python or NumPy defines its
    `==` and its hash.
    """
    if kind.__hash__ is None:
        return False
    if issubclass(kind, (type, *_WITH_EXACT_EQUALITY, *_CALLABLES)):
        return False
    owner = next(base for base in kind.__mro__ if "__eq__" in vars(base))
    return owner is not object and owner.__module__.partition(".")[0] in _OWN


def construction(value: object) -> tuple[object, ...] | None:
    """Parts that a copy of `value` is built from; None if its `==` is exact, or if it cannot be
    copied.
    """
    if not has_coarse_equality(type(value)):
        return None

    # A plain dtype is determined by its string. Its `char` tells apart types of equal size, such as
    # `long` and `long long`.
    if (
        isinstance(value, np.dtype)
        and value.names is None
        and value.metadata is None
        and value.subdtype is None
    ):
        return value.str, value.char

    # Unions and patterns register their reducers in `copyreg`, where `copy` and `pickle` look
    # first.
    registered = copyreg.dispatch_table.get(type(value))

    try:
        built = value.__reduce_ex__(4) if registered is None else registered(value)
    except (TypeError, pickle.PicklingError):
        return None

    # A string is the name of a global constant: nothing is built.
    if isinstance(built, str):
        return None

    # Iterators have no `==`, so their items take their place.
    iterators = (types.GeneratorType, *_ITERATORS)
    parts = [tuple(part) if isinstance(part, iterators) else part for part in built]
    if isinstance(value, np.dtype):
        parts.append(value.char)
    return tuple(parts)


# Iterators over the items of a list or a dict, as `__reduce_ex__` gives them.
_ITERATORS = (type(iter([])), type(iter(dict[int, int]().items())))
