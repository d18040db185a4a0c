"""Modules and trees that the rank rule of `vmap` shares, and that look like stacks.

    model: Net, with weight: Array of shape (5, 2, 3)   ->   one net, or five: nothing says it

They are shared, as the rule says, and the plan writes the option under which they are mapped. Next
to a stack that is mapped it is also a warning: its optimizer's state, say, is hardly meant to be
shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import Where, format_error, shortlist
from .._signature.options import VmapAxis
from .._view.named_axes import is_count
from .._view.view import View
from .dict_form import Dims, dict_form


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
    """Text of the warning; "" if no stack is mapped, or nothing else looks like one."""
    pairs = zip(view.leaves, dims, strict=True)
    parts = [leaf for leaf, dim in pairs if dim is not None and leaf.path != leaf.argument]
    if not stacks or not parts:
        return ""
    listed = shortlist([repr(stack) for stack in stacks])
    verb, whose = ("is", "its") if len(stacks) == 1 else ("are", "their")
    begin = f"all {whose} arrays begin with {_size(view, dims)}"
    return format_error(
        where,
        f"{listed} {verb} shared, and {begin}, as do those of {parts[0].argument!r}, which"
        f" {axis.name!r} maps.",
        "What is mapped is decided by annotations, and none says how many axes an element has.",
        f"for a stack write {dict_form(view, axis, dims, stacks)}, or"
        f" {dict_form(view, axis, dims, [])} if it is shared.",
    )


def _size(view: View, dims: Dims) -> int | None:
    pairs = zip(view.leaves, dims, strict=True)
    return next((leaf.shape[dim] for leaf, dim in pairs if dim is not None), None)
