"""Decorated functions of the process, so that equal ones with equal options share programs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping

from .._body.function import can_be_weak
from .._signature.options import Options
from .core import CompiledFunction


class Registry:
    """Cores by function and options, so that decorating equal functions twice compiles once. The
    registry keeps no function alive.
    """

    def __init__(self) -> None:
        self._cores: weakref.WeakKeyDictionary[
            Callable[..., object], dict[Options, CompiledFunction]
        ] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def core(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ) -> CompiledFunction:
        if not can_be_weak(fn):
            return CompiledFunction(fn, options, namespace)
        with self._lock:
            cores = self._cores.setdefault(fn, {})
        core = cores.get(options) or CompiledFunction(fn, options, namespace)
        return cores.setdefault(options, core).adopt(fn)

    def clear(self) -> None:
        """Forget all cores: equal functions decorated from now on get new ones."""
        with self._lock:
            self._cores.clear()

    def cores(self) -> list[CompiledFunction]:
        """Cores of functions that are still referenced."""
        with self._lock:
            return [core for each in list(self._cores.values()) for core in list(each.values())]


REGISTRY = Registry()
