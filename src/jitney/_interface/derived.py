"""What has been derived from a state, and for how long it holds.

A value is of the numbers that the state held, of JAX's settings, and of the trace in which it was
computed. It is kept in the state, so that it dies with it, beside what the state held then: arrays
of NumPy and containers can be changed in place. It has a slot of its own: what stands in `__dict__`
beside the fields Equinox takes for a part of the tree's structure, and a state that was read would
be of another structure than one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.extend import core

from .._jax.settings import settings
from .._jax.trees import Tracer, is_a, tree_flatten, type_of

_core: Any = core
KEPT = "_jitney_derived"
"""The slot in which a state keeps it."""


class Kept:
    """Derived values of a state as it was.

    Args:
        held: What the state held; None if that cannot be told.
    """

    def __init__(self, held: list[Any] | None):
        self.held = held
        self.values: dict[Hashable, list[KeptValue]] = {}


@dataclass(frozen=True)
class KeptValue:
    """A derived value, and the trace that it is of; None if it holds no tracers."""

    trace: Any
    value: Any

    def holds(self, trace: Any) -> bool:
        return self.trace is None or self.trace == trace


class Reading:
    """What is known of states while one derived field is computed, with all that its rule reads.
    Nothing changes them meanwhile.
    """

    def __init__(self) -> None:
        # An id is of one object as long as that is held. A state on the way may be held by nobody
        # else, and the next one take its place.
        self._kept: dict[int, tuple[Any, Kept, Kept]] = {}

    def value(self, state: Any, rule: Callable[[Any], Any]) -> Any:
        """A derived value, computed if it is not known under the settings and in the trace of now.
        It is known by its rule: a class and its parent may have one of the same name.

        Tracers must not outlive their trace: a state that holds some dies with it, but one of
        concrete arrays, which a traced function closes over, does not. What is computed of that one
        is kept for this reading alone.
        """
        key, trace = (rule, settings()), _core.get_opaque_trace_state()
        if id(state) not in self._kept:
            self._kept[id(state)] = (state, _lasting(state), Kept(None))
        _, lasting, passing = self._kept[id(state)]
        for known in (*lasting.values.get(key, ()), *passing.values.get(key, ())):
            if known.holds(trace):
                return known.value
        value = rule(state)
        traced = _has_tracers(value)
        kept = passing if traced and not _has_tracers(state) else lasting
        kept.values.setdefault(key, []).append(KeptValue(trace if traced else None, value))
        return value


def _lasting(state: Any) -> Kept:
    """What a state keeps, if it holds what it held."""
    held = _held(state)
    kept: Kept | None = getattr(state, KEPT, None)
    if kept is None or held is None or kept.held is None or not _same(kept.held, held):
        kept = Kept(held)
        object.__setattr__(state, KEPT, kept)  # of a frozen dataclass
    return kept


def _has_tracers(tree: Any) -> bool:
    return any(is_a(leaf, Tracer) for leaf in tree_flatten(tree)[0])


class _Unknown(Exception):
    """Something that could change unseen."""


def _held(state: Any) -> list[Any] | None:
    try:
        return list(_parts(state))
    except _Unknown:
        return None


def _parts(value: Any) -> Iterator[Any]:
    """All that a value holds: what cannot change as itself, arrays of NumPy as their bytes.

    Raises:
        _Unknown: It holds something else.
    """
    kind = type_of(value)
    whole: Any = value  # pyright would go on with what `value` is found to be
    if is_a(value, jax.Ref):
        raise _Unknown
    if value is None or kind in _PLAIN or is_a(value, _FIXED):
        yield value
    elif is_a(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        yield value.dtype, value.shape, value.tobytes()
    elif is_a(value, eqx.Module):
        yield kind
        yield from _parts(whole.__dict__)
    elif is_a(value, tuple) or kind is list:
        yield kind, len(value)
        for part in value:
            yield from _parts(part)
    elif kind is dict:
        yield kind, len(whole)
        yield from _parts(tuple(whole))
        yield from _parts(tuple(whole.values()))
    else:
        raise _Unknown


_FIXED = (jax.Array, type, np.dtype, jax.ShapeDtypeStruct, Enum, FunctionType, BuiltinFunctionType)
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def _same(old: list[Any], new: list[Any]) -> bool:
    """Whether nothing has changed. Numbers in modules are compared as what they are, arrays of JAX
    by identity.
    """
    return len(old) == len(new) and all(
        a is b or (type_of(a) is type_of(b) and type_of(a) in _COMPARED and a == b)
        for a, b in zip(old, new, strict=True)
    )


_COMPARED = frozenset({tuple, bool, int, str, bytes})
