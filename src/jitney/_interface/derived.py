"""Cache of the derived fields of a state, and the conditions under which a cached value is valid.

A value depends on the numbers that the state held, on JAX's settings, and on the trace in which it
was computed. It is stored in the state, so that it dies with it, together with the contents of the
state at that time: NumPy arrays and containers can be changed in place. The cache has a slot of its
own. Equinox takes everything in `__dict__` besides the fields for a part of the tree's structure,
so a cache there would give a state that was read another structure than one that was not.
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
from .._jax.trees import Tracer, tree_flatten
from .._values.kinds import DICT, LIST, exact_kind, kind_of

KEPT = "_jitney_derived"
"""Name of the slot of a state that holds its cache."""


class DerivedCache:
    """Derived values of a state with certain contents.

    Args:
        held: The contents; None if they cannot be determined.
    """

    def __init__(self, held: list[object] | None):
        self.held = held
        self.values: dict[Hashable, list[KeptValue]] = {}


@dataclass(frozen=True)
class KeptValue:
    """A derived value, and the trace that it belongs to; None if it holds no tracers."""

    trace: object
    value: object

    def holds(self, trace: object) -> bool:
        return self.trace is None or self.trace == trace


class DerivedCaches:
    """Caches of the states that are read while one derived field is computed, with all fields that
    its rule reads. Nothing changes these states meanwhile.
    """

    def __init__(self) -> None:
        # By `id`, with the state itself: an id belongs to one object only as long as that is alive.
        # A state on the way may have no other reference, and the next one could reuse its id.
        self._kept: dict[int, tuple[object, DerivedCache, DerivedCache]] = {}

    def value(self, state: object, rule: Callable[..., object]) -> object:
        """Return a derived value, computed unless it is cached for the current settings and trace.
        The key contains the rule, not its name: a class and its parent may have rules of the same
        name.

        Tracers must not outlive their trace. A state that holds tracers dies with it; a state of
        concrete arrays, which a traced function closes over, does not. A value with tracers
        computed from such a state is cached for this reading alone.
        """
        key, trace = (rule, settings()), core.get_opaque_trace_state()
        if id(state) not in self._kept:
            passing = DerivedCache(None)
            self._kept[id(state)] = (state, _lasting(state), passing)
        _, lasting, passing = self._kept[id(state)]

        # A value without tracers is valid in any trace.
        for cache in (lasting, passing):
            for known in cache.values.get(key, ()):
                if known.holds(trace):
                    return known.value

        value = rule(state)
        is_traced = _has_tracers(value)
        cache = passing if is_traced and not _has_tracers(state) else lasting
        new = KeptValue(trace if is_traced else None, value)
        cache.values.setdefault(key, []).append(new)
        return value


def _lasting(state: object) -> DerivedCache:
    """Return the cache in a state; a new one if its contents have changed."""
    held = _constant_parts(state)
    kept: DerivedCache | None = getattr(state, KEPT, None)
    if kept is None or held is None or kept.held is None or not _are_unchanged(kept.held, held):
        kept = DerivedCache(held)
        # `object`'s method, as a state is a frozen dataclass.
        object.__setattr__(state, KEPT, kept)
    return kept


def _has_tracers(tree: object) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in tree_flatten(tree)[0])


def _constant_parts(state: object) -> list[object] | None:
    """Return everything that a state holds; None if something in it could change unnoticed."""
    parts: list[object] = []
    for part in _parts(state):
        if part is _MUTABLE:
            return None
        parts.append(part)
    return parts


def _parts(value: object) -> Iterator[object]:
    """Yield everything that a value holds: immutable parts as they are, NumPy arrays as their
    bytes, and `_MUTABLE` for anything else.
    """
    kind = type(value)
    # pyright would narrow the type of `value` in the branches below.
    whole: Any = value
    if isinstance(value, jax.Ref):
        yield _MUTABLE
    elif value is None or kind in _PLAIN or isinstance(value, _FIXED):
        yield value
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        yield value.dtype, value.shape, value.tobytes()
    elif isinstance(value, eqx.Module):
        yield kind
        yield from _parts(whole.__dict__)
    elif isinstance(value, tuple) or exact_kind(value) in (LIST, DICT):
        parts = kind_of(value).parts(value)
        yield kind, len(parts)
        for part in parts:
            yield from _parts(part)
    else:
        yield _MUTABLE


_MUTABLE = object()
_FIXED = (jax.Array, type, np.dtype, jax.ShapeDtypeStruct, Enum, FunctionType, BuiltinFunctionType)
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


def _are_unchanged(old: list[object], new: list[object]) -> bool:
    """Return whether nothing has changed. Integers, strings and contents of NumPy arrays are
    compared by `==`, everything else by identity.
    """
    return len(old) == len(new) and all(map(_is_unchanged, old, new))


def _is_unchanged(old: object, new: object) -> bool:
    if old is new:
        return True
    return type(old) is type(new) and type(old) in _COMPARED and old == new


_COMPARED = frozenset({tuple, bool, int, str, bytes})
