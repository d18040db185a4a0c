"""A machine without a clock for `auto`: each way takes what a test says, on two cores."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import jax
import numpy as np
import pytest

from jitney._host.limits import HostLimit
from jitney._program.auto import auto_calls, call_times, trials
from jitney._program.auto.search import WHOLE
from jitney._program.runners.workers import device_parts, worker_calls


class Machine:
    """Seconds an element by way (of all others 1), and seconds of each compile."""

    def __init__(self):
        # Each thread has its own time, as each has a core of its own.
        self._time = threading.local()
        self.rates: dict[object, float] = {}
        self.compiling = 10.0
        self.cores = 2
        self.busy = 1.0  # of them, by a call of the whole
        self.runs: list[tuple[str, int]] = []
        self.compiled: set[object] = set()

    @property
    def now(self):
        """Seconds since the thread began."""
        return getattr(self._time, "now", 0.0)

    @now.setter
    def now(self, seconds):
        self._time.now = seconds

    def compile(self, way, elements):
        """Let the time of a compile pass, if there was none."""
        if way != WHOLE and (way, elements) not in self.compiled:
            self.compiled.add((way, elements))
            self.now += self.compiling

    def run(self, way, elements):
        """Let the time of a run pass."""
        self.runs.append((str(way), elements))
        self.compile(way, elements)
        self.now += self.rates.get(str(way), 1.0) * elements

    @property
    def tried(self):
        """Ways besides the whole, in the order of their first runs."""
        return [*dict.fromkeys(way for way, _ in self.runs if way != "whole")]


@contextmanager
def run_by(it: Machine) -> Iterator[None]:
    """Every run of a call takes the seconds of this machine."""
    of = auto_calls.AutoCalls
    run, run_alone, refused = of.run_way, of.run_alone, of.refused_program

    def elements(way, arrays):
        return way.tried or max(len(array) for array in arrays if np.ndim(array))

    def timed(calls, way, arrays):
        out = jax.block_until_ready(run(calls, way, arrays))
        it.run(way, elements(way, arrays))
        return out

    def timed_alone(calls, way, arrays):
        out = jax.block_until_ready(run_alone(calls, way, arrays))
        it.now += it.rates.get(str(replace(way, carrier="")), 1.0) * elements(way, arrays)
        return out

    def compiled(calls, way, arrays):
        why = refused(calls, way, arrays)
        if not why:
            it.compile(way, elements(way, arrays))
        return why

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, "run_way", timed)
        patch.setattr(of, "run_alone", timed_alone)
        patch.setattr(of, "refused_program", compiled)
        patch.setattr(of, "compile_seconds", lambda calls, _: it.compiling)
        patch.setattr(call_times, "clock", lambda: it.now)
        patch.setattr(call_times, "cpu_clock", lambda: it.busy * it.now)
        for module in (auto_calls, trials, worker_calls, device_parts):
            patch.setattr(module, "allowed_cores", lambda: HostLimit("the machine", it.cores))
        yield
