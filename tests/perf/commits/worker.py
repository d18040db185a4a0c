"""A process that measures one side: `python -m tests.perf.commits.worker SRC`, by
`tests.perf.commits` alone.

It reads commands, one a line, and answers each with a line of JSON. `first NAME` makes a benchmark
and calls it once: seconds of all processors, programs, and the result; and it counts the functions
that a warm call calls in Python, which no other load changes. `lap NAME` gives seconds of a warm
call, waited for.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np

from .benches import BENCHES, Call

LAP = 2e-3
PROGRAM = "/jax/core/compile/backend_compile_duration"


class Benches:
    """What is measured in this process."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[Call, int]] = {}
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._count)

    def _count(self, event: str, *_: object, **__: object) -> None:
        self.programs += event == PROGRAM

    def first(self, name: str) -> dict[str, Any]:
        """The first call of a benchmark."""
        call = BENCHES[name]()
        before, start = self.programs, time.process_time()
        result = jax.block_until_ready(call())
        seconds = time.process_time() - start
        self.calls[name] = call, 1
        # as many calls in a lap as make it long for the clock
        fastest = min(self.lap(name)["seconds"] for _ in range(5))
        self.calls[name] = call, max(1, round(LAP / fastest))
        values = [np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(result)]
        return {
            "seconds": seconds,
            "programs": self.programs - before,
            "functions": functions(call),
            "result": np.concatenate(values).tolist(),
        }

    def lap(self, name: str) -> dict[str, Any]:
        """A call, as the mean of those in a lap."""
        call, count = self.calls[name]
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(call())
        return {"seconds": (time.perf_counter() - start) / count}


def functions(call: Call) -> int:
    """Functions that a call calls in this thread, of Python and of C."""
    events: list[str] = []
    sys.setprofile(lambda _, event, __: events.append(event))
    call()
    sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def answer(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What came of a command; an older commit may lack what a benchmark calls."""
    try:
        return act()
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}


def imported(src: Path) -> dict[str, Any]:
    """What the import of jitney takes, behind that of JAX and the start of its backend."""
    jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
    start = time.process_time()
    import jitney

    _ = jitney.optimize
    seconds = time.process_time() - start
    if src not in Path(jitney.__file__).parents:
        raise SystemExit(f"{jitney.__file__} is not of {src}")
    return {"seconds": seconds}


def main(src: Path, commands: TextIO, answers: TextIO) -> None:
    """Answer until there are no more commands."""
    print(json.dumps(imported(src)), file=answers, flush=True)
    benches = Benches()
    gc.disable()  # it would run in the lap of whichever side made the last object
    for line in commands:
        kind, name = line.split()
        act = benches.first if kind == "first" else benches.lap
        print(json.dumps(answer(lambda act=act, name=name: act(name))), file=answers, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin, sys.stdout)
