"""Errors of axes that cannot be cut into chunks, each with the ways to do without the cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..._errors import AxisError, Where
from ..._jax.xla.memory import text

ChunkPurpose = Literal["chunk", "memory", "stream"]
_WITHOUT: dict[ChunkPurpose, str] = {
    "chunk": "drop the axis from `chunk`",
    "memory": "give `memory` room for all of it",
    "stream": "stream along another axis",
}
_CHUNK_RULE = (
    "A chunk sees its own elements; sums and the like, cumulative operations and loops go on from"
    " one to the next."
)


def without(purpose: ChunkPurpose, whole: int | None) -> str:
    """Ways around a cut, as parts of the fix.

    Args:
        purpose: Option that cuts the axis.
        whole: Bytes that the program takes without one, if they were counted.
    """
    if purpose != "memory" or whole is None:
        return _WITHOUT[purpose]
    return f"{_WITHOUT[purpose]}: memory={whole}"


def cannot_accumulate(where: Where, axis: str, what: str) -> AxisError:
    """Error of a loss that is not a sum over the elements of the axis."""
    return AxisError(
        where,
        f"axis {axis!r} cannot be accumulated over: {what}.",
        "Microbatches add up to the batch if the loss is a mean or a sum over the axis of terms of"
        " one element each; a statistic of the whole batch, as of batch normalisation, is in none"
        " of them.",
        "write it as such a mean; `chunk` on the loss cuts more than that, in several passes over"
        " the data.",
        code="J232",
    )


def cannot_cut(
    where: Where,
    axis: str,
    what: str,
    otherwise: str,
    *,
    recomputes: bool,
) -> AxisError:
    """Error of an operation that looks along the axis in a way that cannot be carried.

    Args:
        where: Decorated function.
        axis: Name of the axis.
        what: Operation and what it does, with its place.
        otherwise: Way around the cut, by `without`.
        recomputes: Whether `remat="auto"` can meet the budget instead.
    """
    return AxisError(
        where,
        f"axis {axis!r} cannot be cut into chunks: {what}.",
        _CHUNK_RULE,
        (
            f'write remat="auto" with `memory`, which recomputes instead, or {otherwise}.'
            if recomputes
            else f"move that line out of the function, or {otherwise}."
        ),
    )


def cannot_stream(where: Where, axis: str, what: str) -> AxisError:
    """Error of an operation that needs other chunks than the one at hand, such as a binary search,
    in a function that `chunk` runs where the data are in memory.
    """
    return AxisError(
        where,
        f"axis {axis!r} cannot be streamed: {what}.",
        "A stream has one chunk in memory at a time, and this line needs the others too; `chunk`"
        " runs it, as its arrays are in memory as a whole.",
        f"call it on arrays in memory with chunk={{{axis!r}: ...}}, or stream along another axis.",
    )


def made_of_size(where: Where, axis: str, what: str, otherwise: str) -> AxisError:
    """Error of results that are made of the size of the axis, which no chunk knows."""
    return AxisError(
        where,
        f"axis {axis!r} cannot be cut into chunks: {what}.",
        _CHUNK_RULE,
        f"return the size itself, or one array that is made of it, or {otherwise}.",
    )


def cannot_cut_on_devices(
    where: Where,
    axis: str,
    devices: str,
    what: str,
    otherwise: str,
) -> AxisError:
    """Error of an operation that goes on from one device's chunks to those of the next."""
    return AxisError(
        where,
        f"axis {axis!r} cannot be cut into chunks where it is sharded over {devices}: {what}.",
        "Each device works on its own part, and only sums and the like are put together"
        " afterwards.",
        f"take {axis!r} out of `shard`, move that line out of the function, or {otherwise}.",
        code="J233",
    )


def no_chunk_fits(
    where: Where,
    axes: Sequence[str],
    budget: int,
    least: int,
    whole: int,
    *,
    recomputes: bool,
) -> AxisError:
    """Error of a program that takes more than its budget, whatever the width of its chunks."""
    names = " or ".join(map(repr, axes))
    return AxisError(
        where,
        f"no chunk along {names} brings the program to {text(budget)}: "
        f"the least is {text(least)}, all at once takes {text(whole)}.",
        "`memory` bounds temporaries and arguments, as the compiler counts them; the arguments are"
        " there as a whole.",
        (
            f'give it memory={least}, or write remat="auto" with `memory`, which recomputes.'
            if recomputes
            else f"give it memory={least}, or read the data piece by piece with `jitney.stream`."
        ),
        code="J230",
    )
