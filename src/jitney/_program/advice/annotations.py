"""Annotations that are remedies: names for sizes that differ between recorded calls and have none,
and an array's annotation for a static number, proven by a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..._body.function import FunctionInfo
from ..._errors import plural
from ..._jax.trees import canonicalize_dtype, issubdtype, tree_flatten
from ..._jax.typed import DType
from ..._signature.array_hints import array_of_kind
from ..._signature.hints import AnyHint, Hint
from ..._values.attribute_reads import Statics
from ..._values.static_values import Opaque
from ..._view.layout import Layout, aval_parts
from ..._view.result import unmix
from ..entry import Specialization
from .proofs import Proven, twin_of
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


def traced_number(
    core: FunctionInfo,
    seen: Sequence[RecordedCall],
    argument: str,
) -> Proven | None:
    """Return the remedy of an annotation that traces a static number, if the body can be traced so
    and its results keep their types.
    """
    taken = [each for each in seen if _is_number(each.statics.get(argument))]
    if not taken:
        return None

    # The twin: the number is a parameter with the annotation of an array, and not static.
    last = taken[-1]
    layout, statics = last.entry.layout, last.statics
    kind = "Float" if any(isinstance(each.statics[argument], float) for each in taken) else "Int"
    static = tuple(name for name in core.options.static if name != argument)
    twin = twin_of(core, {"static": static}, {argument: array_of_kind(kind, "")})

    # Evaluate both abstractly, and compare the types of the results.
    with last.entry.numbers():
        dtype = canonicalize_dtype(float if kind == "Float" else int)
        stand_in = jax.ShapeDtypeStruct((), dtype, weak_type=True)
        parts: list[object] = []
        for name, value in statics.items():
            parts.append(stand_in if name == argument else Opaque.holding(value))
        values = layout.trees(last.arrays, parts)
        there = Layout(twin.binder, twin.contract, values, core.options.donate)
        leaves = tree_flatten(values)[0]
        key = ("traced", last.entry.key)
        entry = Specialization(twin, there, Statics(there.statics(leaves)), key)
        try:
            results = _results(entry, there.pick(leaves))
        except Exception:  # noqa: BLE001 - the user's code, with what it was not written for: whatever it raises, it takes no array
            return None
        if results != _results(last.entry, last.arrays):
            return None
    listed = f"take {argument!r} out of `static`, and " if static != core.options.static else ""
    then = len({each.key_without(argument) for each in taken})
    now = len({each.program for each in taken})
    saves = f"{plural(then, 'program')} instead of {now}"
    return Proven(
        f'{listed}annotate {argument}: {kind}[ArrayLike, ""]',
        frozenset({("static value", argument)}),
        saves,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _results(entry: Specialization, arrays: Sequence[object]) -> list[object]:
    out = unmix(jax.eval_shape(entry.run_inner_stages, *arrays))
    leaves = jax.tree.leaves(out)
    return [aval_parts(leaf)[:2] if hasattr(leaf, "dtype") else leaf for leaf in leaves]
