"""Which axes of the arrays of a call have which names: those of the annotations, behind those that
Vmap adds.

It stands between View, which knows shapes and annotations, and the stages that act on an axis by
its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._axes import Refused
from .._contract.sizes import Mismatch, two_sizes
from .._extent import Unreadable, names_in, read
from .._signature.hints import ArrayHint
from .view import Leaf, View


@dataclass(frozen=True)
class Named:
    """One axis of an array, and the size that its annotation gives it: a name, or an expression
    such as `n+1`.
    """

    axis: int
    size: str


def named_axes(
    view: View, levels: Sequence[tuple[str, Sequence[int | None]]] = ()
) -> tuple[tuple[Named, ...], ...]:
    """For each array, its axes with a name.

    Args:
        view: The arrays as called.
        levels: The axes that are mapped over, outermost first: the name, and for each array the
            position or None.
    """
    return tuple(
        _of_leaf(leaf, [(name, dims[i]) for name, dims in levels])
        for i, leaf in enumerate(view.leaves)
    )


def _of_leaf(leaf: Leaf, mapped: Sequence[tuple[str, int | None]]) -> tuple[Named, ...]:
    places = list(range(len(leaf.shape)))
    named = [Named(places.pop(dim), name) for name, dim in mapped if dim is not None]
    hint = leaf.hint
    if not isinstance(hint, ArrayHint):
        return tuple(named)
    at = next((i for i, dim in enumerate(hint.dims) if dim.variadic), len(hint.dims))
    ahead, behind = hint.dims[:at], hint.dims[at + 1 :]
    if len(places) < len(ahead) + len(behind):
        return tuple(named)
    pairs = [
        *zip(ahead, places, strict=False),
        *zip(reversed(behind), reversed(places), strict=False),
    ]
    for dim, place in pairs:
        text = dim.expr if dim.expr is not None else dim.name
        if text is not None and not dim.per_leaf and not (dim.broadcast and leaf.shape[place] == 1):
            named.append(Named(place, text))
    return tuple(named)


def sizes_of(view: View, named: Sequence[Sequence[Named]]) -> dict[str, int]:
    """The size of each axis that stands alone somewhere."""
    sizes: dict[str, int] = {}
    for leaf, axes in zip(view.leaves, named, strict=True):
        for axis in axes:
            if axis.size.isidentifier():
                sizes.setdefault(axis.size, leaf.shape[axis.axis])
    return sizes


def clash_of(axis: str, view: View, named: Sequence[Sequence[Named]]) -> Mismatch | None:
    """That two arrays differ in the size of an axis. What is cut is cut in all arrays alike, so
    this is asked with `check=False` too.
    """
    first: tuple[int, str] | None = None
    for leaf, axes in zip(view.leaves, named, strict=True):
        for size in (leaf.shape[each.axis] for each in axes if each.size == axis):
            first = first or (size, repr(leaf.path))
            if size != first[0]:
                return two_sizes(axis, first, (size, repr(leaf.path)))
    return None


class NoSize(Refused):
    """An expression of sizes is no number of elements where they change."""


def shape_at(
    leaf: Leaf, named: Sequence[Named], known: Mapping[str, int], changed: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The shape of an array where some axes have other sizes, symbolic ones perhaps.

    Raises:
        Refused: A size is an expression that is not arithmetic.
    """
    shape: list[Any] = list(leaf.shape)
    for axis in named:
        if axis.size in changed:
            shape[axis.axis] = changed[axis.size]
        elif not axis.size.isidentifier() and names_in(axis.size) & set(changed):
            if _size_of(leaf, axis.size, known) != leaf.shape[axis.axis]:
                raise Refused(
                    "",
                    f"has {leaf.path!r} with {leaf.shape[axis.axis]} elements, which are not"
                    f" `{axis.size}`",
                )
            shape[axis.axis] = _size_of(leaf, axis.size, {**known, **changed})
    return tuple(shape)


def _size_of(leaf: Leaf, size: str, sizes: Mapping[str, Any]) -> Any:
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


def beside(
    view: View, named: Sequence[Sequence[Named]], sizes: Mapping[str, int], refusal: Refused
) -> Refused:
    """The same refusal, and of shapes that did not fit, which array has as many elements as an axis
    without being named so.
    """
    cause: BaseException | None = refusal
    while isinstance(cause, Refused):
        cause = cause.__cause__
    if not isinstance(cause, (TypeError, ValueError)):
        return refusal
    said = next(
        (
            clause
            for name, size in sizes.items()
            if (clause := _unnamed(view, named, name, size, str(cause)))
        ),
        None,
    )
    return (
        refusal if said is None else Refused(refusal.place, f"{refusal.what.rstrip('.')}; {said}")
    )


def _unnamed(
    view: View, named: Sequence[Sequence[Named]], name: str, size: int, message: str
) -> str | None:
    for leaf, axes in zip(view.leaves, named, strict=True):
        for axis, count in enumerate(leaf.shape):
            if count == size and axis not in [named_axis.axis for named_axis in axes]:
                return (
                    f"{leaf.path!r} has as many elements along axis {axis} as {name!r}, and the"
                    " signature does not name that axis"
                )
    if re.search(rf"\b{size}\b", message):
        return (
            f"an array of {size} elements, as many as {name!r} has, is no argument with that axis"
        )
    return None


def count_leaf(name: str) -> Leaf:
    """The array that tells the program how much of a padded axis is valid."""
    return Leaf(f"size of {name}", "", (), np.dtype(np.int32), weak_type=False, counts=name)


def is_count(leaf: Leaf) -> bool:
    return leaf.counts is not None


def with_counts(view: View, weak: Sequence[bool], names: Sequence[str]) -> View:
    """What the stages see of a call that is padded: arrays with the weak types that they had, and
    the true sizes behind them.
    """
    leaves = [
        replace(leaf, weak_type=leaf.weak_type or was)
        for leaf, was in zip(view.leaves, weak, strict=True)
    ]
    return View((*leaves, *map(count_leaf, names)))


def in_names(text: str, axes: Sequence[str]) -> str:
    """A text with the axes' names instead of the symbols for their sizes."""
    return re.sub(
        r"\bd(\d+)\b",
        lambda symbol: axes[int(symbol[1])] if int(symbol[1]) < len(axes) else symbol[0],
        text,
    )
