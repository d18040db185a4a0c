"""Seconds of calls, without waiting for them."""

import threading

import pytest

from jitney._program.auto import call_times
from jitney._program.auto.call_times import CallTimes
from tests._patience import patience


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [0.0]
    monkeypatch.setattr(call_times, "clock", lambda: now[0])
    return now


def test_calls_of_doubling_numbers_are_timed(clock):
    """Of the others only their number is known."""
    times, numbers = CallTimes(), []

    def call():
        clock[0] += 2.0

    for number in range(1, 20):
        timed = times.timed
        times.run(call)
        if times.timed > timed:
            numbers.append(number)
    assert numbers == [1, 2, 4, 8, 16]
    assert times.taken == 19 * 2.0


def test_each_call_counts_as_the_shortest(clock):
    """One that was disturbed makes no other longer."""
    times = CallTimes()
    for seconds in (5.0, 2.0):

        def call(seconds=seconds):
            clock[0] += seconds

        times.run(call)
    assert (times.least, times.taken) == (2.0, 4.0)


def test_the_usual_seconds_are_the_median_of_calls_that_began_alone(clock):
    """Others may have waited for the device; until there is such a call, they are the least."""
    times, took = CallTimes(), iter([9.0, 8.0, 2.0, 5.0, 6.0])

    def call():
        clock[0] += next(took)

    assert times.usual is None
    times.run(call)
    times.run(call)
    assert times.usual == 8.0
    for _ in range(3):
        times.run(call, alone=True)
    assert (times.least, times.usual) == (2.0, 5.0)


class Pending:
    """A result that the device is still at."""

    def __init__(self):
        self.done = threading.Event()

    def is_ready(self):
        return self.done.is_set()

    def block_until_ready(self):
        self.done.wait(patience(60))


def test_a_result_that_is_not_ready_is_not_waited_for():
    """The call returns, and another thread waits."""
    times, seen, result = CallTimes(), threading.Event(), Pending()
    assert times.run(lambda: result) is result
    assert times.timed == 0
    result.done.set()
    call_times.WATCHERS.submit(seen.set)
    assert seen.wait(patience(60))
    assert times.timed == 1


def test_a_result_that_was_donated_meanwhile_is_not_timed():
    """Nor is the thread lost that waited for it."""

    class Deleted(Pending):
        def block_until_ready(self):
            raise RuntimeError("Array has been deleted.")

    times, seen = CallTimes(), threading.Event()
    times.run(Deleted)
    call_times.WATCHERS.submit(seen.set)
    assert seen.wait(patience(60))
    assert (times.calls, times.timed) == (1, 0)


def test_a_call_that_fails_is_not_timed():
    """Its error is for whoever reads the result."""
    times = CallTimes()

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        times.run(fail)
    assert (times.calls, times.timed) == (1, 0)


def test_the_cores_that_calls_keep_busy_are_those_of_calls_that_began_alone(clock, monkeypatch):
    """Seconds of all cores by seconds; one core, until there is such a call."""
    of_cores = [0.0]
    monkeypatch.setattr(call_times, "cpu_clock", lambda: of_cores[0])
    times, both = CallTimes(), iter([(2.0, 0.5), (2.0, 3.6), (4.0, 7.6), (1.0, 1.2)])

    def call():
        took, cores = next(both)
        clock[0] += took
        of_cores[0] += cores

    times.run(call)
    assert times.busy == 1.0
    for _ in range(3):
        times.run(call, alone=True)
    assert times.busy == pytest.approx(1.8)
