"""Statistics of a program, as users read them: `f.stats`, as data and as a table.

`Counters` makes them of its totals. Remedies of retraces are proven when they are read, since a
proof traces the body.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..._errors import plural
from ..._public import public_in
from ..._text.shown import Shown
from ..retraces.cause import Cause

if TYPE_CHECKING:
    from rich.table import Table

# Number of remedies in a table.
_SHOWN = 10


@dataclass(frozen=True)
class Advised:
    """Causes with their remedies, and the number of programs that each remedy saves, where
    counted.
    """

    causes: tuple[tuple[Cause, ...], ...] = ()
    saves: Mapping[str, str] = field(default_factory=dict[str, str])

    def __add__(self, other: Advised) -> Advised:
        return Advised(self.causes + other.causes, {**self.saves, **other.saves})


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """Statistics of a program so far. Seconds are wall-clock seconds, by phase, for this program
    alone.

    Of `trace_seconds`, `own_seconds` are the part that tracing took beyond one run of the body:
    contract, plan, proofs (refused ones too), padding and cutting, the search for the structure of
    a Jacobian or for a size that fits into memory, and compiles for these searches. `compiles` are
    of the program; `incidental` ones are of computations around it, such as arrays that the body
    creates once. `retraces` has a line for each trace, and `causes` all differences, as data, for
    each trace and each compile without one. `derivatives` are calls by derivative, each a program
    of its own with its own count: `f.grad.stats`. `saved_seconds` are those that `auto` saved in
    the calls since its choice, less those that finding it took. Remedies are proven when `causes`
    is read, which traces the body at sizes that were seen; printing, `to_dict` and copying do the
    same.
    """

    calls: int
    traces: int
    compiles: int
    hits: int
    persistent_hits: int
    eager: int
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    retraces: tuple[str, ...]
    sizes: dict[str, dict[int, int]]
    padding: dict[str, float]
    verified: int = 0
    incidental: int = 0
    own_seconds: float = 0.0
    saved_seconds: float = 0.0
    derivatives: dict[str, int] = field(default_factory=dict[str, int])
    advise: Callable[[], Advised] = field(default=Advised, compare=False)

    @functools.cached_property
    def _computed_advice(self) -> Advised:
        return self.advise()

    @property
    def causes(self) -> tuple[tuple[Cause, ...], ...]:
        """Differences, for each trace and each compile without one, with remedies that were
        proven.
        """
        return self._computed_advice.causes

    def repaid_after(self, saved: float) -> int | None:
        """Return the number of calls after which the seconds of tracing, lowering and compiling so
        far are repaid; None if a call saves nothing.

        Args:
            saved: Seconds that a warm call saves, beside the plain function: the difference of the
                medians of `jitney.measure(f, ..., against=plain)`.
        """
        spent = self.trace_seconds + self.lower_seconds + self.compile_seconds
        return math.ceil(spent / saved) if saved > 0 else None

    def to_dict(self) -> dict[str, Any]:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        causes = [[cause.to_dict() for cause in each] for each in self.causes]
        return {**figures, "retraces": list(self.retraces), "causes": causes}

    def __reduce__(self) -> tuple[object, ...]:
        figures = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        # Pickling and copying prove the remedies first, since `advise` refers to the program.
        return _rebuild_stats, (figures, self._computed_advice)

    def __rich__(self) -> Table:
        from ..._text.console import table

        return table("stats", [[(name, "cyan"), (text, "")] for name, text in self._rows()])

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Rows of the table: a name, and its figures in words."""
        yield "calls", f"{self.calls}: {self.hits} in-process hits, {self.eager} eager"
        traced = f"{self.traces} ({self.trace_seconds:.3f} s, {self.own_seconds:.3f} s jitney's)"
        yield "traces", f"{traced}, lowering {self.lower_seconds:.3f} s"
        compiled = f"{self.compiles} ({self.compile_seconds:.3f} s)"
        yield "compiles", f"{compiled}, {self.persistent_hits} persistent-cache hits"

        # What most programs do not have.
        if self.incidental:
            text = f"{self.incidental} small programs besides, for what is around it"
            yield "incidental", text
        if self.verified:
            yield "verified", f"{self.verified}"
        if self.saved_seconds:
            yield "auto", f"{self.saved_seconds:.3f} s saved"
        for name, calls in self.derivatives.items():
            yield f"f.{name}", f"{plural(calls, 'call')}, see its own `stats`"
        for axis, part in self.padding.items():
            sizes = plural(len(self.sizes[axis]), "size")
            yield f"axis {axis}", f"{sizes} padded by {part:.1%} on average"

        # The oldest causes are dropped, so the last line is that of the last trace.
        for text in self._to_write():
            yield "to write", text
        first = max(1, self.traces - len(self.retraces) + 1)
        for number, cause in enumerate(self.retraces, first):
            yield f"trace {number}", cause

    def _to_write(self) -> list[str]:
        """Remedies with what they save: programs if they were counted, else the number of programs
        with that cause.
        """
        saves = self._computed_advice.saves
        return [
            f"{remedy} ({seconds:.3f} s, {saves.get(remedy) or plural(times, 'program')})"
            for remedy, (seconds, times) in self._remedies()[:_SHOWN]
        ]

    def _remedies(self) -> list[tuple[str, tuple[float, int]]]:
        """Remedies by the seconds of the programs that each is about, most first."""
        cost: dict[str, tuple[float, int]] = {}
        for each in self.causes:
            # A program with several causes needs the remedies of all of them; without one for each
            # cause it is traced all the same.
            if not all(cause.remedy for cause in each):
                continue
            for remedy in dict.fromkeys(cause.remedy for cause in each):
                seconds, times = cost.get(remedy, (0.0, 0))
                cost[remedy] = seconds + each[0].seconds, times + 1
        return sorted(cost.items(), key=lambda item: -item[1][0])


def _rebuild_stats(figures: Mapping[str, Any], advised: Advised) -> Stats:
    return Stats(**figures, advise=lambda: advised)
