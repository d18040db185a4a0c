"""Lowering of a program for one set of sizes, or for all sizes of a range: trace it, convert its
run-time checks to data, and lower it with `jax.export`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import jax
from jax import export as jax_export

from ... import _axes
from ..._axes import Refused
from ..._body.body import CallPlanner
from ..._checks import CheckTable, Unflaggable, evaluate_flagged
from ..._diagnosis.checker_errors import wrappers
from ..._errors import ExportError, Where, shortlist
from ..._jax.equinox_checks import (
    Insides,
    has_equinox_checks,
    is_callback,
    messages_of,
)
from ..._jax.programs.evaluation import evaluate_jaxpr
from ..._jax.programs.jaxprs import open_jaxpr, source_of
from ..._jax.stand_ins import unflatten_stand_ins
from ..._jax.trees import tree_flatten
from ..._jax.typed import AnyJaxpr, Array, ClosedJaxpr
from ..._owners import short
from ..._program.entry import Specialization
from ..._program.tolerance.decide import with_policy
from ..._view.named_axes import in_names
from ..._view.result import Mixed
from ..trees import Slot, StaticLeaf

Resized = Callable[[Mapping[str, object]], Sequence[jax.ShapeDtypeStruct]]
"""Function from sizes of axes, possibly symbolic, to the abstract values of the arrays of a call.
"""
_RULE = "A file holds what XLA compiles, and no code of Python's."
_MOST_TRACES = 256
"""Sizes of a range that are traced each, where Python looks at the size."""


@dataclass(frozen=True)
class ExportTrace:
    """A traced program of flat arrays.

    Args:
        closed: The closed jaxpr.
        result: The result as a tree of slots and held values.
    """

    closed: ClosedJaxpr
    result: object


def trace_program(entry: Specialization, arrays: Sequence[Array]) -> ExportTrace:
    """Trace the program for these shapes."""
    try:
        made = with_policy(entry, arrays, lambda: entry.lower(arrays, "trace"))
    finally:
        entry.land()
    return traced_program(made)


def traced_program(made: jax.stages.Traced) -> ExportTrace:
    """Return what JAX has traced, as a program of flat arrays."""
    return ExportTrace(
        made.jaxpr, _result(jax.tree.structure(made.out_info), len(made.jaxpr.out_avals))
    )


def trace_for(
    entry: Specialization,
    resized: Resized,
    ranges: Mapping[str, range],
) -> ExportTrace:
    """Trace the program for all sizes in these ranges, and prove that it is the same for each.

    Raises:
        ExportError: It depends on the size.
    """
    body: CallPlanner = entry
    names = list(ranges)
    forms: list[tuple[object, int]] = []

    def flat(*given: object) -> Sequence[object]:
        # Each trace records the structure of its result, which must not depend on the size either.
        leaves, treedef = tree_flatten(body.run_inner_stages(*given))
        forms.append((treedef, len(leaves)))
        return leaves

    def avals(sizes: Mapping[str, object]) -> Sequence[jax.ShapeDtypeStruct]:
        return resized({name: sizes[f"d{i}"] for i, name in enumerate(names)})

    try:
        program = _axes.trace(
            flat,
            avals,
            {f"d{i}": (ranges[name][0], ranges[name][-1]) for i, name in enumerate(names)},
        )
    except Refused as refusal:
        raise _needs_sizes(body, names, f"{refusal.place or 'it'} {refusal.what}") from refusal

    # It must also be the same program for each size. No call of the file traces the function, and
    # Python may branch at any size: so each size is traced here, if they are few.
    if program.each is not None:
        why = program.each
        if program.numbers:
            raise _needs_sizes(body, names, why)
        sizes = math.prod(map(len, ranges.values()))
        if sizes > _MOST_TRACES:
            many = f"each size has to be traced, at most {_MOST_TRACES} of them, and there are"
            raise _needs_sizes(body, names, f"{why}; {many} {sizes}")
        for at in product(*ranges.values()):
            known = {f"d{i}": size for i, size in enumerate(at)}
            try:
                program.check_at(flat, avals, known)
            except Refused as refusal:
                what = f"{refusal.place or 'it'} {refusal.what}; {why}"
                raise _needs_sizes(body, names, what) from refusal
    results = [_result(*form) for form in forms]
    if any(repr(_plain(result)) != repr(_plain(results[0])) for result in results):
        raise _needs_sizes(
            body, names, "it returns something besides arrays that depends on the size"
        )
    return ExportTrace(program.jaxpr, results[0])


def _needs_sizes(
    body: CallPlanner,
    names: Sequence[str],
    why: str,
) -> ExportError:
    # A line of a wrapper around the function, of a type checker for instance, is not the author's.
    files = {short(code.co_filename) for code in wrappers(body.core.fn())}
    change = "change that line"
    if any(f"{file}:" in why for file in files):
        change = "put the decorator of that wrapper above @optimize"
    return ExportError(
        body.core.where,
        f"{' and '.join(map(repr, names))} cannot stand for all sizes of a range:"
        f" {in_names(why, names)}.",
        "One program is exported for all sizes only if it is the same for each of them.",
        f"list the sizes instead, each of which is a program: sizes={{{names[0]!r}: (64, 128)}}; or"
        f" {change}.",
        code="J292",
    )


def _result(treedef: object, count: int) -> object:
    """Return the result tree, with slots for its arrays and held values for its static leaves."""
    slots = [Slot(number) for number in range(count)]
    whole = unflatten_stand_ins(treedef, slots)
    if type(whole) is not Mixed:
        return whole

    # A `Mixed` result has its static leaves apart; insert them at their positions among the arrays.
    leaves = list(whole.arrays)
    for i, leaf in whole.outcome.rest:
        leaves.insert(i, StaticLeaf(leaf))
    return unflatten_stand_ins(whole.outcome.treedef, leaves)


def _plain(result: object) -> object:
    """Comparable form of a result: its structure, the numbers of its arrays, and its static
    leaves.
    """
    leaves, treedef = tree_flatten(result)
    return treedef, [
        ("array", leaf.number) if isinstance(leaf, Slot) else ("static", leaf.value)
        for leaf in leaves
    ]


@dataclass(frozen=True)
class ExportLowered:
    """A lowered program and the messages of its checks.

    Args:
        exported: JAX's exported program.
        checks: Messages of each run-time check.
    """

    exported: jax_export.Exported
    checks: tuple[tuple[str, ...], ...]


def lower_program(
    program: ExportTrace,
    where: Where,
    platforms: Sequence[str] | None,
) -> ExportLowered:
    """Lower a program for platforms. If it has run-time checks, the number of the failed check
    becomes an additional last result.

    Raises:
        ExportError: It calls Python, or has operations that only this version of XLA knows.
    """
    closed, table = program.closed, CheckTable()
    has_checks = has_equinox_checks(closed)

    def flat(*arrays: object) -> Sequence[object]:
        if not has_checks:
            return evaluate_jaxpr(open_jaxpr(closed)[0], open_jaxpr(closed)[1], arrays)
        out, flag = evaluate_flagged(closed, arrays, table)
        # Checks of dead values are dropped, so there may be none left.
        return [*out, flag] if len(table) else out

    flat.__name__ = flat.__qualname__ = where.name
    specs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
        for aval in closed.in_avals
    ]

    # Trace before the export: this fills the table of checks, and shows the callbacks that remain.
    jitted = jax.jit(flat)
    try:
        made = jitted.trace(*specs)
    except Unflaggable as kept:
        raise ExportError(
            where,
            f"its run-time checks cannot be exported: {kept}.",
            _RULE,
            "drop the check, or export what stands around it.",
        ) from kept

    # After the checks are data, any callback that is left is the user's.
    _refuse_callbacks(made.jaxpr, where)
    try:
        exported = jax_export.export(jitted, platforms=platforms)(*specs)
    except (ValueError, NotImplementedError) as error:
        raise ExportError(
            where,
            f"JAX cannot export it: {str(error).strip().splitlines()[0]}",
            "A file is to be read by later versions of XLA, "
            "so it holds only what they promise to know.",
            "replace that operation, or compile where the code is.",
        ) from error
    return ExportLowered(
        exported, tuple(_messages(callback, where) for callback in table.callbacks)
    )


def _messages(callback: object, where: Where) -> tuple[str, ...]:
    messages = messages_of(callback)
    if messages is None:
        raise ExportError(
            where,
            "it has a run-time check of a form that jitney does not know.",
            _RULE,
            "drop the check, or report it to jitney.",
        )
    return messages


def _refuse_callbacks(program: AnyJaxpr, where: Where) -> None:
    calls = [eqn for eqn in Insides().equations(program) if is_callback(eqn)]
    if not calls:
        return
    lines = dict.fromkeys(f"`{eqn.primitive.name}`{_at(source_of(eqn))}" for eqn in calls)
    raise ExportError(
        where,
        f"it calls Python: {shortlist(list(lines))}.",
        _RULE,
        "leave out what calls Python (`jax.debug.print`, `io_callback`, `pure_callback`), or call"
        " it around the loaded program.",
    )


def _at(line: str | None) -> str:
    return f" at {line}" if line else ""
