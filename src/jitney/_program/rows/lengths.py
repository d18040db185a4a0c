"""Rows in padded arrays: `f(padded, lengths={"points": n})` says how long each is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..._axes import Refused
from ..._body.function import FunctionInfo
from ..._contract.contract import Parameter
from ..._errors import ContractError, Where, name_fix
from ..._extent import names_in
from ..._jax.trees import Tracer
from ..._jax.typed import NumPyArray
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.named_axes import named_axes, shape_at, sizes_of
from ..compiled_calls import CompiledCalls
from .columns import Column
from .ragged import PaddedRows

LENGTHS = "lengths"
"""Keyword of a call, unless the function has a parameter of that name."""


def takes_lengths(parameters: Iterable[Parameter]) -> bool:
    """Return whether a function takes `lengths` itself."""
    return any(
        parameter.name == LENGTHS or parameter.kind is inspect.Parameter.VAR_KEYWORD
        for parameter in parameters
    )


@dataclass(frozen=True)
class RowShape:
    """Shape of an array of a row, as it follows from the sizes of padded axes.

    Args:
        path: The array, as a person would write it.
        longest: The shape of a row in the padded array.
        names: Position of an axis -> the padded axes that its size depends on.
        at: Function from sizes of padded axes to the shape.
    """

    path: str
    longest: Sequence[int]
    names: Mapping[int, frozenset[str]]
    at: Callable[[Mapping[str, int]], Sequence[object]]


def padded_axes(core: FunctionInfo) -> list[str]:
    """Return the axes that may have lengths."""
    # Under JITNEY_DISABLE nothing is padded.
    return [name for name, _ in core.options.pad] or sorted(core.axes)


def read_lengths(
    where: Where,
    padded: Sequence[str],
    given: object,
) -> dict[str, NumPyArray]:
    """Axis -> the length of each row.

    Args:
        where: The function.
        padded: The axes that may have lengths.
        given: The argument.

    Raises:
        ContractError: It is something else.
    """
    if not isinstance(given, Mapping) or not given:
        what = f"{LENGTHS}={given!r} does not say which axis has which lengths"
        raise _misfit(where, padded[0], what)
    lengths: dict[str, NumPyArray] = {}
    for name, numbers in given.items():
        if name not in padded:
            raise ContractError(
                where,
                f"`{LENGTHS}` names {name!r}, which is not an axis of `pad`.",
                f"The axes of `pad` are {', '.join(padded)}.",
                name_fix(str(name), padded),
                code="J221",
            )
        if isinstance(numbers, Tracer):
            raise _misfit(where, name, f"the lengths of {name!r} are traced")
        try:
            found = np.asarray(numbers)
        except ValueError:  # lists of unlike lengths
            what = f"the lengths of {name!r} are no array of one axis"
            raise _misfit(where, name, what) from None
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            what = f"the lengths of {name!r} are {found.dtype} of {found.shape}"
            if not found.ndim:
                what = f"the lengths of {name!r} are a {type(numbers).__name__}"
            raise _misfit(where, name, what)
        if found.size and found.min() < 0:
            raise _misfit(where, name, f"a length of {name!r} is {found.min()}")
        most = np.iinfo(np.int32).max
        if found.size and found.max() > most:
            what = f"a length of {name!r} is {found.max()}, more than {most}"
            raise _misfit(
                where,
                name,
                what,
            )
        lengths[name] = found.astype(np.int64)
    return lengths


def row_shapes(
    entry: CompiledCalls,
    columns: Sequence[Column],
    known: dict[Hashable, list[RowShape]],
) -> list[RowShape]:
    """Return the shapes of the arrays of the first row by the annotations of an entry, which are
    then known.
    """
    arrays = [column.abstract(0) for column in columns]
    key = tuple(map(aval_parts, arrays))
    shapes = known.get(key)
    if shapes is None:
        if len(known) >= MAX_ENTRIES:
            known.clear()
        shapes = known[key] = _row_shapes(entry, arrays)
    return shapes


def _row_shapes(entry: CompiledCalls, arrays: Sequence[object]) -> list[RowShape]:
    view = entry.plan_call(arrays, jit=False).view
    named = named_axes(view)
    known = sizes_of(view, named)
    # Where nothing is padded (JITNEY_DISABLE), any axis may have lengths.
    padded = {name for name, _ in entry.options.pad} or set(known)
    shapes: list[RowShape] = []
    for leaf, axes in zip(view.leaves, named, strict=True):
        has = {axis.axis: names_in(axis.size) & padded for axis in axes}
        names = {axis: of for axis, of in has.items() if of}
        shapes.append(RowShape(leaf.path, leaf.shape, names, partial(shape_at, leaf, axes, known)))
    return shapes


def cut_columns(
    where: Where,
    columns: Sequence[Column],
    shapes: Sequence[RowShape],
    lengths: Mapping[str, NumPyArray],
    count: int,
) -> list[Column]:
    """Return the columns of a call, whose mapped arrays are rows of these lengths.

    Args:
        where: The function.
        columns: Of the arrays of a row.
        shapes: Of the same arrays.
        lengths: Axis -> the length of each row.
        count: How many rows there are.

    Raises:
        ContractError: The lengths do not fit the arrays.
    """
    for name, numbers in lengths.items():
        if len(numbers) != count:
            what = f"{len(numbers)} lengths of {name!r} are given for {count} rows"
            raise _misfit(
                where,
                name,
                what,
            )
    first = next(iter(lengths))
    cut: list[Column] = []
    used: set[str] = set()
    for column, shape in zip(columns, shapes, strict=True):
        has = {axis: names & set(lengths) for axis, names in shape.names.items()}
        has = {axis: names for axis, names in has.items() if names}
        if not has or column.kind == "shared":
            cut.append(column)
            continue
        if column.kind == "each":
            raise _misfit(where, first, f"{shape.path!r} is rows of their own lengths already")
        sizes = _sizes_of_rows(
            where,
            shape,
            lengths,
        )
        for axis in has:
            longest, most = int(sizes[axis].max()), shape.longest[axis]
            if longest > most:
                what = f"{shape.path!r} has rows of {most}, and a length is {longest}"
                raise _misfit(
                    where,
                    first,
                    what,
                )
        used = used.union(*has.values())
        rows = PaddedRows(column.values, {axis: sizes[axis] for axis in has})
        cut.append(Column("each", rows, column.path))
    idle = [name for name in lengths if name not in used]
    if idle:
        raise _misfit(where, first, f"no array that is mapped has the axis {idle[0]!r}")
    return cut


def _sizes_of_rows(
    where: Where,
    shape: RowShape,
    lengths: Mapping[str, NumPyArray],
) -> list[NumPyArray]:
    """Size of each row along each axis of an array, which may be an expression such as `n+1`."""
    names = list(lengths)
    table = np.stack([lengths[name] for name in names], axis=1)
    distinct, which = np.unique(
        table,
        axis=0,
        return_inverse=True,
    )
    try:
        shapes = [shape.at(dict(zip(names, sizes, strict=True))) for sizes in distinct.tolist()]
    except Refused as refusal:
        raise _misfit(where, names[0], f"an array {refusal.what}") from None
    return list(np.array(shapes, np.int64)[which.reshape(-1)].T)


def _misfit(where: Where, name: str, what: str) -> ContractError:
    return ContractError(
        where,
        f"{what}.",
        f"`{LENGTHS}` says of each padded axis how many elements each row of the mapped arrays has:"
        " a dict from axis to integers, one for each row.",
        f'write {LENGTHS}={{"{name}": n}}, where n has the axis of `vmap`.',
        code="J221",
    )
