"""Facts about a function along each named axis, for `jitney.analysis.axes` and the lines of a
plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .. import _axes
from .._axes import Refused
from .._jax.programs.primitives import public_name
from .._jax.typed import AnyJaxpr, Array
from .._public import public_in
from .._signature.buckets import Bucket
from .._stages import Mask, Vmap
from .._stages.plan import Plan
from .._view.named_axes import clash_of, in_names, named_axes, sizes_of

if TYPE_CHECKING:
    from .._program.entry import Specialization


@public_in("jitney.types")
@dataclass(frozen=True)
class AxisFacts:
    """Proven behaviour of a body along one named axis.

    Args:
        name: The axis.
        kind: "pointwise" if each element is treated alone; "mapped" if `vmap` added the axis; else
            the kinds of its uses, such as "reduced" or "scanned and sorted"; "unknown" if the body
            cannot be traced without knowing the size, or the instances of a class differ in it.
        uses: Each operation that uses several elements of the axis, with its line.
        refused: Reason why the axis cannot be padded; None if it can.
        levels: Number of reductions along it that wait for one another, as the sum of a softmax
            waits for its maximum; None if the axis cannot be cut into chunks.
    """

    name: str
    kind: str
    uses: tuple[_axes.Use, ...] = ()
    refused: str | None = None
    levels: int | None = None

    @property
    def text(self) -> str:
        """Summary in one line: the kind, then the uses with their operations and lines."""
        seen: dict[tuple[str, str], list[_axes.Use]] = {}
        for use in self.uses:
            seen.setdefault((use.kind, use.how), []).append(use)
        parts = [
            f"{how} ({_listing([use.place or '`' + public_name(use.op) + '`' for use in uses])})"
            for (_, how), uses in seen.items()
        ]
        kind = (
            f"{self.kind} in {self.levels} levels"
            if self.levels is not None and self.levels > 1
            else self.kind
        )
        listed = f"{kind}: {'; '.join(parts)}" if parts else kind
        return f"{listed}; not padded: {self.refused}" if self.refused else listed

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"

    def __repr__(self) -> str:
        return f"<axis {self}>"


def _listing(places: Sequence[str]) -> str:
    unique = list(dict.fromkeys(places))
    return ", ".join(unique[:3]) + (f" and {len(unique) - 3} more" if len(unique) > 3 else "")


class Axes(dict[str, AxisFacts]):
    """Axis name -> facts; printed, a line for each axis, folded to the width of the terminal. In a
    notebook it is a table.
    """

    def __str__(self) -> str:
        # Imported here, since rich is slow to import and most facts are never printed.
        from .._text.console import wrap_line

        return "\n".join(wrap_line(str(facts)) for facts in self.values())

    def _repr_html_(self) -> str:
        from .._text.console import html_of, table

        rows = [
            [(name, ""), (facts.text, "yellow" if facts.refused else "")]
            for name, facts in self.items()
        ]
        return html_of(table("axes", rows))


# Largest size that is tried, from 2 on, where the form of an expression alone proves nothing.
_LARGEST = 4096
# The most ends of a range of sizes that are tried one after the other.
_TRIED = 3


def facts_of(
    entry: Specialization,
    arrays: Sequence[Array],
    buckets: Mapping[str, Bucket] | None = None,
) -> dict[str, AxisFacts]:
    """Return the facts of each named axis of a call, the other axes at their sizes.

    With `buckets`, only for the axes that have one, and for the sizes that share a bucket with the
    size of the call.
    """
    view = entry.plan_call(arrays, jit=False).view

    # Facts are those of the body, so the stages around it are left out of the plan.
    plan = Plan.make(
        view,
        replace(
            entry.request,
            exact="at exact size",
            whole="facts are of the body",
            single="facts are of the body",
        ),
    )
    vmap = plan.of(Vmap)
    inside = plan.seen_inside(Vmap, view)
    named = named_axes(inside)
    sizes = sizes_of(inside, named)
    axes = {name: AxisFacts(name, "mapped") for name in (() if vmap is None else vmap.axes)}
    # Each axis becomes symbolic in turn. Sizes 0 and 1 have no facts, since they run unpadded.
    for name, size in sizes.items():
        if size > 1:
            bucket = buckets.get(name) if buckets is not None else None
            # Facts hold for the sizes of the bucket, or without one up to the size of the call at
            # least.
            bounds = (bucket.range(size) if bucket is not None else None) or (
                2,
                max(size, _LARGEST),
            )
            clash = clash_of(name, inside, named)
            if clash is not None:
                axes[name] = AxisFacts(name, "unknown", refused=clash.what.removesuffix("."))
            elif buckets is None or bucket is not None:
                axes[name] = _facts(
                    entry,
                    Mask.over(inside, {name: bounds}),
                    plan,
                    name,
                    size,
                )
    return {name: facts for name, facts in axes.items() if buckets is None or name in buckets}


def _facts(
    entry: Specialization,
    mask: Mask,
    plan: Plan,
    name: str,
    size: int,
) -> AxisFacts:
    fn = entry.body_inside(plan, Mask)
    try:
        program = _axes.trace(
            fn,
            mask.avals,
            mask.ranges,
            dict.fromkeys(mask.ranges, size),
        )
    except Refused as refusal:
        # Facts of fewer sizes, such as those up to the length of a buffer that the body takes a
        # part of.
        (symbol,) = mask.symbols
        ends = sorted(set(refusal.ends.get(symbol.symbol, ())), reverse=True)
        for end in ends[:_TRIED]:
            bounds = (symbol.low, end) if size <= end else (end + 1, symbol.high)
            facts = _facts(
                entry,
                Mask.over(mask.view, {name: bounds}),
                plan,
                name,
                size,
            )
            if facts.kind != "unknown":
                return facts
        at = f"{refusal.place} " if refusal.place else ""
        return AxisFacts(name, "unknown", (), at + in_names(refusal.what, [name]))
    uses = tuple(
        replace(use, how=in_names(use.how, [name]))
        for use in _axes.uses_of(program.jaxpr, mask.ranges, overlapping=frozenset())
    )
    kinds = list(dict.fromkeys(use.kind for use in uses))
    refused = next(
        (f"{use.place} {in_names(use.refused, [name])}".strip() for use in uses if use.refused),
        None,
    )
    return AxisFacts(
        name, " and ".join(kinds) or "pointwise", uses, refused, _levels(program.jaxpr, mask)
    )


def _levels(jaxpr: AnyJaxpr, mask: Mask) -> int | None:
    (symbol,) = mask.ranges
    try:
        return _axes.plan_passes(jaxpr, symbol, mask.ranges).levels
    except Refused:
        return None
