"""What JAX itself says of its work, heard by a listener of the tests' own."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

NAMES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/compilation_cache/cache_hits": "persistent hit",
    "/jax/compilation_cache/cache_misses": "persistent miss",
}


class Events:
    """How often each thing happened, and how long it took, in all or for functions with a name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}

    def count(self, what: str, function: str = "") -> int:
        return sum(
            number
            for (event, name), number in self._counts.items()
            if event == what and function in name
        )

    def seconds(self, what: str, function: str = "") -> float:
        return sum(
            number
            for (event, name), number in self._seconds.items()
            if event == what and function in name
        )

    def _duration(self, event: str, seconds: float, **about: Any) -> None:
        self._event(event, **about)
        key = NAMES.get(event, event), str(about.get("fun_name", ""))
        with self._lock:
            self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def _event(self, event: str, **about: Any) -> None:
        with self._lock:
            self._counts[NAMES.get(event, event), str(about.get("fun_name", ""))] += 1


@contextmanager
def listening() -> Iterator[Events]:
    """All that JAX reports in any thread while the block runs."""
    events = Events()
    jax.monitoring.register_event_duration_secs_listener(events._duration)
    jax.monitoring.register_event_listener(events._event)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(events._duration)
        jax.monitoring.unregister_event_listener(events._event)
