"""Does it harm? Functions in the style of public documentation, under `jitney.optimize` without options and under `jax.jit`, in turn.

Run from the project's root: `python -m tests.perf.harm` (names of functions for some of them). `jax.jit` is called as documentation has
it, and gets the arrays of modules flat, with all else closed over. Results are compared first; compiling is not timed. Of each round there
is a ratio, and of these the median; `again` is that of a second `jax.jit` of the same function, which says what the machine can tell apart.
`work` is the ratio in seconds of processors, and `program` says where the compiled one has the same operations, so that all that differs
is the call.
The goal: above 50 microseconds a call, never more than 2% slower.
"""

from __future__ import annotations

import functools
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

from .styles import CASES
from .styles.case import Case

ROUNDS = int(os.environ.get("JITNEY_BENCH_ROUNDS", "40"))
BATCH = 0.01  # seconds of calls in a round
Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """What came of one function."""

    name: str
    jit: float  # microseconds a call, the least of the rounds
    ours: float
    ratio: float
    again: float
    work: float  # the ratio of seconds of processors, which other programs on the machine disturb less
    same: bool  # whether the compiled program has the same operations

    @property
    def harms(self) -> bool:
        return self.jit > 50 and self.ratio > 1.02

    def __str__(self) -> str:
        ratios = f"{self.ratio:7.3f} {self.again:7.3f} {self.work:7.3f} {'same' if self.same else '':>6}"
        return f"{self.name:36} {self.jit:9.1f} {self.ours:9.1f} {ratios}{'  <-' if self.harms else ''}"


def plain(case: Case) -> tuple[Any, Sequence[Any]]:
    """The function under `jax.jit` with its arguments: arrays, and flat arrays where modules are passed."""
    if not any(isinstance(arg, eqx.Module) for arg in jax.tree.leaves(case.args, is_leaf=lambda x: isinstance(x, eqx.Module))):
        return jax.jit(lambda *args: case.fn(*args)), case.args
    arrays, rest = eqx.partition(case.args, eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def flat(*leaves: Any) -> Any:
        return jax.tree.leaves(eqx.filter(case.fn(*eqx.combine(jax.tree.unflatten(treedef, leaves), rest)), eqx.is_array))

    return jax.jit(flat), leaves


def operations(compiled: Any) -> Counter[str]:
    """How many there are of each."""
    return Counter(re.findall(r"= \S+ ([a-z-]+)\(", compiled.as_text()))


def is_same(case: Case) -> bool:
    """Whether jitney compiles what `jax.jit` does."""
    jitted, args = plain(case)
    return operations(jitney.optimize(case.fn).ahead(case.args, {})) == operations(jitted.lower(*args).compile())


def first_array(result: Any) -> Callable[[Any], Any]:
    """What finds an array in such results, to wait for: all of a program are there at once, and taking trees apart is not what is timed."""
    path = next(path for path, leaf in jax.tree_util.tree_leaves_with_path(result) if eqx.is_array(leaf))
    steps = [getattr(key, "name", None) or getattr(key, "key", getattr(key, "idx", None)) for key in path]
    return lambda result: functools.reduce(lambda x, step: getattr(x, step) if hasattr(x, str(step)) else x[step], steps, result)


def seconds(call: Call, array: Callable[[Any], Any], count: int) -> tuple[float, float]:
    """Of a call, on the clock and of processors."""
    start, work = time.perf_counter(), time.process_time()
    for _ in range(count):
        array(call()).block_until_ready()
    return (time.perf_counter() - start) / count, (time.process_time() - work) / count


def compared(case: Case) -> Sequence[Call]:
    """The call under `jax.jit`, `jitney.optimize` and another `jax.jit`; all have been compiled, and the results are equal."""
    program, (jitted, args), (again, _) = jitney.optimize(case.fn), plain(case), plain(case)
    calls = (lambda: jitted(*args), lambda: program(*case.args), lambda: again(*args))
    expected, results, _ = ([np.asarray(x) for x in jax.tree.leaves(eqx.filter(call(), eqx.is_array))] for call in calls)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6, err_msg=case.name)
    return calls


def race(case: Case) -> Row:
    """Rounds in turn, in an order that changes."""
    calls = compared(case)
    arrays = [first_array(call()) for call in calls]
    count = max(3, int(BATCH / seconds(calls[0], arrays[0], 3)[0]))
    rounds: list[list[tuple[float, float]]] = []
    for turn in range(ROUNDS):
        taken = [(0.0, 0.0)] * 3
        for i in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 0, 2), (0, 2, 1))[turn % 6]:
            taken[i] = seconds(calls[i], arrays[i], count)
        rounds.append(taken)
    jit, ours = (min(taken[i][0] for taken in rounds) * 1e6 for i in (0, 1))
    ratio, again = (median(taken[i][0] / taken[0][0] for taken in rounds) for i in (1, 2))
    work = median(taken[1][1] / taken[0][1] for taken in rounds)
    return Row(case.name, jit, ours, ratio, again, work, is_same(case))


def main() -> None:
    chosen = [case for case in CASES if not sys.argv[1:] or case.fn.__name__ in sys.argv[1:]]
    print(f"jax {jax.__version__}; {len(chosen)} functions, {ROUNDS} rounds; microseconds a call that is waited for")
    print(
        f"{'':36} {'jax.jit':>9} {'jitney':>9} {'ratio':>7} {'again':>7} {'work':>7} {'program':>6}",
        flush=True,
    )
    rows = sorted(map(race, chosen), key=lambda row: -row.ratio)
    print(*rows, sep="\n")
    larger = [row for row in rows if row.jit > 50]
    print(f"above 50 us: {len(larger)}, of them more than 2% slower: {sum(row.harms for row in larger)}")


if __name__ == "__main__":
    main()
