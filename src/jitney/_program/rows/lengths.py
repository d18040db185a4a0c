"""Rows in padded arrays: `f(padded, lengths={"points": n})` says how long each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..._axes import Refused
from ..._errors import ContractError, name_fix
from ..._extent import names_in
from ..._jax.trees import Tracer
from ..._jax.typed import NumPyArray
from ..._view.named_axes import NamedAxis, named_axes, shape_at, sizes_of
from ..._view.view import Leaf
from .columns import Column
from .ragged import PaddedRows

if TYPE_CHECKING:
    from ..core import CompiledFunction
    from ..entry import Specialization

LENGTHS = "lengths"
"""Keyword of a call, unless the function has a parameter of that name."""


def read_lengths(
    core: CompiledFunction,
    given: object,
) -> dict[str, NumPyArray]:
    """Axis -> the length of each row.

    Raises:
        ContractError: It is something else.
    """
    # Under JITNEY_DISABLE nothing is padded.
    padded = [name for name, _ in core.options.pad] or sorted(core.axes)
    if not isinstance(given, Mapping) or not given:
        raise _misfit(core, f"{LENGTHS}={given!r} does not say which axis has which lengths")
    lengths: dict[str, NumPyArray] = {}
    for name, numbers in given.items():
        if name not in padded:
            raise ContractError(
                core.where,
                f"`{LENGTHS}` names {name!r}, which is not an axis of `pad`.",
                f"The axes of `pad` are {', '.join(padded)}.",
                name_fix(str(name), padded),
                code="J221",
            )
        if isinstance(numbers, Tracer):
            raise _misfit(core, f"the lengths of {name!r} are traced")
        try:
            found = np.asarray(numbers)
        except ValueError:  # lists of unlike lengths
            raise _misfit(core, f"the lengths of {name!r} are no array of one axis") from None
        if found.ndim != 1 or (found.size and (found.dtype.kind not in "iu" or found.min() < 0)):
            raise _misfit(core, f"the lengths of {name!r} are {found.dtype} of {found.shape}")
        most = np.iinfo(np.int32).max
        if found.size and found.max() > most:
            raise _misfit(core, f"a length of {name!r} is {found.max()}, more than {most}")
        lengths[name] = found.astype(np.int64)
    return lengths


def cut_columns(
    core: CompiledFunction,
    entry: Specialization,
    columns: Sequence[Column],
    lengths: Mapping[str, NumPyArray],
    count: int,
) -> list[Column]:
    """Return the columns of a call, whose mapped arrays are rows of these lengths.

    Args:
        core: The function.
        entry: Runs single rows; its layout has the annotations.
        columns: Of the arrays of the entry.
        lengths: Axis -> the length of each row.
        count: How many rows there are.

    Raises:
        ContractError: The lengths do not fit the arrays.
    """
    for name, numbers in lengths.items():
        if len(numbers) != count:
            raise _misfit(core, f"{len(numbers)} lengths of {name!r} are given for {count} rows")
    view = entry.plan_call([column.abstract(0) for column in columns], jit=False).view
    named = named_axes(view)
    known = sizes_of(view, named)
    cut: list[Column] = []
    used: set[str] = set()
    for column, leaf, axes in zip(columns, view.leaves, named, strict=True):
        has = {axis.axis: names_in(axis.size) & set(lengths) for axis in axes}
        has = {axis: names for axis, names in has.items() if names}
        if not has or column.kind == "shared":
            cut.append(column)
            continue
        if column.kind == "each":
            raise _misfit(core, f"{leaf.path!r} is rows of their own lengths already")
        sizes = _sizes_of_rows(core, leaf, axes, known, lengths)
        for axis in has:
            longest = int(sizes[axis].max())
            if longest > leaf.shape[axis]:
                raise _misfit(
                    core, f"{leaf.path!r} has rows of {leaf.shape[axis]}, and a length is {longest}"
                )
        used = used.union(*has.values())
        cut.append(
            Column(
                "each",
                PaddedRows(column.values, {axis: sizes[axis] for axis in has}),
                column.path,
            )
        )
    idle = [name for name in lengths if name not in used]
    if idle:
        raise _misfit(core, f"no array that is mapped has the axis {idle[0]!r}")
    return cut


def _sizes_of_rows(
    core: CompiledFunction,
    leaf: Leaf,
    axes: Sequence[NamedAxis],
    known: Mapping[str, int],
    lengths: Mapping[str, NumPyArray],
) -> list[NumPyArray]:
    """Size of each row along each axis of an array, which may be an expression such as `n+1`."""
    names = list(lengths)
    table = np.stack([lengths[name] for name in names], axis=1)
    distinct, which = np.unique(table, axis=0, return_inverse=True)
    try:
        shapes = [
            shape_at(leaf, axes, known, dict(zip(names, sizes, strict=True)))
            for sizes in distinct.tolist()
        ]
    except Refused as refusal:
        raise _misfit(core, f"an array {refusal.what}") from None
    return list(np.array(shapes, np.int64)[which.reshape(-1)].T)


def _misfit(core: CompiledFunction, what: str) -> ContractError:
    return ContractError(
        core.where,
        f"{what}.",
        f"`{LENGTHS}` says of each padded axis how many elements each row of the mapped arrays has:"
        " a dict from axis to integers, one for each row.",
        f'write {LENGTHS}={{"{core.options.pad[0][0]}": n}}, where n has the axis of `vmap`.',
        code="J221",
    )
