"""The calls of one size, what is known about them, and the choice for them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..._jax.typed import Array
from ..._view.layout import aval_parts
from ..compiled_calls import CompiledCalls
from .call_times import CallTimes
from .choice_record import ChoiceRecord, RecordFile
from .cut_axes import CutAxis
from .search import RunWay, Search


@dataclass(frozen=True)
class AutoChoice:
    """How calls of one size run.

    Args:
        way: The way.
        entry: The entry that runs them; None for this one, whole.
        why: The reason, with what was measured.
        gain: Seconds that each call saves.
    """

    way: RunWay
    entry: CompiledCalls | None
    why: str
    gain: float = 0.0


class CallsOfSize:
    """Calls of one size, while their way is searched for and after.

    Args:
        arrays: The arrays of the first of them.
        dims: Position of the mapped axis in each array.
        file: Place of the record of the choice.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        dims: tuple[int | None, ...],
        file: RecordFile,
    ):
        self.file = file
        self.avals = [aval_parts(array) for array in arrays]
        self.bucket = _bucket_key(arrays, dims, file.bucket)
        self.times = CallTimes()
        self.compile_seconds: float | None = None
        # Digest of the program that the first call has traced.
        self.program = ""
        # What its ways cut, and the search among them.
        self.axis: CutAxis | None = None
        self.search: Search | None = None
        self.choice: AutoChoice | None = None
        # Why the record of an earlier process is not used; "" if there is none.
        self.unused = ""
        # The record of an earlier process whose search had found nothing so far.
        self.earlier: ChoiceRecord | None = None
        # Seconds of the search that `f.stats` knows of.
        self.charged = 0.0
        # Seconds that calls take before a search that was put off goes on, or 0; and why.
        self.due = 0.0
        self.put_off = ""

    @property
    def is_due(self) -> bool:
        """Whether calls have taken as long as their compile did, and as a search that was put off
        waits for.
        """
        due = max(self.compile_seconds or 0.0, self.due)
        return self.times.timed > 0 and self.times.taken >= due

    def wait_for(self, due: float, why: str) -> None:
        """Put the search off until calls have taken so many seconds."""
        self.due = due
        self.put_off = f"given up for now, {why}; it goes on at {milliseconds(due)} of calls"


def _bucket_key(
    arrays: Sequence[Array],
    dims: Sequence[int | None],
    bucket: int,
) -> Hashable:
    """Return the key of calls whose sizes are counted as one."""
    key: list[Hashable] = []
    for array, dim in zip(arrays, dims, strict=True):
        shape, dtype, weak = aval_parts(array)
        if dim is not None:
            shape = (*shape[:dim], bucket, *shape[dim + 1 :])
        key.append((shape, dtype, weak))
    return tuple(key)


def milliseconds(seconds: float) -> str:
    """Return seconds as text, in milliseconds."""
    return f"{seconds * 1e3:.3g} ms"
