"""Static numbers that can be arrays: the annotation that traces one, proven by a trace."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from ..._body.function import FunctionInfo
from ..._errors import plural
from ..._jax.trees import canonicalize_dtype, tree_flatten
from ..._signature.array_hints import array_of_kind
from ..._values.attribute_reads import Statics
from ..._values.static_values import Opaque
from ..._view.layout import Layout, aval_parts
from ..._view.result import unmix
from ..entry import Specialization
from .proofs import Proven, twin_of
from .recorded_calls import RecordedCall


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
