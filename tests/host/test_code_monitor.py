"""The one home of `sys.monitoring`: ids, callbacks and events are given back, whatever happens."""

import sys
from collections import Counter

import pytest

from jitney._host.code_monitor import claim

IDS = range(6)
needs = pytest.mark.skipif(
    not hasattr(sys, "monitoring"), reason="Python 3.11 has no `sys.monitoring`"
)


class Table:
    """A stand-in for `sys.monitoring`, with the same table of ids."""

    def __init__(self, taken=(), lost=()):
        self.tools, self.lost = dict.fromkeys(taken, "another"), set(lost)

    def get_tool(self, tool):
        return self.tools.get(tool)

    def use_tool_id(self, tool, name):
        if tool in self.tools or tool in self.lost:
            raise ValueError("tool is already in use")
        self.tools[tool] = name


@pytest.fixture
def table(monkeypatch):
    def put(*args, **kwargs):
        made = Table(*args, **kwargs)
        monkeypatch.setattr(sys, "monitoring", made, raising=False)
        return made

    return put


def first():
    return 1


def second():
    return first()


def test_an_id_that_another_thread_takes_meanwhile_is_passed_over(table):
    """Between the question whether it is free and the claim."""
    made = table(taken=[3], lost=[4])
    assert claim() is not None
    assert made.tools == {3: "another", 5: "jitney"}


def test_without_a_free_id_there_is_no_monitor(table):
    """The caller says so, and does without."""
    made = table(taken=IDS)
    assert claim() is None
    assert set(made.tools.values()) == {"another"}


@pytest.mark.rest
def test_in_python_3_11_there_is_no_monitor(monkeypatch):
    """It has no `sys.monitoring`."""
    monkeypatch.delattr(sys, "monitoring", raising=False)
    assert claim() is None


@needs
def test_two_monitors_hear_the_same_code_and_give_all_back():
    """An inner one that ends, or breaks off in its first event, leaves the outer one as it was."""
    free = {i for i in IDS if sys.monitoring.get_tool(i) is None}
    heard = Counter()
    outer, inner = claim(), claim()

    def broken(code, _):
        if code is first.__code__:
            raise KeyError("a fault in a callback")

    try:
        outer.begin(
            {"PY_START": lambda code, _: heard.update([code.co_name])}, everywhere=("PY_START",)
        )
        inner.begin({"PY_START": broken}, everywhere=("PY_START",))
        with pytest.raises(KeyError):
            second()
        inner.end()
        assert second() == 1
    finally:
        outer.end()
    assert heard["second"] == 2
    assert heard["first"] in (1, 2)  # the fault may come before its turn
    assert {i for i in IDS if sys.monitoring.get_tool(i) is None} == free
    second()
    assert heard["second"] == 2


@needs
def test_events_of_one_code_object_end_with_the_monitor():
    """Those that are heard of it alone, with an event that does not exist in between."""
    calls = []
    monitor = claim()
    try:
        monitor.begin({"CALL": lambda code, *_: calls.append(code.co_name)}, everywhere=())
        monitor.listen(second.__code__, "CALL")
        with pytest.raises(AttributeError):
            monitor.listen(first.__code__, "NO_EVENT")
        second()
        assert monitor.listens(second.__code__)
    finally:
        monitor.end()
    second()
    assert calls == ["second"]
