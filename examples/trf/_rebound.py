"""Copies of a user's functions in which `numpy` is `NUMPY`, and so in all that they call: functions
of their globals and closures, methods of their objects, parts of calls.
"""

import dis
import functools
import types
from typing import Any

import numpy as np

from ._numpy import NUMPY

PRIVATE = ("numpy", "scipy", "jax", "math", "builtins")


def rebound(fun: Any, seen: dict[int, Any] | None = None) -> Any:
    """A copy of the function in which `numpy` is `NUMPY`, and so in those that it calls."""
    seen = {} if seen is None else seen
    if id(fun) in seen:
        return seen[id(fun)]
    if isinstance(fun, functools.partial):
        return functools.partial(rebound(fun.func, seen), *fun.args, **fun.keywords)
    if isinstance(fun, types.MethodType):
        return types.MethodType(rebound(fun.__func__, seen), _twin(fun.__self__, seen))
    if not isinstance(fun, types.FunctionType):
        call = type(fun).__call__ if callable(fun) else None
        twin = _twin(fun, seen) if _is_users(call) else fun
        if twin is not fun or not _is_users(call):
            return twin
        return types.MethodType(rebound(call, seen), fun)
    if not _is_users(fun) or _writes_globals(fun.__code__):
        return fun
    cells = fun.__closure__ or ()
    mine = [types.CellType() if _is_full(cell) and _is_other(cell) else cell for cell in cells]
    space = dict(fun.__globals__)
    copy = types.FunctionType(fun.__code__, space, fun.__name__, fun.__defaults__, tuple(mine))
    copy.__kwdefaults__, seen[id(fun)] = fun.__kwdefaults__, copy
    copy.__dict__.update(fun.__dict__)
    names = _names(fun.__code__) & space.keys()
    space.update({name: _replaced(space[name], seen) for name in names})
    for cell, new in zip(cells, mine, strict=True):
        if new is not cell:
            new.cell_contents = _replaced(cell.cell_contents, seen)
    return copy


def _twin(one: Any, seen: dict[int, Any]) -> Any:
    """An object with the same attributes whose methods are copies likewise; itself where its class
    is more than a plain one.
    """
    kind = type(one)
    of = [] if isinstance(one, type) else [vars(base) for base in kind.__mro__[:-1]]
    plain = type(kind) is type and hasattr(one, "__dict__") and kind.__new__ is object.__new__
    if not of or not plain or any({"__slots__", "__init_subclass__"} & set(part) for part in of):
        return one
    held = {name: value for part in reversed(of) for name, value in part.items()}
    methods = {
        name: rebound(value, seen)
        for name, value in held.items()
        if isinstance(value, types.FunctionType) and _is_users(value)
    }
    twin = object.__new__(type(kind.__name__, (kind,), methods))
    object.__setattr__(twin, "__dict__", vars(one))
    return twin


def _is_other(cell: types.CellType) -> bool:
    """Tell whether what it holds is replaced."""
    value = cell.cell_contents
    return value is np or _is_numpys(value) or _is_followed(value)


def _is_followed(value: Any) -> bool:
    """Tell whether it is a function, a bound method, part of a call, or an object that is called
    as one.
    """
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return True
    return _is_users(type(value).__call__ if callable(value) else None)


def _is_numpys(value: Any) -> bool:
    name = getattr(value, "__name__", None)
    return callable(value) and isinstance(name, str) and getattr(np, name, None) is value


def _replaced(value: Any, seen: dict[int, Any]) -> Any:
    if value is np:
        return NUMPY
    if _is_numpys(value):
        return getattr(NUMPY, value.__name__)
    return rebound(value, seen) if _is_followed(value) else value


def _is_users(fun: Any) -> bool:
    home = (getattr(fun, "__module__", None) or "").partition(".")[0]
    return isinstance(fun, types.FunctionType) and home not in PRIVATE


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that has no value yet
        return False


def _names(code: types.CodeType) -> set[str]:
    """Names that it and the functions inside it look up."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _writes_globals(code: types.CodeType) -> bool:
    return any(one.opname == "STORE_GLOBAL" for one in dis.get_instructions(code))
