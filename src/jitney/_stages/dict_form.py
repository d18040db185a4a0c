"""Dict form of the option `vmap`: the positions of an axis by paths, and its text for advice.

    {"model": 0, "model.trunk": None}   ->   0 for model.head.weight, None for model.trunk.weight

It is advised for modules and trees that the rank rule of `vmap` shares, and that look like stacks:

    model: Net, with weight: Array of shape (5, 2, 3)   ->   one net, or five: nothing says it

They are shared, as the rule says, and the plan writes the option under which they are mapped. Next
to a stack of modules that is mapped it is also a warning: the state of its optimizer, say, is
hardly meant to be shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import ContractError, Where, format_error, name_fix, shortlist
from .._signature.options import VmapAxis
from .._signature.paths import Steps, dotted, stem_of, steps_of
from .._view.named_axes import is_count
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


def possible_stacks(view: View, dims: Dims) -> list[str]:
    """Arguments that may be stacks: all their arrays begin with one size, that of the axis if it
    has one, and no annotation gives a rank.
    """
    size = _size(view, dims)
    stacks: list[str] = []
    for argument in dict.fromkeys(leaf.argument for leaf in view.leaves):
        leaves = [view.leaves[i] for i in view.of(argument) if not view.leaves[i].is_number]
        # The count of a padded axis, and an array that is an argument itself, are no trees.
        if any(is_count(leaf) or leaf.path == leaf.argument for leaf in leaves):
            continue
        is_ranked = any(leaf.declared_rank is not None for leaf in leaves)
        first = {leaf.shape[0] if leaf.shape else None for leaf in leaves}
        if not is_ranked and len(first) == 1 and first != {None} and size in {None, *first}:
            stacks.append(argument)
    return stacks


def clause_on(
    stacks: Sequence[str],
    view: View,
    axis: VmapAxis,
    dims: Dims,
) -> str:
    """Clause of the plan; "" if there are none."""
    if not stacks:
        return ""
    verb = "is" if len(stacks) == 1 else "are"
    return (
        f"; {shortlist(stacks)} {verb} shared, since no annotation says how many axes an element"
        f" has: for a stack write {dict_form(view, axis, dims, stacks)}"
    )


def warning_of(
    stacks: Sequence[str],
    view: View,
    axis: VmapAxis,
    dims: Dims,
    where: Where,
) -> str:
    """Text of the warning; "" if no stack of modules is mapped, or nothing else looks like one."""
    pairs = zip(view.leaves, dims, strict=True)
    # A batch in a dict may be as long as a layer is wide; a stack of modules says what it is.
    fields = [
        leaf
        for leaf, dim in pairs
        if dim is not None and leaf.hint is None and leaf.field is not None
    ]
    if not stacks or not fields:
        return ""
    listed = shortlist([repr(stack) for stack in stacks])
    verb, whose = ("is", "its") if len(stacks) == 1 else ("are", "their")
    begin = f"all {whose} arrays begin with {_size(view, dims)}"
    return format_error(
        where,
        f"{listed} {verb} shared, and {begin}, as do those of {fields[0].argument!r}, which"
        f" {axis.name!r} maps.",
        "What is mapped is decided by annotations, and none says how many axes an element has.",
        f"for a stack write {dict_form(view, axis, dims, stacks)}, or"
        f" {dict_form(view, axis, dims, [])} if it is shared.",
    )


def _size(view: View, dims: Dims) -> int | None:
    pairs = zip(view.leaves, dims, strict=True)
    return next((leaf.shape[dim] for leaf, dim in pairs if dim is not None), None)
