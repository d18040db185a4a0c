"""Does it harm? Functions in the style of public documentation, under `jitney.optimize` without
options and under `jax.jit`, in turn.

Run from the project's root: `python -m tests.perf.harm` (names of functions for some of them).
`jax.jit` is called as documentation has it, and gets the arrays of modules flat, with all else
closed over. Results are compared first; compiling is not timed. The goal: above 50 microseconds a
call, never more than 2% slower. Rounds are those of `jitney.measure`: laps of a fifth of a
millisecond in turn, so that what else runs on the machine hits all alike, and `ratio` is the
interval that holds the median of the ratios, round by round, with 99% confidence. The verdict is on
that interval: "slower" is above 1.02 as a whole, "met" below it, and "unknown" on both sides.
`again` is the same of a second `jax.jit` of the same function, which says what the machine can tell
apart: where its interval leaves 1 by more than 2%, where code and data happen to lie makes as much,
and the verdict is "unknown". `empty` is that of a third `jax.jit` behind a class whose `__call__`
hands its arguments on: the least that a decorator in Python can cost. That is more than the quarter
of a microsecond which it takes in a loop of such calls, since behind a program of another thread
neither Python's code nor its objects are in the processor's caches. `program` says where the
compiled one has the same operations, so that all that differs is the call.

`python -m tests.perf.harm --caller` tells more beside other work: where the program is the same, only
the caller can take longer. It prints the processor time of the calling thread for one call of several,
the least of many laps, under `jax.jit`, under jitney, and what jitney, a second `jax.jit` and an empty
decorator take more, in percent of the least time of a call of `jax.jit` that is waited for.

Run-time checks: `jax.jit` leaves them callbacks. A program with callbacks runs in the thread that
calls it on a CPU, one without in another if it computes more than a little, and whoever waits for
that at once, as a call does that raises what its checks say, waits for a thread to wake up. So
beside `jax.jit`, whose error is one of XLA's, `eqx.filter_jit` stands, which waits too and raises
Equinox's; and beside functions of modules, which `jax.jit` does not take.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import equinox as eqx
import jax
import numpy as np

import jitney
from examples._figures import record
from jitney._jax.equinox_checks import has_equinox_checks
from jitney._measured.rounds import Side, rounds
from jitney._measured.verdict import interval

from .styles import CASES
from .styles.case import Case

LIMIT = 1.02
SECONDS = float(os.environ.get("JITNEY_BENCH_SECONDS", "3"))  # of a function
LEAST, MOST = 100, 1000  # rounds
CALLER_LAPS, CALLER_CALLS = 152, 10
Call = Callable[[], Any]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """What came of one function."""

    name: str
    jit: float  # microseconds a call, the median of the rounds
    ours: float
    ratio: Interval
    again: Interval
    empty: Interval
    equinox: float | None  # the median ratio of `eqx.filter_jit`, where there are modules or checks
    same: bool  # whether the compiled program has the same operations

    @property
    def verdict(self) -> str:
        low, high = self.ratio
        if self.again[0] > LIMIT or self.again[1] < 1 / LIMIT or low <= LIMIT < high:
            return "unknown"
        return "slower" if low > LIMIT else "met"

    def __str__(self) -> str:
        intervals = " | ".join(
            f"{low:.3f} to {high:.3f}" for low, high in (self.ratio, self.again, self.empty)
        )
        equinox = "" if self.equinox is None else f"{self.equinox:.2f}"
        figures = f"{self.jit:.0f} | {self.ours:.0f} | {intervals} | {equinox}"
        return f"| {self.name} | {figures} | {'same' if self.same else ''} | {self.verdict} |"


def has_modules(case: Case) -> bool:
    """Whether modules are among the arguments."""
    return any(
        isinstance(arg, eqx.Module)
        for arg in jax.tree.leaves(case.args, is_leaf=lambda x: isinstance(x, eqx.Module))
    )


def plain(case: Case) -> tuple[Any, Sequence[Any]]:
    """The function under `jax.jit` with its arguments: arrays, and flat arrays where modules are
    passed.
    """
    if not has_modules(case):
        return jax.jit(lambda *args: case.fn(*args)), case.args
    arrays, rest = eqx.partition(case.args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def flat(*leaves: Any) -> Any:
        return jax.tree.leaves(
            eqx.filter(
                case.fn(*eqx.combine(jax.tree.unflatten(treedef, leaves), rest)), eqx.is_array
            )
        )

    return jax.jit(flat), leaves


def operations(compiled: Any) -> Counter[str]:
    """How many there are of each."""
    return Counter(re.findall(r"= \S+ ([a-z-]+)\(", compiled.as_text()))


def is_same(case: Case) -> bool:
    """Whether jitney compiles what `jax.jit` does."""
    jitted, args = plain(case)
    return operations(jitney.optimize(case.fn).ahead(case.args, {})) == operations(
        jitted.lower(*args).compile()
    )


def first_array(result: Any) -> Callable[[Any], Any]:
    """What finds an array in such results, to wait for: all of a program are there at once, and
    taking trees apart is not what is timed.
    """
    path = next(
        path for path, leaf in jax.tree_util.tree_leaves_with_path(result) if eqx.is_array(leaf)
    )
    steps = [
        getattr(key, "name", None) or getattr(key, "key", getattr(key, "idx", None)) for key in path
    ]
    return lambda result: functools.reduce(
        lambda x, step: getattr(x, step) if hasattr(x, str(step)) else x[step], steps, result
    )


class Empty:
    """A decorator that does nothing."""

    __slots__ = ("_fn",)

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)


def compared(case: Case) -> Sequence[Call]:
    """The call under `jax.jit`, `jitney.optimize`, another `jax.jit`, and one behind an empty
    decorator; all have been compiled, and the results are equal.
    """
    program, (jitted, args), (again, _), empty = (
        jitney.optimize(case.fn),
        plain(case),
        plain(case),
        Empty(plain(case)[0]),
    )
    calls = (
        lambda: jitted(*args),
        lambda: program(*case.args),
        lambda: again(*args),
        lambda: empty(*args),
    )
    expected, results, *_ = (
        [np.asarray(x) for x in jax.tree.leaves(eqx.filter(call(), eqx.is_array))] for call in calls
    )
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=case.name)
    return calls


def race(case: Case) -> Row:
    """Rounds in turn, in an order that changes."""
    calls = list(compared(case))
    same = is_same(case)
    if has_modules(case) or has_checks(case):
        filtered = eqx.filter_jit(case.fn)
        calls.append(lambda: filtered(*case.args))
    timed = rounds([Side(waiting(call)) for call in calls], LEAST, MOST, SECONDS)
    ratio, again, empty = (_interval([taken[i] / taken[0] for taken in timed]) for i in (1, 2, 3))
    jit, ours = (median(taken[i] for taken in timed) * 1e6 for i in (0, 1))
    equinox = median(taken[4] / taken[0] for taken in timed) if len(calls) > 4 else None
    return Row(case.name, jit, ours, ratio, again, empty, equinox, same)


def waiting(call: Call) -> Call:
    """The call, with one array of its result, by which it is waited for."""
    array = first_array(call())
    return lambda: array(call())


def has_checks(case: Case) -> bool:
    """Whether the function holds run-time checks of Equinox."""
    jitted, args = plain(case)
    return has_equinox_checks(jitted.trace(*args).jaxpr)


def _interval(ratios: Sequence[float]) -> Interval:
    found = interval(ratios)
    if found is None:
        raise AssertionError("there are rounds enough")
    return found


def caller(case: Case) -> str:
    """Line of a table: processor time of the calling thread, where the program is the same."""
    calls = compared(case)
    waited, least = math.inf, [math.inf] * len(calls)
    sides = range(len(calls))
    for lap in range(CALLER_LAPS):
        # In an order that changes, and each after a call of its own: what runs behind a call of
        # itself finds its code in the processor's caches, by up to 2 microseconds quicker.
        for i in (*sides[lap % len(calls) :], *sides[: lap % len(calls)]):
            call = calls[i]
            _wait(call())
            begin = time.thread_time()
            for _ in range(CALLER_CALLS):
                out = call()
            least[i] = min(least[i], (time.thread_time() - begin) / CALLER_CALLS)
            _wait(out)
        begin = time.perf_counter()
        _wait(calls[0]())
        waited = min(waited, time.perf_counter() - begin)
    more = " | ".join(f"{(taken - least[0]) / waited:+.1%}" for taken in least[1:])
    figures = " | ".join(f"{x * 1e6:.1f}" for x in (waited, least[0], least[1]))
    return f"| {case.name} | {figures} | {more} |"


def _wait(out: Any) -> None:
    jax.block_until_ready(jax.tree.leaves(eqx.filter(out, eqx.is_array)))


def callers(chosen: Sequence[Case]) -> None:
    heads = "function | waited for, us | `jax.jit`, us | jitney, us | jitney | again | empty"
    print(f"| {heads} |\n|{'---|' * 7}")
    for case in chosen:
        if not has_checks(case) and is_same(case):
            print(caller(case), flush=True)


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--caller"]
    chosen = [case for case in CASES if not names or case.fn.__name__ in names]
    if "--caller" in sys.argv:
        callers(chosen)
        return
    print(f"jax {jax.__version__}; {len(chosen)} functions; microseconds a call that is waited for")
    heads = (
        "function",
        "`jax.jit`, us",
        "jitney, us",
        "ratio",
        "again",
        "empty",
        "`filter_jit`",
        "program",
        "verdict",
    )
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    rows: list[Row] = []
    for case in chosen:
        rows.append(race(case))
        print(rows[-1], file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row.ratio[0])
    print(*rows, sep="\n")
    larger = [row for row in rows if row.jit > 50]
    verdicts = Counter(row.verdict for row in larger)
    inherent = sum(row.verdict == "slower" and row.empty[1] > LIMIT for row in larger)
    told = ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items()))
    print(
        f"above 50 us: {len(larger)}; {told}; {inherent} of the slower where an empty decorator may"
        " be slower by 2% too"
    )
    record(**{name: verdicts[name] for name in ("met", "slower", "unknown")}, inherent=inherent)


if __name__ == "__main__":
    main()
