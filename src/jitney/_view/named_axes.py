"""Names of the axes of the arrays of a call: those of the annotations, behind those that Vmap adds.

This module stands between View, which knows shapes and annotations, and the stages that act on an
axis by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .._axes import Refused
from .._contract.sizes import Mismatch, two_sizes
from .._errors import ContractError, Where
from .._extent import Unreadable, names_in, read
from .._signature.hints import ArrayHint
from .view import Leaf, View

if TYPE_CHECKING:
    from .._axes.dims import Dim


@dataclass(frozen=True)
class NamedAxis:
    """Axis of an array, and the size that its annotation gives: a name, or an expression such as
    `n+1`.
    """

    axis: int
    size: str


def named_axes(
    view: View,
    levels: Sequence[tuple[str, Sequence[int | None]]] = (),
) -> tuple[tuple[NamedAxis, ...], ...]:
    """Named axes of each array.

    Args:
        view: The arrays of the call.
        levels: Axes that are mapped over, outermost first: the name, and for each array the
            position or None.
    """
    return tuple(
        _of_leaf(leaf, [(name, dims[i]) for name, dims in levels])
        for i, leaf in enumerate(view.leaves)
    )


def _of_leaf(
    leaf: Leaf,
    mapped: Sequence[tuple[str, int | None]],
) -> tuple[NamedAxis, ...]:
    places = list(range(len(leaf.shape)))
    named: list[NamedAxis] = []

    # A mapped axis is removed before the next level, whose position counts in what is left.
    for name, dim in mapped:
        if dim is not None:
            named.append(NamedAxis(places.pop(dim), name))
    hint = leaf.declared
    if not isinstance(hint, ArrayHint):
        return tuple(named)
    # A module may be a stack of modules: its axes are then not where the fields say.
    if leaf.hint is None and hint.rank not in (None, len(places)):
        return tuple(named)

    # `*name` or `...` matches any number of axes: the dims before it count from the front, those
    # after it from the back.
    variadic = [i for i, dim in enumerate(hint.dims) if dim.variadic]
    at = variadic[0] if variadic else len(hint.dims)
    ahead, behind = hint.dims[:at], hint.dims[at + 1 :]
    if len(places) < len(ahead) + len(behind):
        return tuple(named)
    pairs = [
        *zip(ahead, places, strict=False),
        *zip(reversed(behind), reversed(places), strict=False),
    ]

    for dim, place in pairs:
        size = dim.expr if dim.expr is not None else dim.name
        # A `?name` has one size per leaf, and a `#name` of size 1 is broadcast: neither names an
        # axis here.
        if size is None or dim.per_leaf:
            continue
        # Last, since the size may be a symbol, which this compares.
        if not (dim.broadcast and leaf.shape[place] == 1):
            named.append(NamedAxis(place, size))

    return tuple(named)


def sizes_of(
    view: View,
    named: Sequence[Sequence[NamedAxis]],
) -> dict[str, int]:
    """Size of each axis that some annotation names by itself, not only within an expression."""
    sizes: dict[str, int] = {}
    for leaf, axes in zip(view.leaves, named, strict=True):
        for axis in axes:
            if axis.size.isidentifier():
                sizes.setdefault(axis.size, leaf.shape[axis.axis])
    return sizes


def names_of_signature(
    view: View,
    named: Sequence[Sequence[NamedAxis]],
) -> set[str]:
    """Axes that the signature or `vmap` names, and not only the field of a class."""
    return {
        axis.size
        for leaf, axes in zip(view.leaves, named, strict=True)
        for axis in axes
        if leaf.hint is not None or leaf.field is None
    }


def clash_of(
    axis: str,
    view: View,
    named: Sequence[Sequence[NamedAxis]],
) -> Mismatch | None:
    """Mismatch of two arrays in the size of an axis, or None.

    All arrays are cut alike along a chunked axis, so this check runs with `contracts=False` too.
    A contract binds the axes of a field in each instance anew, so this finds two instances that
    differ.
    """
    first: tuple[int, str] | None = None
    in_field = False
    for leaf, axes in zip(view.leaves, named, strict=True):
        path = repr(leaf.path)
        sizes = [leaf.shape[each.axis] for each in axes if each.size == axis]
        in_field = in_field or (bool(sizes) and leaf.hint is None and leaf.field is not None)
        for size in sizes:
            first = first or (size, path)
            if size != first[0]:
                clash = two_sizes(axis, first, (size, path))
                return _in_fields(clash) if in_field else clash
    return None


def _in_fields(clash: Mismatch) -> Mismatch:
    return Mismatch(
        clash.what,
        "An option acts on an axis by its name, in the signature and in the fields of all instances"
        " alike, so it has one size there.",
        "pass equal sizes, rename the axis in one annotation, or give the option another axis.",
        clash.code,
    )


def refuse_two_sizes(
    where: Where,
    axis: str,
    view: View,
    named: Sequence[Sequence[NamedAxis]],
) -> None:
    """Check that the arrays agree on the size of an axis that an option acts on.

    Raises:
        ContractError: Two of them differ.
    """
    clash = clash_of(axis, view, named)
    if clash is not None:
        raise ContractError(where, clash.what, clash.rule, clash.fix, code=clash.code)


class NoSize(Refused):
    """An expression of sizes is not a number of elements where they change."""


def shape_at(
    leaf: Leaf,
    named: Sequence[NamedAxis],
    known: Mapping[str, int],
    changed: Mapping[str, object],
) -> tuple[Dim, ...]:
    """Shape of an array with other sizes for some axes, possibly symbolic ones.

    Raises:
        Refused: A size is an expression that is not arithmetic.
    """
    shape: list[Dim] = list(leaf.shape)
    for axis in named:
        position, size = axis.axis, axis.size
        if size in changed:
            shape[position] = changed[size]
        elif not size.isidentifier() and names_in(size) & set(changed):
            # The expression has to hold at the present sizes before it is evaluated at others.
            present = leaf.shape[position]
            if _size_of(leaf, size, known) != present:
                raise Refused(
                    "",
                    f"has {leaf.path!r} with {present} elements, which are not `{size}`",
                )
            shape[position] = _size_of(leaf, size, {**known, **changed})
    return tuple(shape)


def shapes_at(view: View, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Shapes of the arrays at other sizes of some axes.

    Raises:
        Refused: The size of another axis has no whole number there.
    """
    named = named_axes(view)
    known = sizes_of(view, named)
    return tuple(
        shape_at(leaf, axes, known, sizes) for leaf, axes in zip(view.leaves, named, strict=True)
    )


def _size_of(
    leaf: Leaf,
    size: str,
    sizes: Mapping[str, object],
) -> Dim:
    try:
        value = read(size).at(sizes)
    except Unreadable as error:
        raise NoSize(
            "", f"has {leaf.path!r}, whose size `{size}` is known at one size only: {error}"
        ) from error
    if isinstance(value, float):
        if not value.is_integer():
            raise NoSize("", f"has {leaf.path!r}, whose size `{size}` would be {value}")
        return int(value)
    return value


def with_shape_hint(
    view: View,
    named: Sequence[Sequence[NamedAxis]],
    sizes: Mapping[str, int],
    refusal: Refused,
) -> Refused:
    """The refusal, with a hint added if shapes did not fit: an array that has as many elements as a
    named axis, without being annotated with it.
    """
    cause: BaseException | None = refusal
    while isinstance(cause, Refused):
        cause = cause.__cause__
    if not isinstance(cause, (TypeError, ValueError)):
        return refusal
    for name, size in sizes.items():
        clause = _unnamed_axis_clause(view, named, name, size, str(cause))
        if clause:
            return Refused(refusal.place, f"{refusal.what.rstrip('.')}; {clause}")
    return refusal


def _unnamed_axis_clause(
    view: View,
    named: Sequence[Sequence[NamedAxis]],
    name: str,
    size: int,
    message: str,
) -> str | None:
    for leaf, axes in zip(view.leaves, named, strict=True):
        known = [named_axis.axis for named_axis in axes]
        for axis, count in enumerate(leaf.shape):
            if count == size and axis not in known:
                return (
                    f"{leaf.path!r} has as many elements along axis {axis} as {name!r}, and"
                    " no annotation names that axis"
                )
    if re.search(rf"\b{size}\b", message):
        return (
            f"an array of {size} elements, as many as {name!r} has, is not an argument with"
            " that axis"
        )
    return None


def count_leaf(name: str) -> Leaf:
    """Leaf of the scalar that passes the true size of a padded axis to the program."""
    return Leaf(
        f"size of {name}",
        "",
        (),
        np.dtype(np.int32),
        weak_type=False,
        counts=name,
    )


def is_count(leaf: Leaf) -> bool:
    return leaf.counts is not None


def with_counts(
    view: View,
    weak: Sequence[bool],
    names: Sequence[str],
) -> View:
    """View of a padded call for the stages: arrays with their original weak types, and the true
    sizes behind them.
    """
    leaves = [
        replace(leaf, weak_type=leaf.weak_type or was)
        for leaf, was in zip(view.leaves, weak, strict=True)
    ]
    return View((*leaves, *map(count_leaf, names)))


def in_names(text: str, axes: Sequence[str]) -> str:
    """Replace the symbols of sizes (`d0`) by the names of axes."""

    def name(symbol: re.Match[str]) -> str:
        number = int(symbol[1])
        return axes[number] if number < len(axes) else symbol[0]

    return re.sub(r"\bd(\d+)\b", name, text)
