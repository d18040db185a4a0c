"""Samples of memory: the peak, the course and where the figures come from."""

import os

import numpy as np
import pytest

from jitney._host import memory_samples as samples
from jitney._host.memory_samples import HeldBytes, Peak, Sampler, Track

MIB = 2**20


def track(*readings: tuple[int, int | None]) -> Track:
    """A course of readings, one a second."""
    course = Track()
    for at, (held, highest) in enumerate(readings):
        course.add(float(at), HeldBytes(held, highest), tuple)
    return course


def test_what_the_system_counted_between_two_samples_is_the_peak():
    """Where its most has grown; else the largest sample, which may miss something."""
    assert track((10, 50), (20, 90), (15, 90)).peak == Peak(1.0, 90, True, ())
    assert track((10, 50), (20, 50), (15, 50)).peak == Peak(1.0, 20, False, ())
    assert track((10, None), (20, None)).peak == Peak(1.0, 20, False, ())


def test_a_peak_has_the_line_that_reached_it():
    """Not that of some pages more, which memory that is held on gets; many pages are a new one."""
    course, grown = Track(), [100.0, 300.0, 300.5, 301.0, 301.5]
    for at, held in enumerate(grown):
        reading = HeldBytes(int(held * MIB), None)
        course.add(float(at), reading, lambda at=at: (("f.py", at, "f"),))
        if held == 301.0:
            assert course.peak == Peak(1.0, 301 * MIB, False, (("f.py", 1, "f"),))
    assert course.peak == Peak(4.0, int(301.5 * MIB), False, (("f.py", 4, "f"),))


def test_a_long_course_gets_coarser_and_keeps_its_peaks():
    """Each point is the most in its time."""
    held = np.random.default_rng(0).integers(0, 1000, 5000).tolist()
    course = track(*((each, None) for each in held))
    assert len(course.points) <= samples._POINTS + 1
    ends = [int(at) for at, _ in course.points]
    begins = [0, *(end + 1 for end in ends[:-1])]
    most = [max(held[a : b + 1]) for a, b in zip(begins, ends, strict=True)]
    assert [each for _, each in course.points] == most
    assert ends[-1] == 4999


@pytest.mark.rest
def test_memory_that_is_held_is_seen():
    """Bytes of an array of 64 MiB, by each source; the most so far for `getrusage`."""
    for _, read in samples._SOURCES:
        before = read()
        held = np.ones(8 * MIB)
        after = read()
        assert before is not None
        assert after is not None
        if read is not samples._of_rusage:
            assert 62 * MIB <= after.bytes - before.bytes <= 70 * MIB
        assert (after.highest or 0) >= 64 * MIB
        del held


@pytest.mark.rest
def test_without_proc_and_psutil_the_peak_so_far_is_known(monkeypatch, tmp_path):
    """Each is named; where there is nothing, nothing is."""
    assert samples.source()[0] == "/proc" or not samples._STATUS.exists()
    monkeypatch.setattr(samples, "_STATUS", tmp_path / "none")
    assert samples.source()[0] == "psutil"
    there = {"psutil", "resource"}
    monkeypatch.setattr(
        samples.importlib.util, "find_spec", lambda name: True if name in there else None
    )
    there.remove("psutil")
    assert samples.source()[0] == samples.RUSAGE
    there.clear()
    assert samples.source() is None
    sampler = Sampler()
    sampler.start()
    sampler.stop()
    assert (sampler.source, sampler.process.peak, sampler.missed) == (None, None, 2)


def test_a_fork_takes_no_samples_of_its_parents(monkeypatch):
    """Nor does it wait for a thread that it does not have."""
    sampler = Sampler()
    sampler.start()
    child = os.getpid() + 1
    monkeypatch.setattr(samples.os, "getpid", lambda: child)
    seen = len(sampler.process.points)
    sampler.sample()
    sampler.stop()
    assert sampler.between(0.0, 1.0) is None
    assert len(sampler.process.points) == seen
    monkeypatch.undo()
    sampler.stop()


@pytest.mark.rest
def test_the_budget_is_exceeded_once():
    """With the stack of the thread that is watched."""
    over: list[Peak] = []
    sampler = Sampler(1, over.append)
    sampler.start()
    sampler.sample()
    sampler.stop()
    (peak,) = over
    assert any(file == __file__ for file, _, _ in peak.frames)


def test_devices_that_report_nothing_are_left_out():
    """One that does has the peak that it counts."""
    stats = iter(
        [{"bytes_in_use": 5}, *({"bytes_in_use": n, "peak_bytes_in_use": 9} for n in (5, 7))]
    )
    sampler = Sampler()
    sampler.watch_devices({"cpu:0": lambda: None, "gpu:0": lambda: next(stats)})
    sampler.sample()
    sampler.sample()
    assert {name: each.peak.bytes for name, each in sampler.devices.items()} == {"gpu:0": 7}
