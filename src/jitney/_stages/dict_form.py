"""Dict form of the option `vmap`: the positions of an axis by paths, and its text for advice.

{"model": 0, "model.trunk": None}   ->   0 for model.head.weight, None for model.trunk.weight
"""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import ContractError, Where, name_fix, shortlist
from .._signature.options import VmapAxis
from .._signature.paths import Steps, dotted, stem_of, steps_of
from .._view.view import Leaf, View
from .stage import Request

Dims = tuple[int | None, ...]
"""Position of an axis in each array; None where the array does not have it."""


def positions_by_path(
    view: View,
    axis: VmapAxis,
    request: Request,
) -> Dims:
    """Position of the axis in each array: that of the longest path that it is a part of.

    Raises:
        ContractError: An array has no such position, or a path leads to no array.
    """
    unused = {path: steps_of(path) or () for path, _ in axis.dims or ()}
    dims: list[int | None] = []

    for leaf in view.leaves:
        dim = None
        entries = axis.entries_at(leaf.path)
        for path, _ in entries:
            unused.pop(path, None)
        if entries:
            path, position = entries[0]
            is_part = steps_of(path) != steps_of(leaf.path)
            if position is not None and not (is_part and leaf.is_number):
                dim = position_in(leaf, position, axis, request.where)
        dims.append(dim)

    for path, steps in unused.items():
        if len(steps) > 1:
            refuse_unknown_part(view, path, steps, request.where)
    return tuple(dims)


def refuse_unknown_part(
    view: View,
    path: str,
    steps: Steps,
    where: Where,
) -> None:
    """Check that an argument has no arrays, if none of them belongs to a part that is named: it may
    be optional.

    Raises:
        ContractError: The argument has arrays.
    """
    arrays = [view.leaves[i].path for i in view.of(steps[0])]
    if arrays:
        raise ContractError(
            where,
            f"`vmap` names {path!r}, which holds no array of this call.",
            f"The arrays of {steps[0]!r} are {shortlist(arrays)}.",
            name_fix(dotted(path), map(dotted, _stems(arrays)), "correct the path."),
            code="J211",
        )


def _stems(paths: Sequence[str]) -> list[str]:
    """Paths of all parts that hold one of these arrays."""
    stems: dict[str, None] = {}
    for path in paths:
        steps = steps_of(path) or ()
        for count in range(1, len(steps) + 1):
            stems[stem_of(path, steps[:count]) or path] = None
    return [*stems]


def position_in(
    leaf: Leaf,
    dim: int,
    axis: VmapAxis,
    where: Where,
) -> int:
    """Position of the axis in an array, counted from the front.

    Raises:
        ContractError: The array has no such position.
    """
    rank = len(leaf.shape)
    if not -rank <= dim < rank:
        part = (
            "" if leaf.path == leaf.argument else f', or say that it is shared: "{leaf.path}": None'
        )
        raise ContractError(
            where,
            f"axis {axis.name!r} is at position {dim} of {leaf.path}, which has shape"
            f" {leaf.shape}.",
            "`vmap` maps every array of a named argument over an axis that it has.",
            f"pass an array with that axis, or change the position{part}.",
            code="J211",
        )
    return dim % rank


def dict_form(
    view: View,
    axis: VmapAxis,
    dims: Dims,
    also: Sequence[str],
) -> str:
    """Option in the dict form that maps the arrays that have the axis, and some whole arguments."""
    paths: list[str] = []
    for argument in dict.fromkeys(leaf.argument for leaf in view.leaves):
        mapped = [view.leaves[i].path for i in view.of(argument) if dims[i] is not None]
        is_whole = argument in also or len(mapped) == len(view.of(argument))
        paths += [argument] if is_whole else mapped
    listed = ", ".join(f'"{path}": 0' for path in paths)
    return f'vmap={{"{axis.name}": {{{listed}}}}}'
