"""Memory of the programs that are compiled while a context is entered, decorated or not.

JAX reports a compile without its memory. But by the time of the report, the executable is in the
backend's list (`jax.extend.backend.get_backend().live_executables()`, tried with 0.10.2 and
0.12.0.1), and each executable has XLA's memory plan. A program that was compiled before is not
seen, since its runs are not reported.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import jax
from jax.extend import backend

from .._owners import users_place
from .counters.jax_events import COMPILED


@dataclass(frozen=True)
class CompiledProgram:
    """Program that was compiled, or read from the persistent cache.

    Args:
        name: Name of the function.
        place: User's line, `fit.py:12 (step)`.
        temp_bytes: Bytes besides arguments and results, on one device of the default backend.
    """

    name: str
    place: str
    temp_bytes: int


class Temporaries:
    """Context manager that collects the programs that are compiled inside it, by all threads."""

    def __init__(self) -> None:
        self.programs: tuple[CompiledProgram, ...] = ()
        # Strong references: an executable is known by its `id`, which must not be reused.
        self._known: list[object] = []
        self._lock = threading.Lock()

    @property
    def largest(self) -> CompiledProgram | None:
        """The program with the most temporaries."""
        return max(self.programs, key=lambda program: program.temp_bytes, default=None)

    def __enter__(self) -> Self:
        self._known = _executables()
        jax.monitoring.register_event_time_span_listener(self._span)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        jax.monitoring.unregister_event_time_span_listener(self._span)
        self._known = []

    def _span(
        self,
        event: str,
        start_time: float,
        end_time: float,
        **kwargs: object,
    ) -> None:
        if event != COMPILED:
            return
        with self._lock:
            known = set(map(id, self._known))
            # Executables that were not in the list at the report before belong to this compile.
            new = [each for each in _executables() if id(each) not in known]
            self._known += new
            place = users_place()
            self.programs += tuple(
                CompiledProgram(
                    str(kwargs.get("fun_name", "?")),
                    place,
                    int(each.get_compiled_memory_stats().temp_size_in_bytes),
                )
                for each in new
            )


def _executables() -> list[Any]:
    return list(backend.get_backend().live_executables())
