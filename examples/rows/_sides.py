"""Measure the sides of an example: equal results first, then lines, first calls, warm calls, and a
fresh mixture of lengths.

Calls that compile are measured in seconds of the processors, which a busy machine changes less;
warm calls are the least of several rounds in turn. The side of a compile for each length runs some
rows alone, since all would take minutes: its seconds are those of one length, and its warm calls
are scaled to all rows.
"""

from __future__ import annotations

import inspect
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jitney

from .._lines import code_lines
from .._timing import assert_equal, in_turn
from ..gallery.notebooks import cells
from . import _by_hand

JITNEY, BY_HAND, ONE_GRAPH, A_LENGTH = "jitney", "by hand", "one graph", "a length"
HEADINGS = {
    JITNEY: ("The function of one row", "With jitney"),
    BY_HAND: ("By hand",),
    ONE_GRAPH: ("One graph of all",),
    A_LENGTH: ("The function of one row", "A compile for each length"),
}
FRESH = (1, 2, 3)
"""Seeds of other mixtures of lengths."""


@dataclass(frozen=True, eq=False)
class Work:
    """One comparison.

    Args:
        name: As the command line takes it.
        title: In words.
        shared: Arguments that all rows share.
        rows: Arguments that have an element for each row, of a seed: lists of arrays, or an array.
        sides: Names as in `HEADINGS`, and functions of `(*shared, *rows)`.
        functions: What `jitney.optimize` returned.
        rtol: How far apart results may be, relatively.
        atol: The same, absolutely.
    """

    name: str
    title: str
    shared: tuple[Any, ...]
    rows: Callable[[int], tuple[Any, ...]]
    sides: dict[str, Callable[..., Any]]
    functions: tuple[Any, ...]
    rtol: float
    atol: float


@dataclass
class Side:
    """Figures of one side.

    Args:
        lines: Lines of code.
        first: Processors' seconds of the first call, with compiling; of a compile for each length,
            those of one.
        programs: How many programs it compiled.
        warm: Seconds of a warm call.
        fresh: Processors' seconds of a call with other lengths of the same distribution, the
            median.
        new: How many programs each such call compiled.
    """

    lines: int
    first: float = 0.0
    programs: int = 0
    warm: float = 0.0
    fresh: float | None = None
    new: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Compared:
    """All figures of a work.

    Args:
        title: In words, with the number of rows and their lengths.
        sides: By name.
    """

    title: str
    sides: dict[str, Side]

    def __str__(self) -> str:
        out = [f"{self.title}", TITLES]
        for name, side in self.sides.items():
            fresh = "" if side.fresh is None else f"{1e3 * side.fresh:10,.1f}"
            each = " a length" if name == A_LENGTH else ""
            new = ", ".join(map(str, side.new))
            out.append(
                f"  {name:10}{side.lines:>6}{side.first:10.2f}{each:9}{side.programs:>9}"
                f"{1e3 * side.warm:>11,.1f}{side.warm / self.sides[JITNEY].warm:>12.2f}"
                f"{fresh:>12}  {new}"
            )
        return "\n".join(out)


TITLES = "".join(
    [
        " " * 13,
        "lines  first, s          programs   warm, ms",
        "  of jitney's   fresh, ms  new programs",
    ]
)


@dataclass(frozen=True)
class Lengths:
    """Log-normal lengths of rows.

    Args:
        count: How many rows.
        median: Of their lengths.
        least: The least length.
        most: The greatest.
    """

    count: int
    median: float
    least: int
    most: int

    def draw(self, seed: int) -> tuple[np.random.Generator, list[int]]:
        """Lengths, and the generator for what the rows hold."""
        rng = np.random.default_rng([self.count, seed])
        drawn = np.exp(rng.normal(np.log(self.median), 0.7, self.count))
        return rng, drawn.clip(self.least, self.most).astype(int).tolist()


SMALL = Lengths(8, 12, 9, 16)
"""Of a run that takes seconds."""


def compare(work: Work, *, full: bool) -> Compared:
    """Compare results, then measure.

    Raises:
        AssertionError: Two sides differ.
    """
    rows = work.rows(0)
    some = few(rows, 24 if full else 3)
    given = dict.fromkeys(work.sides, rows) | {A_LENGTH: some}
    found = {name: Side(lines_of(work, name)) for name in work.sides}
    jax.clear_caches()
    for function in work.functions:
        function.clear_cache()

    results: dict[str, Any] = {}
    for name, run in work.sides.items():
        seconds, programs, results[name] = timed(run, *work.shared, *given[name])
        found[name].first, found[name].programs = seconds, programs
    alone = results.pop(A_LENGTH)
    assert_equal(results, work.rtol, work.atol)

    calls = {
        name: lambda run=run, name=name: run(*work.shared, *given[name])
        for name, run in work.sides.items()
    }
    for name, seconds in in_turn(calls, 8.0 if full else 0.05).items():
        found[name].warm = seconds

    for name in results:
        fresh = [timed(work.sides[name], *work.shared, *work.rows(seed)) for seed in FRESH]
        found[name].fresh = statistics.median(seconds for seconds, _, _ in fresh)
        found[name].new = [programs for _, programs, _ in fresh]

    # Last, since fewer rows may compile programs of their own; nothing is shown before.
    on_some = {name: on_host(work.sides[name](*work.shared, *some)) for name in results}
    assert_equal({A_LENGTH: alone, **on_some}, work.rtol, work.atol)
    each_length(found[A_LENGTH], work, rows, some)
    counts = [size[0] for size in sizes(rows)]
    about = f"{len(counts):,} rows of {min(counts)} to {max(counts)}"
    return Compared(f"{work.name}: {work.title}; {about}", found)


def each_length(side: Side, work: Work, rows: tuple[Any, ...], some: tuple[Any, ...]) -> None:
    """Scale the figures of some rows: `first` to one length, `warm` to all rows."""
    every, own = sizes(rows), sizes(some)
    side.first /= len(set(own))
    side.warm *= len(every) / len(own)
    side.programs = len(set(every))
    side.new = [len(set(sizes(work.rows(seed))) - set(every)) for seed in FRESH]


def few(rows: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """The first rows."""
    return tuple(each[:count] for each in rows)


def sizes(rows: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Sizes of each row: of its arrays, without those that are equal."""
    lists = [each for each in rows if isinstance(each, list)]
    return [tuple(dict.fromkeys(len(array) for array in row)) for row in zip(*lists, strict=True)]


def on_host(out: Any) -> Any:
    """Arrays of NumPy."""
    return jax.tree.map(np.asarray, out)


def timed(run: Callable[..., Any], *arguments: Any) -> tuple[float, int, Any]:
    """Processors' seconds of a call, how many programs it compiled, and its result."""
    with jitney.watch() as seen:
        began = time.process_time()
        out = jax.block_until_ready(run(*arguments))
        seconds = time.process_time() - began
    return seconds, seen.compiles, on_host(out)


def lines_of(work: Work, side: str) -> int:
    """Lines of code of a side, without what `_by_hand.py` has for all."""
    module = sys.modules[work.rows.__module__]
    of_work = [
        code
        for heading, code in cells(inspect.getsource(module))
        if heading.startswith(HEADINGS[side]) and heading.partition(": of ")[2] in ("", work.name)
    ]
    return sum(map(code_lines, of_work))


def shared_lines() -> int:
    """Lines of code that the sides by hand share."""
    return code_lines(Path(_by_hand.__file__).read_text())
