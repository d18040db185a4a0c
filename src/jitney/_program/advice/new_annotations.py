"""Annotations for arguments whose sizes differ between recorded calls and have no names."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..._body.function import FunctionInfo
from ..._jax.trees import issubdtype
from ..._jax.typed import DType
from ..._signature.array_hints import array_of_kind
from ..._signature.hints import AnyHint, Hint
from ..._view.layout import aval_parts
from .recorded_calls import RecordedCall

_NAMES = ("n", "m", "k", "l")
_KINDS = (
    ("Bool", jax.numpy.bool_),
    ("Int", jax.numpy.integer),
    ("Float", jax.numpy.floating),
    ("Complex", jax.numpy.complexfloating),
)


def new_annotations(
    core: FunctionInfo, seen: Sequence[RecordedCall]
) -> tuple[dict[str, Hint], list[str]]:
    """Return annotations for arguments whose sizes differ and have no names, and the new names.

    Sizes that are always equal share a name. Calls that differ in anything besides such sizes get
    no annotations.
    """
    first = seen[0]
    if any(each.entry is not first.entry or len(each.arrays) != len(first.arrays) for each in seen):
        return {}, []
    shapes = [[aval_parts(array)[0] for array in each.arrays] for each in seen]
    if any(len({len(shape) for shape in column}) > 1 for column in zip(*shapes, strict=True)):
        return {}, []

    # Name sizes by their values over all calls: two dimensions with equal columns are one axis.
    names: dict[tuple[int | None, ...], str] = {
        tuple(each.size(axis) for each in seen): axis for axis in first.sizes
    }
    possible = (*_NAMES, *(f"n{i}" for i in range(len(shapes[0]))))
    free = (name for name in possible if name not in core.axes)
    parameters = {parameter.name: parameter.hint for parameter in core.contract.parameters}
    paths = [first.entry.layout.names[i] for i in first.entry.layout.dynamic]
    hints: dict[str, Hint] = {}
    new: list[str] = []

    # An annotation can name the axes of an argument that is one array, and not of a leaf inside it.
    for i, column in enumerate(zip(*shapes, strict=True)):
        argument, path = paths[i]
        if len(set(column)) == 1:
            continue
        if not isinstance(parameters.get(argument), AnyHint):
            continue
        if path != argument:
            return {}, []
        dims: list[str] = []
        for sizes in zip(*column, strict=True):
            if len(set(sizes)) == 1:
                dims.append("_")
                continue
            if sizes not in names:
                names[sizes] = next(free)
            dims.append(names[sizes])
        new += [dim for dim in dims if dim != "_" and dim not in new]
        _, dtype, _ = aval_parts(first.arrays[i])
        hints[argument] = array_of_kind(_kind(dtype), " ".join(dims))
    return hints, new


def _kind(dtype: DType) -> str:
    """Return jaxtyping's word for a dtype."""
    return next((name for name, kind in _KINDS if issubdtype(dtype, kind)), "Shaped")
