"""What a Python function holds besides its code, compared between a trace with symbolic sizes and
one with numbers.

A callback is called with numbers, at run time. One that holds a symbolic size, in a closure, a
default, a partial argument or an attribute, cannot compute with it; one that holds what Python has
made of a size (its text, a comparison) would answer for another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import cast

import jax
import numpy as np

from ..._jax.programs.program_parts import content_of
from ..._jax.trees import Tracer, attribute
from ..._values.attributes import attributes_of, closure_variables
from ..._values.kinds import METHOD, PARTIAL, kind_of
from ..dims import is_symbolic

# What holds more objects than this is not compared.
_MOST = 2_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
_SHARED = (type, ModuleType, BuiltinFunctionType, Tracer)
"""Kinds that are the same objects in both traces, or cannot be called with numbers."""


def contents(function: object) -> object:
    """Return a description that is equal in two traces which agree: names, and the plain values
    and arrays that a function holds, at any depth. One that holds a symbolic size, or too much, is
    equal to none.
    """
    seen: dict[int, object] = {}
    described = _described(function, seen)
    return object() if len(seen) > _MOST else described


def _described(
    value: object,
    seen: dict[int, object],
) -> object:
    if is_symbolic(value):
        return object()
    name = attribute(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, _PLAIN):
        return name, repr(value)
    if isinstance(value, _SHARED) or id(value) in seen or len(seen) > _MOST:
        return name
    # The value itself is kept, so that its id is of nothing else meanwhile.
    seen[id(value)] = value
    if isinstance(value, (np.ndarray, jax.Array)) and value.dtype != object:
        return value.shape, str(value.dtype), content_of(value)
    return name, tuple(_described(part, seen) for part in _parts(value))


def _parts(value: object) -> Iterator[object]:
    """Yield what a container, a function or another object holds."""
    if isinstance(value, np.ndarray):
        yield value.tolist()
    elif isinstance(value, Sequence):
        yield from cast("Sequence[object]", value)
    elif isinstance(value, Set):
        yield from sorted(map(repr, cast("Set[object]", value)))
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            yield repr(key)
            yield part
    elif kind_of(value) in (PARTIAL, METHOD):
        yield from kind_of(value).parts(value)
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from closure_variables(value, unset=None).values()
    # A function, and a class that extends a container, have attributes too.
    yield from attributes_of(value).values()
