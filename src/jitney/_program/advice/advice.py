"""Remedies for the causes of traces, each proven on recorded calls.

A cause names the difference between two calls; whether an option would help is another question.
The option itself answers it: the same function with `pad`, say, is planned and traced for the calls
that were recorded, as its own calls would be, and the programs are counted. Nothing is compiled.
The proof costs traces, so it is made where somebody reads `stats.causes`, and once for the same
calls.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from ..._body.function import FunctionInfo
from ..._diagnosis.counters.counters import Event
from ..._diagnosis.counters.stats import Advised
from ..._diagnosis.retraces.cause import Cause
from ..._signature.options import tolerance_of
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization
from .annotations import new_annotations, traced_number
from .buckets import find_buckets
from .proofs import About, Proven
from .recorded_calls import RecordedCall, are_all_sizes, recorded_calls

# The most calls, each of other sizes, for which buckets are looked for.
_CALLS = 512


class Advice:
    """Remedies that are proven to help a function, by its recorded calls."""

    def __init__(self, core: SpecializedFunction[Specialization]):
        # A weak reference: whoever keeps statistics keeps no programs alive.
        self._core = weakref.ref(core)
        self._known: dict[Hashable, Sequence[Proven]] = {}
        self._lock = threading.RLock()

    def __call__(self, events: Sequence[Event]) -> Advised:
        """Return the causes of these events, each with a remedy if one was proven."""
        causes = tuple(event.timed_causes() for event in events)
        core = self._core()
        if core is None:
            return Advised(causes)
        options = core.options
        # A trace alone does not determine what is chosen by values, by the compiler or by devices.
        if (
            tolerance_of(options.precision) is not None
            or options.memory is not None
            or options.shard is not None
            or options.disabled
        ):
            return Advised(causes)

        # Prove remedies for the causes that have none yet.
        try:
            with self._lock:
                asked = {_about(cause) for each in causes for cause in each if not cause.remedy}
                proven = self._find_proofs(core, asked)
        except ReferenceError:
            # The function is gone, or an object that it was called with.
            return Advised(causes)

        remedies = {about: each.remedy for each in reversed(proven) for about in each.ends}

        def with_remedy(cause: Cause) -> Cause:
            return replace(cause, remedy=cause.remedy or remedies.get(_about(cause), ""))

        advised = tuple(tuple(map(with_remedy, each)) for each in causes)
        return Advised(advised, {each.remedy: each.saves for each in proven if each.saves})

    def _find_proofs(
        self,
        core: SpecializedFunction[Specialization],
        asked: set[About],
    ) -> Sequence[Proven]:
        seen = recorded_calls(core)
        key = frozenset(asked), tuple(each.key for each in seen)
        if key not in self._known:
            proven = [] if len(seen) < 2 else [*_prove_remedies(core, seen, asked)]
            self._known = {key: proven}
        return self._known[key]


def _prove_remedies(
    core: FunctionInfo,
    seen: Sequence[RecordedCall],
    asked: set[About],
) -> Iterator[Proven]:
    # For a padded function buckets are proposed only if all of its sizes are among these calls; for
    # another, powers of two are proven for the latest traces.
    all_sizes = len(seen) <= _CALLS and are_all_sizes(core, seen)
    differ = {axis for kind, axis in asked if kind == "axis" and all_sizes}

    # Named axes of several sizes: buckets.
    axes = [
        axis for axis in seen[0].sizes if axis in differ and core.author_context().can_pad(axis)
    ]
    if axes:
        proven = find_buckets(core, seen, axes, {})
        if proven is not None:
            yield proven

    # Sizes without a name: annotations that name them, and buckets.
    if all_sizes and any(kind == "shape" for kind, _ in asked):
        hints, new = new_annotations(core, seen)
        proven = find_buckets(core, seen, new, hints) if new else None
        if proven is not None:
            yield proven

    # Static numbers: arrays in their place.
    for kind, argument in sorted(asked, key=str):
        if kind == "static value" and argument is not None:
            proven = traced_number(core, seen, argument)
            if proven is not None:
                yield proven


def _about(cause: Cause) -> About:
    if cause.kind == "shape" and cause.axis is not None:
        return "axis", cause.axis
    return cause.kind, cause.argument
