"""Peak of the memory that a warm call takes, measured: `jitney.testing.assert_memory(peak_mb=)`.

The first call is for what is kept: programs, imports. Then the free memory of the C library goes
back to the system, which would otherwise be taken again without being seen, and the system counts
the most from now on (`_host/memory_samples.py`). Where it cannot, the peak lies between the largest
sample and the most of the whole process.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import jax

from .._host.memory_samples import RUSAGE, Sampler, Track, reset_highest


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
