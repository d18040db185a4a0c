"""Whether JAX has dropped its programs since: `jax.clear_caches()` reports nothing.

A traced function of ours returns an object that JAX's cache of traces alone keeps alive. Once that
is gone, so is what was traced before (tried on jax 0.10.2 and 0.12.0.1). It is looked at where
something is traced, never in a warm call.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .._jax.equinox_checks import own_jit
from .._jax.trees import register_pytree_node


class _Mark:
    """What the cache keeps alive."""


class _Held:
    """A result without arrays that carries the mark."""

    def __init__(self, mark: _Mark):
        self.mark = mark


def _taken_apart(held: _Held) -> tuple[tuple[()], _Mark]:
    return (), held.mark


def _again(mark: Any, _: Any) -> _Held:
    return _Held(mark)


_register: Any = register_pytree_node
_register(_Held, _taken_apart, _again)


class Dropped:
    """How often JAX's caches were found empty."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._times = 0
        self._mark: weakref.ref[_Mark] | None = None
        self._traced: Any = own_jit()(self._held)

    def times(self) -> int:
        """Two calls that give the same number have no `jax.clear_caches()` between them."""
        with self._lock:
            if self._mark is None or self._mark() is None:
                self._times += self._mark is not None
                self._traced.trace()
            return self._times

    def _held(self) -> _Held:
        mark = _Mark()
        self._mark = weakref.ref(mark)
        return _Held(mark)


DROPPED = Dropped()
