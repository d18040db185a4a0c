"""One gain as data: who was compared with whom, and the figures, of which less is better."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

SAME = 1.1  # a smaller ratio is no difference on a machine that does other things too


@dataclass(frozen=True)
class Line:
    """A figure of each side.

    Args:
        what: With its unit.
        today: Of what is common.
        by_hand: Of a competent author.
        jitney: Of jitney.
    """

    what: str
    today: float
    by_hand: float
    jitney: float

    @property
    def gain(self) -> str:
        """How many times as much as jitney what is common today takes."""
        return ratio(self.today, self.jitney)

    @property
    def beside_hand(self) -> str:
        """The same of what is written by hand."""
        return ratio(self.by_hand, self.jitney)


@dataclass(frozen=True)
class Gain:
    """The comparison of one kind of work.

    Args:
        name: As `--only` takes it.
        title: The work.
        today: What is common.
        by_hand: What a competent author writes.
        jitney: The decorator line.
        equal: How far apart the results were allowed to be.
        lines: The figures; the first is what the gain is about.
    """

    name: str
    title: str
    today: str
    by_hand: str
    jitney: str
    equal: str
    lines: tuple[Line, ...]
    machine: str = ""
    """Versions, and what this ran on."""

    @property
    def command(self) -> str:
        """What measures it again."""
        return f"python -m examples --only {self.name}"

    def write(self, folder: Path) -> None:
        """Keep it for the page."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, file: Path) -> Gain:
        """Give what an earlier run has kept."""
        found = json.loads(file.read_text())
        lines = tuple(Line(**line) for line in found.pop("lines"))
        return cls(**found, lines=lines)


def ratio(other: float, ours: float) -> str:
    """A ratio as people say it: "12 x", "0.6 x", "as much" where it is about 1; "-" without
    figures, as of a time that rounds to nothing.
    """
    if min(other, ours) <= 0:
        return "-"
    found = other / ours
    if 1 / SAME <= found <= SAME:
        return "as much"
    return f"{found:.2g} x" if found < 10 else f"{found:,.0f} x"
