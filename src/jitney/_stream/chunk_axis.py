"""Axis along which a stream reads its data, and the size of a chunk.

    chunk={"n": 4096}       both
    chunk=4096              the axis is chosen
    chunk="auto", or none   so is the size

The axis that the program's own `chunk=` names is chosen. Its size is not: it suits the caches of a
device, and a reading from a disk should be larger. Else it is an axis that every source can be cut
along, the longest if there are several; arrays count where there is no source. Two of one length
are an error, since the order of axes in a signature says nothing about the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from .._errors import ContractError, Where, repr_of
from .._signature.options import AUTO
from .._stages.vmap import levels_of
from .._view.named_axes import NamedAxis, is_count, named_axes, names_of_signature, sizes_of
from .._view.view import View
from .data.slices import Rows
from .data.sources import is_reversible

if TYPE_CHECKING:
    from .._stages.stage import Request

ChunkSize: TypeAlias = int | Literal["auto"]
ChunkOf: TypeAlias = Mapping[str, ChunkSize] | ChunkSize
"""What `chunk=` of a stream takes."""


def read_chunk(
    where: Where,
    chunk: object,
    axes: Iterable[str],
) -> tuple[str | None, int | None]:
    """Return the axis, or None if it is chosen, and the size of a chunk, or None for "auto".

    Args:
        where: The function.
        chunk: The keyword of the user.
        axes: Axes of its signature, for the message.

    Raises:
        ContractError: It is neither.
    """
    axis: object = None
    size: object = AUTO if chunk is None else chunk
    if isinstance(chunk, Mapping) and len(chunk) == 1:
        ((axis, size),) = chunk.items()
    if axis is None or isinstance(axis, str):
        if isinstance(size, str) and size == AUTO:
            return axis, None
        if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0:
            return axis, int(size)

    # The fix names the axis that was given, right or not: an unknown one has an error of its own.
    given = [name for name in chunk if isinstance(name, str)] if isinstance(chunk, Mapping) else []
    named = given[0] if given else min(axes, default="points")
    raise ContractError(
        where,
        f"chunk={repr_of(chunk)} does not say how many elements of which axis are read at a time.",
        'It is a size above 0 or "auto", alone or by the name of one axis.',
        f'write chunk={{"{named}": 65536}}, or leave it out.',
        code="J218",
    )


def choose_axis(
    view: View,
    request: Request,
    sources: Mapping[str, Rows],
) -> str:
    """Choose the axis of a stream that names none.

    Args:
        view: Abstract arrays of the call.
        request: The user's options.
        sources: Data that are read, by the paths of their arrays.

    Raises:
        ContractError: No axis has a name, or several can be meant.
    """
    inside, named = _named_axes(view, request)
    sizes = sizes_of(inside, named)
    if not sizes:
        raise ContractError(
            request.where,
            "no array has an axis with a name.",
            "Data are cut along an axis that annotations name.",
            'annotate the arrays: x: Float[Array, "points"].',
            code="J218",
        )

    # Arguments that have the axis of the program's own `chunk=` may be left out.
    for name, _ in request.options.chunk:
        if name in sizes:
            return name

    common = set(sizes)
    for leaf, axes in zip(inside.leaves, named, strict=True):
        source = sources.get(leaf.path)
        if source is None:
            continue
        # Rows that come one after the other can be cut along their first axis only.
        free = is_reversible(source)
        common &= {axis.size for axis in axes if free or axis.axis == 0}
    # Without a source, fields of modules hold parameters rather than data.
    if not sources:
        own = names_of_signature(inside, named) | {name for name, _ in levels_of(view, request)}
        common = common & own or common
    longest = max((sizes[name] for name in common), default=0)
    names = [name for name in sizes if name in common and sizes[name] == longest]
    if len(names) == 1:
        return names[0]
    raise _unclear(request.where, names or list(sizes), longest if names else None)


def axis_sizes(view: View, request: Request) -> Mapping[str, int]:
    """Return the named axes of the arrays of a call, and their sizes."""
    return sizes_of(*_named_axes(view, request))


def _named_axes(view: View, request: Request) -> tuple[View, Sequence[Sequence[NamedAxis]]]:
    """Arrays that are not numbers of the call's sizes, and the named axes of each."""
    inside = View(tuple(leaf for leaf in view.leaves if not is_count(leaf)))
    return inside, named_axes(inside, levels_of(view, request))


def _unclear(
    where: Where | str,
    names: list[str],
    size: int | None,
) -> ContractError:
    listed = " or ".join(map(repr, names))
    what = f"{listed}, none of which all data have"
    if size is not None:
        what = f"{listed}, each of {size:,} elements"
    return ContractError(
        where,
        f"it is not clear along which axis the data are read: {what}.",
        "Without its name it is the longest axis that all sources have, or without a source that of"
        " any array.",
        f'write chunk={{"{names[0]}": "auto"}}.',
        code="J218",
    )
