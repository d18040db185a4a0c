"""How much memory the programs take that are compiled while someone looks: of all code, decorated
or not.

No event of JAX says it. But when a compile is reported, its executable is among those that the
backend holds (`jax.extend.backend.get_backend().live_executables()`, tried with 0.10.2 and
0.12.0.1), and each of these knows what XLA has planned for it. A program that was compiled before
is not seen: nothing reports that it runs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import jax
from jax.extend import backend

from .._owners import users_place
from .counters import COMPILED

_backend: Any = backend


@dataclass(frozen=True)
class CompiledProgram:
    """A program that was compiled, or read from the persistent cache.

    Args:
        name: The function.
        place: The user's line, `fit.py:12 (step)`.
        temp_bytes: What it takes besides arguments and results, on one device of the default
            backend.
    """

    name: str
    place: str
    temp_bytes: int


class Temporaries:
    """The programs that are compiled while it is entered, by all threads: a context manager."""

    def __init__(self) -> None:
        self.programs: tuple[CompiledProgram, ...] = ()
        self._known: list[Any] = []  # kept, so that what each is known by stays its own
        self._lock = threading.Lock()

    @property
    def largest(self) -> CompiledProgram | None:
        """That with the most temporaries."""
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

    def _span(self, event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
        if event != COMPILED:
            return
        with self._lock:
            known = set(map(id, self._known))
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
    return list(_backend.get_backend().live_executables())
