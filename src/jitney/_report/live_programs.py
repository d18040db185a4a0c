"""Statistics and decisions of all decorated functions that are alive, while the program runs.

Nothing is traced or compiled for it: the decisions are those that each function's last trace noted,
so that it may be asked of a long run from another thread.
"""

from __future__ import annotations

import os
import sys
import time

from .._errors import plural
from .._program.core import CompiledFunction
from .._program.registry import REGISTRY
from .._text.json import Data
from .option_lines import PlanLine


def live_programs() -> list[Data]:
    """Return a record of each function that was called or traced, longest compiled first."""
    every = REGISTRY.cores()
    cores = [core for core in every if core.log.traces or core.counters.stats().calls]
    records = map(_record, cores)
    return sorted(records, key=lambda record: -record["seconds"])


def _record(core: CompiledFunction) -> Data:
    stats, made = core.counters.stats(), list(core.log.traces)
    lines = [PlanLine(*each) for each in made[-1].decided] if made else []
    return {
        "function": str(core.where),
        "calls": stats.calls,
        "traces": stats.traces,
        "compiles": stats.compiles,
        "seconds": stats.trace_seconds + stats.lower_seconds + stats.compile_seconds,
        "retraces": list(stats.retraces),
        "plan": [vars(line) for line in lines if line.asked],
    }


def live_text() -> str:
    """Return the same as text, as it is printed at a signal."""
    records = live_programs()
    at = time.strftime("%H:%M:%S")
    parts = [f"jitney: process {os.getpid()} at {at}, {plural(len(records), 'function')}"]
    for each in records:
        parts.append(
            f"{each['function']}: {each['calls']} calls, {each['traces']} traces,"
            f" {each['compiles']} compiles, {each['seconds']:.2f} s"
        )
        parts += [f"    {line['name']}: {line['why']}" for line in each["plan"]]
        # The first trace has no cause.
        parts += [f"    traced again: {text}" for text in each["retraces"][-_SHOWN:]]
    return "\n".join(parts) + "\n"


def print_live() -> None:
    """Write the text to standard error, in one piece."""
    if sys.stderr is not None:
        sys.stderr.write(live_text())
        sys.stderr.flush()


# Causes of the latest traces of a function.
_SHOWN = 3
