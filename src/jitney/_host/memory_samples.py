"""Memory that this process and its devices hold, sampled by a thread.

    sampler = Sampler()
    sampler.start()
    ...
    sampler.stop()
    sampler.points  ->  [(1700000000.01, 210 MiB), (1700000000.02, 455 MiB), ...]

`launch.py` loads this file by its path, before the program imports JAX, so it imports the standard
library alone. It stands at the bottom, beside the limits of the process.

A sample between two others misses what was allocated and freed in between. The kernel of Linux
knows better: it keeps the most that the process has ever held. Where that has grown since the last
sample, it is the peak of the time between them. So a peak is exact if it is the highest of the
process so far, and otherwise the largest sample.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

Frame = tuple[str, int, str]
"""File, line and function."""
DeviceReader = Callable[[], Mapping[str, int] | None]
"""Method `memory_stats` of a device of JAX."""
# Seconds between two samples, at first and in long runs.
INTERVAL, LONGEST = 0.01, 0.1
# Points beyond which each two become one.
_POINTS = 2000
# Memory that is held on grows by some pages: a peak keeps its line until this part of it is added.
_MORE = 1 / 256
# Frames of a stack that are recorded.
_DEEP = 40
_STATUS = Path("/proc/self/status")
_RESETS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class HeldBytes:
    """Memory at one moment.

    Args:
        bytes: Bytes held now.
        highest: The most that were ever held; None if nobody keeps that.
    """

    bytes: int
    highest: int | None


def _of_proc() -> HeldBytes | None:
    """HeldBytes of Linux's `/proc`."""
    try:
        text = _STATUS.read_bytes()
    except OSError:
        return None
    sizes: dict[bytes, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b":")
        if name in (b"VmRSS", b"VmHWM"):
            sizes[name] = int(rest.split()[0]) * 1024
    if b"VmRSS" not in sizes:
        return None
    return HeldBytes(sizes[b"VmRSS"], sizes.get(b"VmHWM"))


def _of_psutil() -> HeldBytes | None:
    """HeldBytes of psutil, where it is installed."""
    if importlib.util.find_spec("psutil") is None:
        return None
    info = importlib.import_module("psutil").Process().memory_info()
    # Windows keeps a peak, `getrusage` of other systems does.
    peak = getattr(info, "peak_wset", None)
    return HeldBytes(info.rss, _most_by_rusage() if peak is None else peak)


def _most_by_rusage() -> int | None:
    if importlib.util.find_spec("resource") is None:
        return None
    resource = importlib.import_module("resource")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _of_rusage() -> HeldBytes | None:
    """The most so far, for want of the bytes that are held now."""
    most = _most_by_rusage()
    return None if most is None else HeldBytes(most, most)


RUSAGE = "getrusage, which knows the peak so far and not what is held now"
_SOURCES: Sequence[tuple[str, Callable[[], HeldBytes | None]]] = (
    ("/proc", _of_proc),
    ("psutil", _of_psutil),
    (RUSAGE, _of_rusage),
)


def source() -> tuple[str, Callable[[], HeldBytes | None]] | None:
    """Return the first source that has a figure here, by its name; None if there is none."""
    return next((each for each in _SOURCES if each[1]() is not None), None)


def reset_highest() -> bool:
    """Let the kernel count the most from now on; return whether it does.

    Only Linux can, and it asks for a right over the process itself. `getrusage` counts anew too.
    """
    try:
        _RESETS.write_text("5")
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Peak:
    """The most that was held, when, and where the watched thread was then.

    Args:
        time: Seconds since 1970, when all but a 256th of it was held for the first time.
        bytes: Bytes held.
        exact: Whether the figure is of a counter that misses nothing, not of a sample.
        frames: Stack of the watched thread at that time, innermost first.
    """

    time: float
    bytes: int
    exact: bool
    frames: tuple[Frame, ...]


class Track:
    """Course of one figure: its peak, and points that get coarser as they get many.

    Attributes:
        points: Seconds since 1970 and bytes. A point is the most since the point before.
        first: Bytes at the first sample.
        peak: The most of all samples.
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []
        self.first: HeldBytes | None = None
        self.last: HeldBytes | None = None
        self.peak: Peak | None = None
        # Samples in a point, and in the last one.
        self.stride, self._filled = 1, 0
        # Bytes at the time and the line of the peak.
        self._reached = 0

    def add(
        self,
        now: float,
        reading: HeldBytes,
        frames: Callable[[], tuple[Frame, ...]],
    ) -> None:
        before, self.last = self.last, reading
        self.first = self.first or reading
        held, exact = reading.bytes, False
        if (
            before is not None
            and before.highest is not None
            and reading.highest is not None
            and reading.highest > before.highest
        ):
            held, exact = max(held, reading.highest), True

        peak = self.peak
        if peak is None or held - self._reached > _MORE * held:
            self.peak, self._reached = Peak(now, held, exact, frames()), held
        elif held > peak.bytes:
            self.peak = Peak(peak.time, held, exact, peak.frames)
        if self._filled:
            held = max(held, self.points.pop()[1])
        self.points.append((now, held))
        self._filled = (self._filled + 1) % self.stride
        if len(self.points) > _POINTS and not self._filled:
            self._halve()

    def _halve(self) -> None:
        """Merge each two points; the last stays alone if their number is odd."""
        pairs = [self.points[i : i + 2] for i in range(0, len(self.points), 2)]
        self.points = [(pair[-1][0], max(held for _, held in pair)) for pair in pairs]
        self.stride *= 2


class Sampler:
    """Thread that reads the memory of the process, and of devices that JAX reports it of.

    Attributes:
        source: Name of the source of the process's figures; None if there is none.
        process: Course of the process.
        devices: Courses by the names of devices.
        missed: Number of samples that the system refused.
    """

    def __init__(
        self,
        budget: int | None = None,
        over: Callable[[Peak], None] | None = None,
    ) -> None:
        found = source()
        self.source = None if found is None else found[0]
        self._read = None if found is None else found[1]
        self.process = Track()
        self.devices: dict[str, Track] = {}
        self.missed = 0
        self.budget = budget
        self._over = over
        self._readers: dict[str, DeviceReader] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched = 0
        # A fork has this object, but neither its thread nor a lock that one can trust.
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Return whether this is the process that made or started the sampler, and no fork."""
        return self._pid == os.getpid()

    def start(self) -> None:
        """Sample until `stop`; the lines of peaks are those of the calling thread."""
        self._pid = os.getpid()
        self._watched = threading.get_ident()
        self._end.clear()
        self.sample()
        self._thread = threading.Thread(target=self._run, name="jitney-memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample, and end the thread."""
        if not self.is_here or self._thread is None:
            return
        self._end.set()
        self._thread.join()
        self._thread = None
        self.sample()

    def watch_devices(self, readers: Mapping[str, DeviceReader]) -> None:
        """Sample devices too: those that report their memory, which CPUs do not."""
        if not self._readers and self.is_here:
            self._readers = {name: each for name, each in readers.items() if each() is not None}

    def _run(self) -> None:
        while not self._end.wait(min(LONGEST, INTERVAL * self.process.stride)):
            self.sample()

    def sample(self) -> None:
        """Take a sample now."""
        if not self.is_here:
            return
        with self._lock:
            reading = self._read and self._read()
            now = time.time()
            if reading is None:
                self.missed += 1
            else:
                self.process.add(now, reading, self._frames)
            for name, read in self._readers.items():
                stats = read()
                if stats is not None and "bytes_in_use" in stats:
                    held = HeldBytes(stats["bytes_in_use"], stats.get("peak_bytes_in_use"))
                    self.devices.setdefault(name, Track()).add(now, held, self._frames)
        self._judge()

    def _judge(self) -> None:
        with self._lock:
            peak, over = self.process.peak, self._over
            if self.budget is None or peak is None or peak.bytes <= self.budget:
                return
            self._over = None
        if over is not None:
            over(peak)

    def between(self, start: float, end: float) -> tuple[int, int] | None:
        """Return the bytes before a time and the most in it, with a sample now; None in a fork, or
        if nothing was sampled.
        """
        self.sample()
        if not self.is_here or not self.process.points:
            return None
        with self._lock:
            points = self.process.points
            before = [held for at, held in points if at <= start] or [points[0][1]]
            inside = [held for at, held in points if start < at <= end]
            return before[-1], max([*inside, points[-1][1]])

    def _frames(self) -> tuple[Frame, ...]:
        """Stack of the watched thread; empty once it has ended."""
        # Python documents this function, whose name looks private.
        stacks: Mapping[int, FrameType] = vars(sys)["_current_frames"]()
        frame = stacks.get(self._watched)
        found: list[Frame] = []
        while frame is not None and len(found) < _DEEP:
            code = frame.f_code
            found.append((code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return tuple(found)
