"""Write a trace for Perfetto: JAX's, and stages and named axes as rows of their own.

In JAX's own file an operation has the name that XLA gave it, and nothing of the scopes that it
stands in.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .profile_figures import Ran, by_thread, operations_of
from .trace_file import Span, Trace

# past the numbers of processes and rows that JAX gives on CPUs and devices: those of the scopes
_ROWS = 1_000_000
_MICROSECOND = 1e3  # nanoseconds


def write(trace: Trace, theirs: Path, file: Path) -> None:
    """Write what JAX recorded, and the scopes, in the format of Chrome's traces, which Perfetto
    opens.
    """
    recorded = json.loads(gzip.decompress(theirs.read_bytes()))
    title = {
        "ph": "M",
        "pid": _ROWS,
        "name": "process_name",
        "args": {"name": "programs, stages and named axes"},
    }
    events = [*recorded["traceEvents"], title, *_scopes(operations_of(trace))]
    unit = recorded.get("displayTimeUnit", "ns")
    # Without JAX's "metadata", which Perfetto does not take.
    file.write_bytes(
        gzip.compress(
            json.dumps({"displayTimeUnit": unit, "traceEvents": events}).encode(), compresslevel=1
        )
    )


def _scopes(ran: Sequence[Ran]) -> Iterator[dict[str, Any]]:
    """From the first to the last of the operations in a row that stand in a scope, that scope: the
    program outermost.
    """
    for thread in by_thread(ran):
        if thread:
            number = _ROWS + thread[0].span.thread
            yield {
                "ph": "M",
                "pid": _ROWS,
                "tid": number,
                "name": "thread_name",
                "args": {"name": thread[0].span.row},
            }
            for name, start, end in _bars([(_run(each), each.span) for each in _innermost(thread)]):
                yield _event(number, name, start, end)


def _run(each: Ran) -> tuple[tuple[str, Any], ...]:
    """The scopes, the program outermost, of which each run has its own."""
    return (
        (each.program, each.span.facts.get("run_id")),
        *((scope, None) for scope in each.scopes),
    )


def _innermost(thread: Sequence[Ran]) -> list[Ran]:
    """Those that hold no other."""
    following = [*thread[1:], None]
    return [
        each
        for each, after in zip(thread, following, strict=True)
        if after is None or after.span.start >= each.span.end
    ]


def _bars(
    spans: Sequence[tuple[tuple[tuple[str, Any], ...], Span]],
) -> Iterator[tuple[str, float, float]]:
    open_: list[tuple[tuple[str, Any], float]] = []
    end = 0.0
    for scopes, span in spans:
        shared = 0
        while shared < min(len(open_), len(scopes)) and open_[shared][0] == scopes[shared]:
            shared += 1
        for (name, _), start in open_[shared:]:
            yield name, start, end
        open_ = [*open_[:shared], *((scope, span.start) for scope in scopes[shared:])]
        end = span.end
    for (name, _), start in open_:
        yield name, start, end


def _event(row: int, name: str, start: float, end: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": _ROWS,
        "tid": row,
        "name": name,
        "ts": start / _MICROSECOND,
        "dur": (end - start) / _MICROSECOND,
    }
