"""One watch of the code that a thread runs, in each version of Python, and its faults."""

import sys
import threading
from collections import Counter

import pytest

from jitney._host.code_monitor import ThreadObserver, watch_thread

HAS_MONITORING = hasattr(sys, "monitoring")
by_profile = pytest.mark.skipif(HAS_MONITORING, reason="Python 3.12 has `sys.monitoring`")
by_monitoring = pytest.mark.skipif(not HAS_MONITORING, reason="Python 3.11 has a profile function")


class Heard(ThreadObserver):
    """Notes what it hears of the functions of this file."""

    def __init__(self, events=(), *, again=()):
        self.events, self.again = events, again
        self.starts, self.calls, self.values = Counter(), [], []

    def check_start(self, frame):
        name = frame.f_code.co_name
        if frame.f_code.co_filename == __file__:
            self.starts[name] += 1
        return name not in self.again

    def events_of(self, code):
        return self.events if code is counts.__code__ else ()

    def check_call(self, called, frame, first=None):
        self.calls.append((getattr(called, "__name__", "?"), frame.f_code.co_name))

    def note_return(self, value):
        self.values.append(value)


def leaf():
    return abs(-1)


def counts():
    return leaf() + len("ab")


def occupied():
    """What a watch takes: the profile function, or the ids of tools."""
    if HAS_MONITORING:
        return [sys.monitoring.get_tool(i) for i in range(6)]
    return sys.getprofile()


def test_a_function_is_told_once_unless_its_check_asks_for_more():
    """Later starts of checked code cost nothing."""
    heard = Heard(again=("leaf",))
    with watch_thread(heard) as watch:
        counts()
        counts()
    assert not watch.is_blind
    assert heard.starts == {"counts": 1, "leaf": 2}


def test_calls_and_results_are_told_of_the_code_that_was_asked_for():
    """Those of other functions, as of the `abs` inside, are not."""
    heard = Heard(("CALL", "PY_RETURN"))
    with watch_thread(heard):
        assert counts() == 3
    assert ("len", "counts") in heard.calls
    assert all(where == "counts" for _, where in heard.calls)
    assert heard.values == [3]


def test_an_inner_watch_leaves_the_outer_one_as_it_was():
    """Both hear what runs inside; the outer one goes on."""
    before = occupied()
    outer, inner = Heard(again=("leaf",)), Heard(again=("leaf",))
    with watch_thread(outer) as first, watch_thread(inner) as second:
        leaf()
    with watch_thread(outer):
        with watch_thread(inner):
            leaf()
        leaf()
    assert not first.is_blind
    assert not second.is_blind
    assert outer.starts["leaf"] == 3
    assert inner.starts["leaf"] == 2
    assert occupied() == before


def test_another_thread_is_not_told_of():
    """What it runs is no part of the trace."""
    heard = Heard(again=("leaf",))
    with watch_thread(heard):
        thread = threading.Thread(target=leaf)
        thread.start()
        thread.join()
    assert heard.starts["leaf"] == 0


def test_a_fault_of_the_observer_is_raised_and_leaves_nothing_behind():
    """The error is that of the fault, and the profile function or the tool id is free again."""

    class Broken(Heard):
        def check_start(self, frame):
            if frame.f_code is leaf.__code__:
                raise KeyError("a fault of the observer")
            return True

    before = occupied()
    with pytest.raises(KeyError, match="a fault of the observer"), watch_thread(Broken()):
        leaf()
    assert occupied() == before


def test_an_error_of_the_body_leaves_nothing_behind():
    """The watch ends where the block does."""
    before = occupied()
    with pytest.raises(ZeroDivisionError), watch_thread(Heard()):
        _ = 1 / 0
    assert occupied() == before


@by_profile
def test_the_profile_function_of_another_tool_stays_and_the_watch_is_blind():
    """It goes on hearing; the watch says that it hears nothing."""
    events = []
    other = lambda *event: events.append(event[1])
    heard = Heard()
    sys.setprofile(other)
    try:
        with watch_thread(heard) as watch:
            leaf()
        stays = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert watch.is_blind
    assert stays is other
    assert events
    assert not heard.starts


@by_profile
def test_a_body_that_is_profiled_inside_makes_each_watch_blind():
    """What ran after it was not heard, by the outer watch neither; the body's function stays."""
    other = lambda *event: None
    try:
        with watch_thread(Heard()) as outer, watch_thread(Heard()) as inner:
            sys.setprofile(other)
        stays = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert inner.is_blind
    assert outer.is_blind
    assert stays is other


@by_monitoring
def test_without_a_free_tool_id_the_watch_is_blind(monkeypatch):
    """Debuggers, profilers and coverage hold six at most."""
    monkeypatch.setattr(sys.monitoring, "get_tool", lambda _: "another")
    heard = Heard()
    with watch_thread(heard) as watch:
        leaf()
    assert watch.is_blind
    assert not heard.starts
