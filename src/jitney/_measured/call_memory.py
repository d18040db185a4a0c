"""Memory that `jitney.testing` asserts: the measured peak of a warm call (`peak_mb=`), and what XLA
plans for programs that are compiled while a context is entered, decorated or not (`temp_mb=`).

A peak is that of the second call; the first is for what is kept: programs, imports. Then the free
memory of the C library goes back to the system, which would otherwise be taken again without being
seen, and the system counts the most from now on (`_host/memory_samples.py`). Where it cannot, the
peak lies between the largest sample and the most of the whole process.

JAX reports a compile without its memory. But by the time of the report, the executable is in the
backend's list (`jax.extend.backend.get_backend().live_executables()`, tried with 0.10.2 and
0.12.0.1), and each executable has XLA's memory plan. A program that was compiled before is not
seen, since its runs are not reported.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import jax
from jax.extend import backend

from .._diagnosis.counters.counters import COMPILED
from .._host.memory_samples import (
    RUSAGE,
    Sampler,
    Track,
    reset_highest,
)
from .._owners import users_place


@dataclass(frozen=True)
class CallPeak:
    """Bytes that a call took at its peak.

    Args:
        of: What held them: "the process", or a device.
        least: The least that they are.
        most: The most that they are, the same where the peak was counted; None if unknown.
    """

    of: str
    least: int
    most: int | None


def peak_of_call(call: Callable[[], object]) -> CallPeak | None:
    """Call twice, and return the peak of the second call; None if nothing reports memory."""
    jax.block_until_ready(call())
    gc.collect()
    _return_free_memory()
    counted = reset_highest()

    sampler = Sampler()
    sampler.watch_devices({str(each): each.memory_stats for each in jax.local_devices()})
    sampler.start()
    try:
        # The results stay alive until the last sample, so that they count.
        results = jax.block_until_ready(call())
    finally:
        sampler.stop()
    del results

    if sampler.devices:
        peaks = [_peak(name, track, counted=False) for name, track in sampler.devices.items()]
        return max(filter(None, peaks), key=lambda each: each.least, default=None)
    # Without the bytes that were held before there is no difference.
    if sampler.source == RUSAGE:
        return None
    return _peak("the process", sampler.process, counted=counted)


def _peak(of: str, track: Track, *, counted: bool) -> CallPeak | None:
    """Return the peak of a course, which the most of the whole life bounds if it is not counted."""
    if track.first is None or track.last is None or track.peak is None:
        return None
    began, before = track.first.bytes, track.first.highest
    least, highest = track.peak.bytes - began, track.last.highest
    if highest is None or before is None:
        return CallPeak(of, least, None)
    if counted or highest > before:
        least = max(least, highest - began)
        return CallPeak(of, least, least)
    return CallPeak(of, least, max(least, highest - began))


def _return_free_memory() -> None:
    """Return free memory of the C library to the system; only glibc has a function for it."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


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
