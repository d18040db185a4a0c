"""A verdict for each figure, by the ratios of the pairs: the sign test of `jitney.measure`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jitney._measured.verdict import CONFIDENCE, judge_ratios

from .pairs import Figure, Outcome

# Results are float32; two orders of a sum differ by this.
ALIKE = 1e-5
# Fewer pairs have no interval of that confidence.
LEAST_PAIRS = 8


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Args:
        name: The benchmark, and the figure.
        text: Both sides and the verdict, in words.
        is_worse: True if this commit is slower, computes something else, or fails.
    """

    name: str
    text: str
    is_worse: bool


def lines(outcomes: Mapping[str, Outcome]) -> list[Line]:
    """The verdicts, in the order of the benchmarks."""
    return [line for name, outcome in outcomes.items() for line in _of_one(name, outcome)]


def _of_one(name: str, outcome: Outcome) -> list[Line]:
    if outcome.failed:
        told = "; ".join(f"{side}: {why}" for side, why in outcome.failed.items())
        return [Line(name, f"not measured. {told}", "this one" in outcome.failed)]
    if not outcome.apart <= ALIKE:
        told = f"results differ by {outcome.apart:.1e} of the largest: no times are compared"
        return [Line(name, told, is_worse=True)]
    found = [_of_figure(f"{name}, {of}", figure) for of, figure in outcome.figures.items()]
    for of, (before, now) in outcome.counts.items():
        if before != now:
            told = f"{before} before, {now} now: {'more' if now > before else 'fewer'}"
            # A function more is a hint; a program more is compiled by every user.
            is_worse = of == "programs" and now > before
            found.append(Line(f"{name}, {of}", told, is_worse))
    return found


def _of_figure(name: str, figure: Figure) -> Line:
    verdict = judge_ratios(figure.ratios)
    told = f"{seconds_text(figure.against)} before, {seconds_text(figure.this)} now: {verdict}"
    return Line(name.removeprefix("import, "), told, verdict.outcome == "slower")


def seconds_text(seconds: list[float]) -> str:
    """The least and the median of the pairs."""
    least, middle = min(seconds), sorted(seconds)[len(seconds) // 2]
    unit, size = next(pair for pair in _UNITS if least >= pair[1] or pair is _UNITS[-1])
    return f"{least / size:.3g} ({middle / size:.3g}) {unit}"


_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def head(against: str, this: str, pairs: int) -> str:
    """What the table is of."""
    return (
        f"{this}, against {against}: {pairs} pairs of processes; least and (median) of a pair, "
        f"verdicts with {CONFIDENCE:.0%} confidence each"
    )
