"""Trace file for Perfetto: JAX's own events, and rows for programs, stages and named axes.

In JAX's own file an operation has only its name in XLA, without the scopes that contain it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from .._text.json import Data
from .profile_figures import OperationRun, by_thread, operations_of
from .trace_file import ProfilerTrace, Span

# Number of the added process, and of its first row. JAX's own numbers, on CPUs and devices, are
# smaller.
_ROWS = 1_000_000
# Nanoseconds.
_MICROSECOND = 1e3


def write(trace: ProfilerTrace, theirs: Path, file: Path) -> None:
    """Write JAX's events and the scopes in the format of Chrome's traces, which Perfetto reads."""
    recorded = json.loads(gzip.decompress(theirs.read_bytes()))
    title = {
        "ph": "M",
        "pid": _ROWS,
        "name": "process_name",
        "args": {"name": "programs, stages and named axes"},
    }
    events = [*recorded["traceEvents"], title, *_scopes(operations_of(trace))]
    unit = recorded.get("displayTimeUnit", "ns")
    # JAX's "metadata" is left out, since Perfetto does not accept it.
    file.write_bytes(
        gzip.compress(
            json.dumps({"displayTimeUnit": unit, "traceEvents": events}).encode(), compresslevel=1
        )
    )


def _scopes(ran: Sequence[OperationRun]) -> Iterator[Data]:
    """Yield an event for each scope, from the first to the last of its operations in a row.

    The program is the outermost scope.
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


def _run(each: OperationRun) -> tuple[tuple[str, object], ...]:
    """Return the scopes of an operation with the program first, which is distinct for each run."""
    return (
        (each.program, each.span.facts.get("run_id")),
        *((scope, None) for scope in each.scopes),
    )


def _innermost(thread: Sequence[OperationRun]) -> list[OperationRun]:
    """Return the operations that contain no other."""
    # Operations are sorted by their start, so the next one shows whether anything is inside.
    following = [*thread[1:], None]
    return [
        each
        for each, after in zip(thread, following, strict=True)
        if after is None or after.span.start >= each.span.end
    ]


def _bars(
    spans: Sequence[tuple[tuple[tuple[str, object], ...], Span]],
) -> Iterator[tuple[str, float, float]]:
    open_: list[tuple[tuple[str, object], float]] = []
    end = 0.0
    for scopes, span in spans:
        # Keep the scopes that this operation shares with the one before it, close the others, and
        # open its own: adjacent operations of a scope become one bar.
        shared = 0
        while shared < min(len(open_), len(scopes)) and open_[shared][0] == scopes[shared]:
            shared += 1
        for (name, _), start in open_[shared:]:
            yield name, start, end
        open_ = [*open_[:shared], *((scope, span.start) for scope in scopes[shared:])]
        end = span.end
    for (name, _), start in open_:
        yield name, start, end


def _event(row: int, name: str, start: float, end: float) -> Data:
    return {
        "ph": "X",
        "pid": _ROWS,
        "tid": row,
        "name": name,
        "ts": start / _MICROSECOND,
        "dur": (end - start) / _MICROSECOND,
    }
