"""Names of captured arrays: where a function has an array that no argument holds."""

from __future__ import annotations

import inspect
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import jax
import numpy as np

from ..._jax.programs.large_constants import has_content
from ..._stages.derivatives.derive import Derived
from ..._values.attributes import attributes_of, closure_variables
from ..._values.kinds import paths

# objects that are looked at before the search ends
_MOST: Final = 2000


def name_of_captured(
    fn: Callable[..., object],
    array: object,
) -> str:
    """Return the name or path of an array of a trace, such as `W` or `self.weights['in']`."""
    waiting = deque(_roots(fn))
    seen = set[int]()
    while waiting and len(seen) < _MOST:
        path, value = waiting.popleft()
        if _is_same(value, array):
            return f"`{path}`"
        if id(value) not in seen:
            seen.add(id(value))
            waiting += _parts(path, value)
    return "an array"


def _roots(fn: object) -> Iterator[tuple[str, object]]:
    """Yield what a function names: closure, defaults, the object of a method, globals."""
    fn = fn.fn if isinstance(fn, Derived) else fn
    fn = inspect.unwrap(fn) if callable(fn) else fn
    if isinstance(fn, types.MethodType):
        yield ("cls" if isinstance(fn.__self__, type) else "self"), fn.__self__
        fn = fn.__func__
    if not isinstance(fn, types.FunctionType):
        yield getattr(fn, "__name__", type(fn).__name__), fn
        return
    yield from closure_variables(fn).items()
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default
    # The object of a method is an argument; its class is where the function was defined.
    owner = fn.__qualname__.split(".")[0]
    for name in (*_names(fn.__code__), owner):
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _parts(
    path: str,
    value: object,
) -> Iterator[tuple[str, object]]:
    """Yield the parts of a container or object, and what a function of the user's names."""
    if isinstance(value, (types.ModuleType, np.ndarray)):
        return
    if isinstance(value, type):
        yield from _of_class(path, value)
        return
    if items := paths(value):
        yield from ((f"{path}{at}", part) for at, part in items[:_MOST])
    elif isinstance(value, (types.FunctionType, types.MethodType)):
        yield from _roots(value)
    else:
        yield from ((f"{path}.{name}", part) for name, part in attributes_of(value).items())
        yield from _of_class(path, type(value))


def _of_class(path: str, cls: type) -> Iterator[tuple[str, object]]:
    """Yield the arrays among the attributes of a class, which its objects share."""
    for base in cls.__mro__:
        for name, part in vars(base).items():
            if isinstance(part, (np.ndarray, jax.Array)):
                yield f"{path}.{name}", part


def _is_same(value: object, array: object) -> bool:
    """Return whether an array of Python is one that a trace holds, which JAX may have converted."""
    return value is array or (isinstance(value, np.ndarray) and has_content(value, array))
