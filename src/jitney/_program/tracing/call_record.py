"""Records of traces and compiles, as data for comparison: see `_diagnosis/retraces/causes.py`.

A record is written while something is traced or compiled, and never in a warm call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.tree_util import DictKey, SequenceKey

from ..._body.body import CallPlanner
from ..._body.function import TraceInputs
from ..._diagnosis.retraces.closures import cells
from ..._diagnosis.retraces.trace_record import CallerArray, TraceRecord, surroundings
from ..._jax.trees import Path, Tracer, tree_flatten_with_path
from ..._jax.typed import Array
from ..._stages.stage import Skip
from ..._stages.vmap import levels_of
from ..._values.static_values import Opaque
from ..._view.field_axes import axes_in_fields, with_fields
from ..._view.layout import (
    aval_parts,
    is_nested_trace,
    name_of,
    static_text,
)
from ..._view.named_axes import is_count, named_axes
from ..._view.view import View

_flatten_with_path: Callable[..., tuple[list[tuple[Path, object]], object]] = tree_flatten_with_path


def record_of(
    body: CallPlanner,
    view: View,
    arrays: Sequence[object],
) -> TraceRecord:
    """Return the record of a program: the arrays that it takes, and those of the call where they
    are known.
    """
    layout, core = body.layout, body.core
    for stand_in in body.weak_statics.identities:
        stand_in.remember_code(cells)

    # Static values are wrapped as opaque, so that the paths below do not lead into them.
    leaves = [leaf for leaf in view.leaves if not is_count(leaf)]
    values = layout.trees(
        [leaf.abstract() for leaf in leaves], [Opaque.holding(value) for value in body.statics]
    )

    given: dict[str, CallerArray] = {}
    if len(arrays) == len(leaves):
        for leaf, array in zip(leaves, arrays, strict=True):
            given[leaf.path] = _caller_array(array)
    children: Any = layout.treedef
    names = [parameter.name for parameter in core.binder.parameters]
    return TraceRecord(
        view,
        tuple(zip(layout.static_names(), body.weak_statics.held, strict=True)),
        body.key,
        None,
        surroundings(body.options, nested=body.request.nested),
        tree=tuple(zip(names, children.children(), strict=True)),
        absent=frozenset(_absent(body, values)),
        fields=tuple(_static_fields(dict(zip(names, values, strict=True)))),
        given=given,
        axes=_axes(body, View(tuple(leaves)), values),
        padded=bool(core.options.pad),
        placed=core.options.shard is not None and not body.request.nested,
        outer=_outer(arrays),
        generation=body.generation,
        changed=body.changed,
    )


def trace_inputs_of(record: TraceRecord, arrays: Sequence[Array]) -> TraceInputs:
    """Return the record in short, for reports; `arrays` are those of the call."""
    sizes: dict[str, int] = {}
    for leaf in record.view.leaves:
        for name, size in zip(record.axes.get(leaf.path, ()), leaf.shape, strict=False):
            if name is not None and name.isidentifier():
                sizes.setdefault(name, size)

    known = bool(record.given) and not record.outer
    stages = () if record.plan is None else record.plan.stages
    decided = tuple((stage.name, not isinstance(stage, Skip), stage.why) for stage in stages)
    return TraceInputs(
        hash(record.keys),
        tuple(map(_abstract, arrays)) if known else None,
        sizes,
        dict(record.sizes),
        decided,
    )


def _abstract(array: object) -> jax.ShapeDtypeStruct:
    shape, dtype, weak = aval_parts(array)
    place = array.sharding if isinstance(array, jax.Array) and array.committed else None
    return jax.ShapeDtypeStruct(
        shape,
        dtype,
        weak_type=weak,
        sharding=place,
    )


# Names of tracer classes in jax 0.10.2 to 0.12.0.1.
_TRACERS = {
    "JVPTracer": "differentiated",
    "LinearizeTracer": "differentiated",
    "BatchTracer": "mapped",
}


def _outer(arrays: Sequence[object]) -> str:
    """Return the text of what an outer transform does with a call."""
    if not is_nested_trace(arrays):
        return ""
    tracers = {type(array).__name__ for array in arrays if isinstance(array, Tracer)}
    verbs = sorted({_TRACERS.get(name, "traced") for name in tracers})
    return f"{' and '.join(verbs)} by an outer transform"


def _caller_array(array: object) -> CallerArray:
    if isinstance(array, Tracer):
        return CallerArray(str(array.dtype))
    place = array.sharding if isinstance(array, jax.Array) and array.committed else None
    if isinstance(array, (jax.Array, np.ndarray, np.generic)):
        return CallerArray(str(array.dtype), place)
    return CallerArray(type(array).__name__, place)


def _axes(
    body: CallPlanner,
    view: View,
    values: tuple[object, ...],
) -> dict[str, tuple[str | None, ...]]:
    """Return the names of the axes of each array, including arrays in fields of modules."""
    fields = axes_in_fields(values)
    view = with_fields(view, [fields[i] for i in body.layout.dynamic])
    axes_of_leaves = named_axes(view, levels_of(view, body.request))
    found: dict[str, tuple[str | None, ...]] = {}
    for leaf, axes in zip(view.leaves, axes_of_leaves, strict=True):
        names: list[str | None] = [None] * len(leaf.shape)
        for axis in axes:
            names[axis.axis] = axis.size
        found[leaf.path] = tuple(names)
    return found


def _absent(body: CallPlanner, values: tuple[object, ...]) -> list[str]:
    """Return the paths of None."""
    paths = _flatten_with_path(values, is_leaf=_is_none)[0]
    return [name_of(body.core.binder, path)[1] for path, leaf in paths if leaf is None]


def _static_fields(value: object, path: str = "") -> list[tuple[str, object]]:
    """Return the static fields of the modules in a tree, by path."""
    if isinstance(value, eqx.Module):
        found: list[tuple[str, object]] = []
        for field in dataclasses.fields(value):
            if not hasattr(value, field.name):
                continue
            inner = getattr(value, field.name)
            here = f"{path}.{field.name}"
            if field.metadata.get("static"):
                found.append((here, inner))
            else:
                found += _static_fields(inner, here)
        return found

    def is_child(part: object) -> bool:
        return part is not value

    # One level down. A leaf flattens to itself.
    children = _flatten_with_path(value, is_leaf=is_child)[0]
    if len(children) == 1 and children[0][1] is value:
        return []
    below: list[tuple[str, object]] = []
    for keys, child in children:
        below += _static_fields(child, _extend_path(path, keys))
    return below


def _is_none(part: object) -> bool:
    return part is None


def _extend_path(path: str, keys: Path) -> str:
    key: Any = keys[0] if keys else None
    if isinstance(key, DictKey):
        return f"{path}[{key.key!r}]" if path else str(key.key)
    return f"{path}[{key.idx}]" if isinstance(key, SequenceKey) else f"{path}{key}"


def describe_mutation(
    names: Mapping[int, str],
    value: object,
    attribute: str,
    before: object,
    now: object,
) -> tuple[str, str, str]:
    """Return the path of a mutated static value, with its text before and now."""
    cls = value if isinstance(value, type) else type(value)
    path = names.get(id(value)) or cls.__name__
    if not attribute:
        return path, "as it was", "changed in place"

    path = f"{path}.{attribute}"
    old, new = static_text(before), static_text(now)
    if old == new:
        return path, "as it was", "changed in place"
    return path, old, new
