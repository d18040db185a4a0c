"""Calls whose mapped axis is cut into chunks of a width that is measured: `chunk={"fit": "fast"}`.

The first call of a size runs whole. Then each width runs a sample of its elements, the quickest
runs the whole call too, and whichever of the two whole calls took less time serves all calls of
that size from then on, and this first one: so no value changes from one call to the next.

    whole                         926 ms
    1, 16, 64, 256 and 1,024      120, 58, 51, 66 and 97 us an element, on a sample of 1,024
    64 at a time                  430 ms: it stays
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import jax

from ..._errors import AxisError
from ..._jax.typed import Array
from ..compiled_calls import CompiledCalls
from ..program_digest import CHANGED, digest_now, traced_digest
from .unsplit import Unsplit, effects_obstacle
from .whole_calls import WholeCalls
from .workers.worker_calls import call_key, mapped_axis

WIDTHS = (1, 16, 64, 256, 1024)
"""Elements at a time that are tried, besides all of them."""
# A sample is this part of the elements, and as many as the widest chunk.
_SAMPLE = 16
# A program is timed until it has run so often and so long, or very long.
_TIMES, _SECONDS, _LONG = 3, 0.005, 0.5
# A chunk that is not quicker than the whole by this factor is not taken.
_GAIN = 0.95


@dataclass(frozen=True)
class WidthChoice:
    """Width of the chunks of calls of one key.

    Args:
        width: Elements at a time; None for all of them.
        why: The reason, with what was measured.
    """

    width: int | None
    why: str


class WidthCalls(WholeCalls):
    """Runs the calls of an entry whose chunks have a width that is measured."""

    def __init__(self, entry: CompiledCalls):
        super().__init__(entry)
        self._choices: dict[Hashable, WidthChoice] = {}
        # Width -> the entry of the same calls in chunks of it.
        self._of_width: dict[int, CompiledCalls] = {}
        # One thread measures, and others wait for its choice.
        self._measuring = threading.RLock()

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        key = call_key(arrays)
        choice = self._choices.get(key)
        if choice is None:
            with self._measuring:
                choice = self._choices.get(key)
                if choice is None:
                    out, self._choices[key] = self._measured(arrays)
                    return out
        return self._run(choice.width, arrays)

    def choice(self, arrays: Sequence[Array]) -> WidthChoice | None:
        """Return the choice for a call with these arrays or abstract values, if it has fallen."""
        return self._choices.get(call_key(arrays))

    def _run(self, width: int | None, arrays: Sequence[Array]) -> object:
        if width is not None:
            return self.run_entry(self._entry_of(width), arrays)
        workers = self.entry.workers
        return self.run_whole(arrays) if workers is None else workers.run_outermost(arrays)

    def _entry_of(self, width: int) -> CompiledCalls:
        entry = self._of_width.get(width)
        if entry is None:
            options = self.entry.core.options
            ((axis, _),) = options.chunk
            entry = self.entry_with(replace(options, chunk=((axis, width),)))
            self._of_width[width] = entry
        return entry

    def _measured(self, arrays: Sequence[Array]) -> tuple[object, WidthChoice]:
        """Run a call, and choose the width of those like it."""
        out = self._run(None, arrays)
        workers = self.entry.workers
        if workers is None and traced_digest(self.entry, arrays) != digest_now(self.entry, arrays):
            return out, WidthChoice(None, f"whole, since {CHANGED}")
        sampled = self._sample(arrays)
        if isinstance(sampled, Unsplit):
            return out, WidthChoice(None, f"whole, {sampled.what}")
        size, step, sample = sampled
        jax.block_until_ready(out)

        # Each width, on a sample.
        tried: dict[int, float] = {}
        texts: list[str] = []
        elements = -(-size // step)
        for width in WIDTHS:
            if width >= size:
                break
            try:
                took = self.seconds(width, sample)
            except AxisError:
                texts.append(f"{width:,}: it cannot be cut")
                continue
            tried[width] = took
            texts.append(f"{width:,}: {took / elements * 1e6:.3g}")
        why = f"on {elements:,} elements, in us each: {', '.join(texts)}"
        if not tried:
            return out, WidthChoice(None, f"whole; {why}")

        # The quickest of them and the whole, on the call itself.
        best = min(tried, key=lambda width: tried[width])
        whole = self.seconds(None, arrays)
        chunked = self.seconds(best, arrays)
        why = f"{best:,} at a time {chunked * 1e3:.3g} ms, whole {whole * 1e3:.3g} ms; {why}"
        if chunked > _GAIN * whole:
            return out, WidthChoice(None, f"whole, measured: {why}")
        return self._run(best, arrays), WidthChoice(best, f"{best:,} at a time, measured: {why}")

    def seconds(self, width: int | None, arrays: Sequence[Array]) -> float:
        """Return the seconds of a call in chunks of a width, compiled, the least of some."""
        jax.block_until_ready(self._run(width, arrays))
        times: list[float] = []
        while len(times) < _TIMES or sum(times) < _SECONDS:
            began = time.perf_counter()
            jax.block_until_ready(self._run(width, arrays))
            times.append(time.perf_counter() - began)
            if sum(times) > _LONG:
                break
        return min(times)

    def _sample(self, arrays: Sequence[Array]) -> tuple[int, int, Sequence[Array]] | Unsplit:
        """Return the size of the axis, the step of a sample, and the sample: every so many-th of
        its elements; or why nothing is measured.
        """
        entry = self.entry
        if jax.process_count() > 1:
            return Unsplit("since each of several processes would choose for itself")
        on = [array.sharding.device_set for array in arrays if isinstance(array, jax.Array)]
        if any(len(devices) > 1 for devices in on):
            return Unsplit("since its arrays lie on several devices")
        mapped = mapped_axis(entry, arrays)
        if isinstance(mapped, Unsplit):
            return mapped
        axis, size, dims = mapped
        step = max(1, min(_SAMPLE, size // max(WIDTHS)))
        sample = [
            array if dim is None else array[(*[slice(None)] * dim, slice(None, None, step))]
            for array, dim in zip(arrays, dims, strict=True)
        ]
        if size < 2:
            return Unsplit(f"since {axis}={size}")
        with entry.numbers():
            why = effects_obstacle(jax.make_jaxpr(entry.run_inner_stages)(*sample))
        return (size, step, sample) if why is None else Unsplit(f"since {why.what}")
