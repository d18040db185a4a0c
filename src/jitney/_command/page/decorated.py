"""Facts about decorated functions, collected when the program is over: plans, sizes, memory.

Nothing is collected while the program runs. A plan traces the body on abstract values, and the
memory is that of JAX's compiled program, which is alive or in the persistent cache. Output of the
body is not shown, and a few seconds are spent at most: the facts beyond are unknown.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from ..._body.function import TraceInputs
from ..._errors import shortlist
from ..._jax.compile_cache import cache
from ..._program.core import CompiledFunction
from ..._program.entry import Specialization
from ..._program.registry import REGISTRY
from ..._report.option_lines import PlanLine
from ..._report.plan_report import report
from ..._signature.options import AUTO, tolerance_of
from ..._text.json import Data
from ..findings.own import own_causes

if TYPE_CHECKING:
    from ..launch import Recording

_SECONDS = 5.0
# Programs of one function whose memory is looked up.
_PROGRAMS = 20
_LINE = "\n"
_LATE = "not asked: other functions took the time for it"


def collect_facts(recording: Recording) -> None:
    """Collect the facts about all decorated functions that are alive and were traced."""
    until = time.perf_counter() + _SECONDS
    quiet = io.StringIO()
    with (
        # Planning traces: the recording must not take that for work of the program.
        recording.suspend(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        recording.decorated = [
            function_facts(core, until) for core in REGISTRY.cores() if core.log.traces
        ]
        # Inside of the `with` statement too: remedies are proven by tracing.
        recording.own = own_causes()


def function_facts(core: CompiledFunction, until: float) -> Data:
    """Return the facts about one function as plain data.

    After `until`, on the clock of `time.perf_counter`, plan and memory are left out.
    """
    made, stats = core.log.traces, core.counters.stats()
    sizes, counted = _sizes(made, stats.sizes)

    latest = next((each for each in reversed(made) if each.arrays is not None), None)
    # `list` copies the entries at once: threads of the program may add some.
    entries = {
        hash(entry.key): entry for entry in list(core.entries.values()) if not entry.request.nested
    }

    return {
        "name": core.name,
        "function": str(core.where),
        "calls": stats.calls,
        "traces": stats.traces,
        "compiles": stats.compiles,
        "sizes": sizes,
        "counted": counted,
        "plan": _plan(core, entries, latest, until),
        "programs": [
            _program(core, entries.get(each.key), each, until)
            for each in _distinct(made)[-_PROGRAMS:]
        ],
    }


def _distinct(made: Sequence[TraceInputs]) -> list[TraceInputs]:
    """Return one trace of each program."""
    return list(
        {
            (each.key, tuple(each.sizes.items()), _text(each) if not each.true else ""): each
            for each in made
        }.values()
    )


def _sizes(
    made: Sequence[TraceInputs], called: dict[str, dict[int, int]]
) -> tuple[Data, dict[str, str]]:
    """Return the sizes of each axis with their number and bucket, and the unit that is counted.

    Calls are counted on padded axes, traces on others.
    """
    found: Data = {}
    counted: dict[str, str] = {}
    for axis in dict.fromkeys(axis for each in made for axis in each.sizes):
        # `TraceInputs.sizes` of a padded axis is its bucket, and `TraceInputs.true` has the size of the
        # call.
        buckets = sorted(
            {each.sizes[axis] for each in made if axis in each.true and axis in each.sizes}
        )
        seen: dict[int, tuple[int, int | None]] = {
            size: (times, next((bucket for bucket in buckets if bucket >= size), None))
            for size, times in called.get(axis, {}).items()
        }
        for each in made:
            if axis in each.sizes and axis not in each.true:
                times, bucket = seen.get(each.sizes[axis], (0, None))
                seen[each.sizes[axis]] = (
                    (times + 1, bucket) if axis not in called else (max(1, times), bucket)
                )
        if seen:
            found[axis] = [[size, times, bucket] for size, (times, bucket) in sorted(seen.items())]
            counted[axis] = "calls" if axis in called else "traces"
    return found, counted


def _plan(
    core: CompiledFunction,
    entries: dict[int, Specialization],
    latest: TraceInputs | None,
    until: float,
) -> Data:
    """Return the plan of the last traced call; later calls of its shapes leave no trace."""
    if latest is None or latest.arrays is None or latest.key not in entries:
        return {
            "of": "",
            "lines": [],
            "unknown": (
                "its calls came from within an outer transform, or its programs were dropped"
            ),
        }
    if time.perf_counter() > until:
        return {"of": "", "lines": [], "unknown": _LATE}
    if jax.process_count() > 1:
        return {
            "of": "",
            "lines": [],
            "unknown": "it runs in several processes, which end one by one",
        }
    of = shortlist([f"{array.dtype}{list(array.shape)}" for array in latest.arrays])

    # Instead of a plan that compiles, or may take longer than the time left, the decisions that the
    # trace noted.
    if _is_dear(core) or _cost(core) > until - time.perf_counter():
        lines = [line for line in (PlanLine(*each) for each in latest.decided) if line.asked]
        return {"of": of, "lines": [vars(line) for line in lines], "unknown": ""}
    try:
        found = report(core, entries[latest.key], latest.arrays, compiles=False)
    except Exception as error:  # noqa: BLE001 - the body is the user's, and what it reads may be gone by now
        return {
            "of": of,
            "lines": [],
            "unknown": f"{type(error).__name__}: {str(error).partition(_LINE)[0]}",
        }
    lines = [line for line in found.lines if line.asked]
    return {
        "of": shortlist(list(found.arguments)),
        "lines": [vars(line) for line in lines],
        "unknown": "",
        "drawing": str(found.draw()),
    }


def _is_dear(core: CompiledFunction) -> bool:
    """Return whether a plan would compile, to measure memory or errors.

    The stages are then listed as they were decided in the trace.
    """
    options = core.options
    auto = AUTO in (options.remat, *(width for _, width in options.chunk))
    return auto or options.memory is not None or tolerance_of(options.precision) is not None


def _cost(core: CompiledFunction) -> float:
    """Return the mean seconds of a program so far."""
    stats = core.counters.stats()
    return (stats.trace_seconds + stats.lower_seconds + stats.compile_seconds) / max(
        1, stats.traces
    )


def _program(
    core: CompiledFunction,
    entry: Specialization | None,
    made: TraceInputs,
    until: float,
) -> Data:
    """Return the bytes of one program; None for those that are unknown."""
    row = {
        "sizes": _text(made),
        "arguments": None,
        "outputs": None,
        "temporaries": None,
    }

    # A program in the cache is read back quickly; another one has to be compiled, in the time that
    # is left.
    left = until - time.perf_counter()
    kept = core.options.cache and cache.facts().enabled
    if (
        entry is None
        or made.arrays is None
        or jax.process_count() > 1
        or left < 0
        or not (kept or _cost(core) < left)
    ):
        return row
    try:
        stats = entry.ahead(made.arrays).memory_analysis()
    except Exception:  # noqa: BLE001 - as above
        return row
    finally:
        entry.land()
    if stats is None:
        return row
    # Results that alias donated arguments count once, as arguments.
    outputs = int(stats.output_size_in_bytes) - int(stats.alias_size_in_bytes)
    return {
        **row,
        "arguments": int(stats.argument_size_in_bytes),
        "outputs": outputs,
        "temporaries": int(stats.temp_size_in_bytes),
    }


def _text(made: TraceInputs) -> str:
    """Return the label of a program: its axis sizes, or its arrays if it has no named axes."""
    if made.sizes:
        return ", ".join(f"{axis}={size}" for axis, size in made.sizes.items())
    return (
        shortlist([f"{array.dtype}{list(array.shape)}" for array in made.arrays or ()]) or "unknown"
    )
