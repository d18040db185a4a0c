"""Detection of `jax.clear_caches()`, which JAX does not report.

A traced function of this module returns an object that only JAX's cache of traces keeps alive. Once
the object is gone, so are all earlier traces (tried on jax 0.10.2 and 0.12.0.1). The check runs at
a trace or compile, never in a warm call.
"""

from __future__ import annotations

import threading
import weakref

import jax

from ..._jax.equinox_checks import own_jit
from ..._jax.trees import register_pytree_node


class _CacheMark:
    """Object that only JAX's trace cache keeps alive."""


class _MarkedResult:
    """Result without arrays that carries the mark in its treedef."""

    def __init__(self, mark: _CacheMark):
        self.mark = mark


def _flatten(result: _MarkedResult) -> tuple[tuple[()], _CacheMark]:
    return (), result.mark


def _rebuild_result(mark: _CacheMark, _: object) -> _MarkedResult:
    return _MarkedResult(mark)


register_pytree_node(_MarkedResult, _flatten, _rebuild_result)


class Dropped:
    """Counter of the times that JAX's caches were found empty."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._times = 0
        self._mark: weakref.ref[_CacheMark] | None = None
        self._traced: jax.stages.Wrapped = own_jit()(self._marked_result)

    def times(self) -> int:
        """Number of times that the caches were dropped; equal for two calls without
        `jax.clear_caches()` between them.
        """
        with self._lock:
            # The first mark is not a drop, only the absence of one that was there. Tracing sets a
            # new mark.
            if self._mark is None or self._mark() is None:
                self._times += self._mark is not None
                self._traced.trace()
            return self._times

    def _marked_result(self) -> _MarkedResult:
        mark = _CacheMark()
        self._mark = weakref.ref(mark)
        return _MarkedResult(mark)


DROPPED = Dropped()
