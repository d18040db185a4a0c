"""What the monitor of a trace goes on watching."""

import types

import pytest

from jitney._record import trace_monitor
from jitney._record.instructions import Codes
from jitney._record.sets import MAKES_SETS


@pytest.mark.parametrize("code", MAKES_SETS, ids=lambda code: code.co_qualname)
def test_code_that_makes_sets_is_watched_behind_a_harmless_caller(monkeypatch, code):
    """JAX may be the first that makes a set by it; the user's function may be the next."""
    frame = types.SimpleNamespace(f_code=code, f_globals={"__name__": "collections.abc"})
    ran = trace_monitor.TraceMonitor(Codes(), None, types.SimpleNamespace(codes=()))
    monkeypatch.setattr(trace_monitor, "_is_nobodys", lambda _: True)
    assert not ran.check_start(frame)
    assert ran.problem is None
