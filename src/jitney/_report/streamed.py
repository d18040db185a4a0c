"""Result of a stream, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from .._public import public_in

R = TypeVar("R")


@public_in("jitney.types")
@dataclass(frozen=True)
class StreamStats:
    """Statistics of a stream.

    Args:
        chunks: Number of chunks over all passes, without those before a checkpoint that the run
            resumed from.
        rows: Length of the axis.
        passes: Passes over the data.
        seconds: Seconds of the whole run.
        retries: Failed reads that were repeated.
        saves: Number of checkpoints written.
        kept: State of its programs under `cache="program"`: found, stored, or the reason why not;
            None without that option.
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


@public_in("jitney.types")
class Streamed(NamedTuple, Generic[R]):
    """Result of a stream: `value, stats = jitney.stream(...)`."""

    value: R
    stats: StreamStats
