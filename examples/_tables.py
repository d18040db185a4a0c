"""The tables that end the demo, from figures: what was gained, what each job took, warm calls."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from .gains._gain import Gain

NOT_GAINED = (
    'A figure is what a side took: less is better. "8 x" is 8 times what jitney took, "0.5 x" half'
    ' of it, "as much" within a tenth. What is written by hand is as fast or faster in most'
    " lines: what is gained there is that nobody writes it."
)
WARM = "Warm calls of one size, everything compiled, ms: nothing is gained there"


def figure(value: float) -> str:
    """Three digits, or whole numbers past a hundred; "-" where nothing was measured."""
    if value <= 0:
        return "-"
    return f"{value:,.0f}" if value >= 99.5 or value == int(value) else f"{value:.3g}"


def gains(measured: Iterable[Gain]) -> Table:
    """A group for each kind of work, a line for each figure."""
    table = Table(title="What was gained here", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("today", "by hand", "jitney", "today\n/ jitney", "by hand\n/ jitney"):
        table.add_column(name, justify="right")
    for gain in measured:
        table.add_row(f"[bold]{escape(gain.name)}[/]: {escape(gain.title)}")
        for i, line in enumerate(gain.lines):
            sides = map(figure, (line.today, line.by_hand, line.jitney))
            table.add_row(
                f"  {escape(line.what)}",
                *sides,
                line.gain,
                line.beside_hand,
                end_section=i == len(gain.lines) - 1,
            )
    return table


def baselines(measured: Iterable[Gain]) -> Iterable[str]:
    """Who was compared with whom, and how it is measured again."""
    for gain in measured:
        yield (
            f"{gain.name}. Today: {gain.today}. By hand: {gain.by_hand}. jitney: {gain.jitney}."
            f" Equal before a figure is shown: {gain.equal}. Again: {gain.command}"
        )


def jobs(summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """Programs, cache and memory of each job."""
    table = Table(title="What jitney did", box=SIMPLE_HEAD, pad_edge=False)
    for name in JOBS:
        table.add_column(name, justify="left" if name == "job" else "right")
    for name, each in summaries.items():
        table.add_row(name, *job(each))
    return table


JOBS = (
    "job",
    "in all, s",
    "programs compiled",
    "from the persistent cache",
    "compiling and loading, s",
    "peak memory, MiB",
)


def job(each: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one job."""
    peak = "-" if each["peak MiB"] is None else f"{each['peak MiB']:,.0f}"
    counts = (f"{each['compiled']:,}", f"{each['from the cache']:,}")
    return (f"{each['seconds']:.1f}", *counts, f"{each['compiling']:.1f}", peak)


def warm(summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """Warm calls beside plain JAX."""
    table = Table(title=WARM, box=SIMPLE_HEAD, pad_edge=False)
    for name in ("job", "what", "jitney", "plain jax.jit"):
        table.add_column(name, justify="left" if name in ("job", "what") else "right")
    for row in warm_rows(summaries):
        table.add_row(*row)
    return table


def warm_rows(summaries: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    """The cells of the same."""
    for name, each in summaries.items():
        for pair in each["pairs"]:
            yield name, pair["what"], f"{1e3 * pair['jitney']:.3g}", f"{1e3 * pair['plain']:.3g}"
