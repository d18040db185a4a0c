"""What a stream gives: its result, and what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class StreamStats:
    """What a stream did.

    Args:
        chunks: How many were worked on, over all passes; those before a checkpoint it went on from
            are not counted.
        rows: Length of the axis.
        passes: Over the data.
        seconds: Of the whole run.
        retries: Readings that failed and were made again.
        saves: How often the checkpoint was written.
        kept: What became of its programs under `cache="program"`: found, kept, or why not; None
            where that is not asked for.
    """

    chunks: int
    rows: int
    passes: int
    seconds: float
    retries: int
    saves: int
    kept: str | None = None

    @property
    def rate(self) -> float:
        """Rows of one pass, per second."""
        return self.rows * self.passes / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        again = f", {self.retries} readings made again" if self.retries else ""
        passes = f"{self.passes} passes" if self.passes != 1 else "1 pass"
        return (
            f"{self.rows:,} rows in {self.chunks:,} chunks, {passes}, {self.seconds:.3g} s,"
            f" {self.rate:,.0f} rows/s{again}"
        )


class Streamed(NamedTuple, Generic[R]):
    """The result of a stream: `value, stats = jitney.stream(...)`."""

    value: R
    stats: StreamStats
