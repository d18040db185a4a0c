"""Result of a stream, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from .._errors import ContractError
from .._former import warn_former
from .._public import public_in
from .._view.view import is_array

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
        read: Rows that this run computed, over all passes, without those before a checkpoint that
            it resumed from.
        seconds: Seconds of the whole run.
        retries: Failed reads that were repeated.
        saves: Number of checkpoints written.
        kept: State of its programs under `cache="program"`: found, stored, or the reason why not;
            None without that option.
    """

    chunks: int
    rows: int
    passes: int
    read: int
    seconds: float
    retries: int
    saves: int
    kept: str | None = None

    @property
    def rate(self) -> float:
        """Rows per second of this run. A row counts once for each pass over it."""
        return self.read / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        again = f", {self.retries} readings made again" if self.retries else ""
        passes = f"{self.passes} passes" if self.passes != 1 else "1 pass"
        resumed = ", resumed" if self.read < self.rows * self.passes else ""
        return (
            f"{self.rows:,} rows in {self.chunks:,} chunks, {passes}{resumed},"
            f" {self.seconds:.3g} s, {self.rate:,.0f} rows/s{again}"
        )

    def _repr_html_(self) -> str:
        from .._text.console import html_of, table

        passes = f"{self.passes} passes" if self.passes != 1 else "1 pass"
        rows = [
            ("rows", f"{self.rows:,}"),
            ("chunks", f"{self.chunks:,} in {passes}"),
            ("time", f"{self.seconds:.3g} s, {self.rate:,.0f} rows/s"),
        ]
        if self.read < self.rows * self.passes:
            rows.append(("resumed", f"{self.read:,} rows were read in this run"))
        if self.retries:
            rows.append(("retries", f"{self.retries:,} readings made again"))
        if self.saves:
            rows.append(("checkpoints", f"{self.saves:,} saved"))
        if self.kept is not None:
            rows.append(("programs", self.kept))
        cells = [[(name, ""), (text, "")] for name, text in rows]
        return html_of(table("stream", cells))


@public_in("jitney.types")
class Streamed(NamedTuple, Generic[R]):
    """Result of a stream, and statistics of the run.

        total = f.stream(x, t).result
        total, stats = f.stream(x, t)

    It is not an array. What would take it for one is an error, since a tuple that is multiplied,
    added, asked for its truth or cut by a slice gives something else than its first item does.
    """

    result: R
    stats: StreamStats

    @property
    def value(self) -> R:
        """Former name of `result`."""
        what = "`value` of a stream is called `result`."
        warn_former("stream()", what, "Its meaning is the same.", "write .result.")
        return self.result

    def __getitem__(self, index: Any, /) -> Any:
        if type(index) is int:
            return tuple.__getitem__(self, index)
        raise _not_an_array("indexed")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise _not_an_array("converted to an array")

    def __jax_array__(self) -> NoReturn:
        raise _not_an_array("converted to an array")

    def __bool__(self) -> bool:
        raise _not_an_array("asked for its truth")

    def __eq__(self, other: object, /) -> bool:
        if is_array(other) or isinstance(other, (int, float, complex)):
            raise _not_an_array("compared")
        return tuple.__eq__(self, other)

    def __ne__(self, other: object, /) -> bool:
        return not self == other

    # A function: mypy takes an assignment for a third field.
    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __add__(self, other: object, /) -> NoReturn:
        raise _not_an_array("added")

    def __radd__(self, other: object, /) -> NoReturn:
        raise _not_an_array("added")

    def __mul__(self, other: object, /) -> NoReturn:
        raise _not_an_array("multiplied")

    def __rmul__(self, other: object, /) -> NoReturn:
        raise _not_an_array("multiplied")


def _not_an_array(done: str) -> ContractError:
    return ContractError(
        "stream()",
        f"the pair of a result and its statistics is {done}.",
        "A stream returns what the function gives, and statistics of the run.",
        "take the result first: f.stream(x).result.",
        code="J218",
    )
