"""Course of memory over a run, and its peaks, with the lines of the program where they were.

`jitney.watch(memory=True)` and `python -m jitney run --memory` both show it. The figures come from
the sampler in `_host/memory_samples.py`; here they get places, a text and a picture.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax

from .._errors import MemoryWarning, OptionError, format_error
from .._extent import AUTO, parsed_bytes
from .._host.memory_samples import Frame, Peak, Sampler
from .._jax.xla.memory import text
from .._owners import is_users, short
from .._public import public_in
from .._text.json import Data, Record
from .._text.shown import Shown
from .._text.svg import FRAME, A, B, Picture, picture, words

if TYPE_CHECKING:
    from rich.table import Table

# Columns and heights of the course as text.
_WIDE, _BLOCKS = 60, "▁▂▃▄▅▆▇█"
# Size of the picture and of its margins, in pixels.
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 220, 80, 40
# Functions in the table, most memory first.
_SHOWN = 8
# A compile that adds less is not worth a line.
_LEAST = 2**20
ELSEWHERE = "outside of the program's own lines"


@public_in("jitney.types")
@dataclass(frozen=True)
class MemoryPeak:
    """The most that was held at once.

    Args:
        of: "the process", a device, or the function that was compiled.
        place: The user's line at that time, `fit.py:12 (step)`.
        seconds: Time since the beginning.
        bytes: Bytes held.
        before: Bytes held at the beginning of what was watched, or of the compile.
        exact: Whether a counter of the system gives the figure, to within some pages. Else it is
            the largest sample, and there may have been more between two samples.
    """

    of: str
    place: str
    seconds: float
    bytes: int
    before: int
    exact: bool

    @property
    def added(self) -> int:
        """Bytes that came on top of those at the beginning."""
        return self.bytes - self.before


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class MemoryCourse(Shown):
    """Memory over a run; `jitney.watch(memory=True)` has it as `memory`.

    Args:
        source: Where the figures of the process come from, or why there are none.
        seconds: Length of the course.
        points: Seconds since the beginning, and bytes of the process. Each point is the most since
            the one before.
        peak: Peak of the process; None if nothing is known.
        highest: The most that the process has held since it started, by the system: the peak is
            not above it. None if the system does not keep that.
        devices: Peaks of the devices that report their memory. CPUs do not: their arrays are in the
            memory of the process.
        compiling: Peaks of the process while a function was compiled, most added first.
        budget: Bytes beyond which there is a warning.
        missed: Number of samples that the system refused.
    """

    source: str
    seconds: float
    points: tuple[tuple[float, int], ...]
    peak: MemoryPeak | None
    highest: int | None
    devices: tuple[MemoryPeak, ...]
    compiling: tuple[MemoryPeak, ...]
    budget: int | None
    missed: int

    def to_dict(self) -> Data:
        """The course as data, for JSON."""
        return {
            **vars(self),
            "points": [list(point) for point in self.points],
            "peak": None if self.peak is None else vars(self.peak),
            "devices": [vars(each) for each in self.devices],
            "compiling": [vars(each) for each in self.compiling],
        }

    def svg(self) -> Picture:
        """Draw the course as SVG text, with the peak and the budget."""
        return draw(self.to_dict())

    def _repr_html_(self) -> str:
        from .._text.console import html_of

        return self.svg() + html_of(self)

    def __rich__(self) -> Table:
        from .._text.console import table

        lines = self._lines()
        rows = [[(name, ""), (value, "bold"), (more, "")] for name, value, more in lines]
        return table("memory", rows)

    def _lines(self) -> Iterator[tuple[str, str, str]]:
        if self.peak is None:
            yield "the process", "unknown", self.source
        else:
            yield _line(self.peak)
            yield "", "", sparkline(self.points)
        for each in self.devices:
            yield _line(each)
        if not self.devices:
            yield "devices", "unknown", "none reports its memory; arrays of CPUs are the process's"
        for each in self.compiling[:_SHOWN]:
            yield (
                f"compiling {each.of}",
                f"+{text(each.added)}",
                f"to {text(each.bytes)}; {each.place}",
            )
        if self.budget is not None:
            over = self.peak is not None and self.peak.bytes > self.budget
            yield "budget", text(self.budget), "exceeded" if over else "kept"
        if self.missed:
            yield "missed", f"{self.missed}", "samples that the system refused"


def _line(peak: MemoryPeak) -> tuple[str, str, str]:
    how = "" if peak.exact else ", the largest sample"
    began = f"from {text(peak.before)}"
    return peak.of, text(peak.bytes), f"peak{how}, at {peak.seconds:.2f} s, {began}; {peak.place}"


def sparkline(points: Sequence[tuple[float, int]]) -> str:
    """Draw a course in one line of text: each character is the most in its time."""
    end = points[-1][0] or 1.0
    most = max(held for _, held in points) or 1
    columns: list[int | None] = [None] * _WIDE
    for at, held in points:
        i = min(_WIDE - 1, max(0, int(_WIDE * at / end)))
        columns[i] = max(held, columns[i] or 0)

    drawn, last = "", points[0][1]
    for column in columns:
        # Between two samples the last figure holds.
        last = last if column is None else column
        drawn += _BLOCKS[min(len(_BLOCKS) - 1, len(_BLOCKS) * last // most)]
    return f"{drawn} {end:.1f} s"


def draw(course: Record) -> Picture:
    """Draw the data of a course: time to the right, memory of the process upwards."""
    points: Sequence[tuple[float, int]] = course["points"]
    budget: int | None = course["budget"]
    most = 1.1 * max([held for _, held in points] + [budget or 0, 1])
    end = max([at for at, _ in points] + [course["seconds"], 1e-3])

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 10) * at / end

    def y(held: float) -> float:
        return (_HEIGHT - _BOTTOM) * (1 - held / most)

    base = _HEIGHT - _BOTTOM
    line = " ".join(f"{x(at):.1f},{y(held):.1f}" for at, held in points)
    parts = [
        f'<path d="M{_LEFT} 0V{base}H{_WIDTH - 10}" fill="none" {FRAME}/>',
        f'<polyline points="{line}" fill="none" stroke="{A}" stroke-width="1.5"/>',
        words(_LEFT - 6, y(0), "0", "soft", "end"),
        words(_WIDTH - 10, base + 16, f"{end:.1f} s", "soft", "end"),
    ]
    if budget is not None:
        dash = f'stroke="{B}" stroke-dasharray="4 3"'
        parts.append(f'<path d="M{_LEFT} {y(budget):.1f}H{_WIDTH - 10}" {dash}/>')
        parts.append(words(_LEFT - 6, y(budget), "budget", "soft", "end"))
    peak: Record | None = course["peak"]
    if peak is not None:
        at, held = x(peak["seconds"]), y(peak["bytes"])
        parts.append(f'<circle cx="{at:.1f}" cy="{held:.1f}" r="4" fill="{B}"/>')
        parts.append(words(_LEFT - 6, held + 4, text(peak["bytes"]), "soft", "end"))
        parts.append(words(_LEFT, base + 34, f"peak at {peak['place']}", "code"))
    label = f"memory of the process over {end:.1f} s"
    return picture("jitney-memory", label, _WIDTH, _HEIGHT, parts)


def place_of_frames(frames: Sequence[Frame]) -> str:
    """Text of the innermost user's line of a recorded stack: `fit.py:12 (step)`."""
    for file, line, function in frames:
        if is_users(file):
            return f"{short(file)}:{line} ({function})"
    return ELSEWHERE


def _peak(
    of: str,
    peak: Peak,
    before: int,
    began: float,
) -> MemoryPeak:
    place = place_of_frames(peak.frames)
    seconds = max(0.0, peak.time - began)
    return MemoryPeak(of, place, seconds, peak.bytes, before, peak.exact)


def course(
    sampler: Sampler,
    began: float,
    compiling: Sequence[MemoryPeak],
) -> MemoryCourse:
    """Return what a sampler has seen until now."""
    own = sampler.process
    peak = None
    if own.peak is not None and own.first is not None:
        peak = _peak("the process", own.peak, own.first.bytes, began)
    devices = [
        _peak(name, track.peak, track.first.bytes, began)
        for name, track in sorted(sampler.devices.items())
        if track.peak is not None and track.first is not None
    ]
    points = tuple((max(0.0, at - began), held) for at, held in own.points)
    # The kernel counts by core and adds up later, so its figures differ by some pages.
    highest = None if own.last is None else own.last.highest
    if highest is not None and peak is not None:
        highest = max(highest, peak.bytes)
    return MemoryCourse(
        sampler.source or "this system says it only to psutil: python -m pip install psutil",
        points[-1][0] if points else 0.0,
        points,
        peak,
        highest,
        tuple(devices),
        tuple(sorted(compiling, key=lambda each: -each.added)),
        sampler.budget,
        sampler.missed,
    )


class MemoryWatch:
    """Sampler of one `jitney.watch`, and the peaks of its compiles by function and line."""

    def __init__(self, budget: int | None) -> None:
        self.sampler = Sampler(budget, self._warn)
        self._began: float | None = None
        self._compiling: dict[tuple[str, str], MemoryPeak] = {}
        # The warning, if a filter has made an error of it.
        self.raised: MemoryWarning | None = None

    def start(self) -> None:
        """Start, or go on."""
        self._began = self._began or time.time()
        self.sampler.start()

    def compiled(
        self,
        name: str,
        place: str,
        start: float,
        end: float,
    ) -> None:
        """Note the peak of a compile that is over; the larger of two of one function and line."""
        # JAX has a backend now: asking for its devices before would start it.
        watch_local_devices(self.sampler)
        seen = self.sampler.between(start, end)
        if seen is None:
            return
        peak = compile_peak(name, place, end - (self._began or end), seen)
        known = self._compiling.get((name, place))
        if peak is not None and (known is None or known.added < peak.added):
            self._compiling[name, place] = peak

    def course(self) -> MemoryCourse:
        """Return the course until now."""
        return course(self.sampler, self._began or 0.0, list(self._compiling.values()))

    def _warn(self, peak: Peak) -> None:
        """Warn in the sampler's thread, at the user's line, since the end of the block may be too
        late.
        """
        try:
            warn_budget("jitney.watch()", peak, self.sampler.budget or 0)
        except MemoryWarning as error:
            # An error of this thread would reach nobody: the end of the block raises it.
            self.raised = error


def compile_peak(
    name: str,
    place: str,
    seconds: float,
    seen: tuple[int, int],
) -> MemoryPeak | None:
    """Return the peak of a compile; None if it added next to nothing."""
    before, most = seen
    if most - before < _LEAST:
        return None
    return MemoryPeak(name, place, seconds, most, before, exact=False)


def watch_local_devices(sampler: Sampler) -> None:
    """Sample the devices of this process too. JAX must have started its backend."""
    readers: Mapping[str, Callable[[], Mapping[str, int] | None]] = {
        str(device): device.memory_stats for device in jax.local_devices()
    }
    sampler.watch_devices(readers)


def warn_budget(
    where: str,
    peak: Peak,
    budget: int,
) -> None:
    """Warn that the process holds more than a budget, at the user's line of that time."""
    of_user = (frame for frame in peak.frames if is_users(frame[0]))
    file, line, _ = next(of_user, ("<unknown>", 1, ""))
    message = format_error(
        where,
        f"the process holds {text(peak.bytes)}, at {place_of_frames(peak.frames)}.",
        f"The budget is {text(budget)}.",
        "cut an axis (`chunk=`, `memory=`), delete arrays that are not needed, or allow more.",
    )
    warnings.warn_explicit(message, MemoryWarning, file, line)


def read_budget(where: str, memory: object) -> int | None:
    """Return the budget in bytes of `memory=`; None for True, which has none.

    Raises:
        OptionError: It is neither True nor a size.
    """
    if memory is True:
        return None
    size = parsed_bytes(memory)
    if size is None or size == AUTO:
        raise OptionError(
            where,
            f"memory={memory!r} is not understood.",
            "It is True, or a size beyond which there is a warning.",
            'write memory=True, or memory="8GiB".',
            code="J208",
        )
    return int(size)
