"""Calls of a function that proofs of remedies repeat: those that were traced, and those of other
sizes that shared their programs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax

from ..._body.function import FunctionInfo
from ..._view.layout import aval_parts
from ..compiled_calls import SpecializedFunction
from ..entry import Specialization
from ..runners.padding_recipes import PaddingRecipe


@dataclass(frozen=True)
class RecordedCall:
    """A call that was traced, or that ran padded in a program that another call was traced for."""

    entry: Specialization
    arrays: tuple[jax.ShapeDtypeStruct, ...]
    # Sizes of its named axes.
    sizes: Mapping[str, int]
    # True sizes of its padded axes.
    true: Mapping[str, int]
    # How it ran padded, if it did.
    padded: PaddingRecipe | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        return hash(self.entry.key), tuple(map(aval_parts, self.arrays))

    @property
    def statics(self) -> dict[str, object]:
        """Static values by path."""
        return dict(zip(self.entry.layout.static_names(), self.entry.statics, strict=True))

    @property
    def program(self) -> tuple[Hashable, ...]:
        """Key of the program that it ran."""
        return program_key(self, self.padded)

    def key_without(self, argument: str) -> Hashable:
        """Return a key of its program that is equal for all values of one static argument."""
        keys = zip(self.entry.layout.static_names(), self.entry.place[-1], strict=True)
        others = tuple((name, key) for name, key in keys if name != argument)
        return self.program[1:], others

    def size(self, axis: str) -> int | None:
        return self.true.get(axis, self.sizes.get(axis))


def recorded_calls(core: SpecializedFunction[Specialization]) -> list[RecordedCall]:
    """Return the calls that were traced on their own, and those of other sizes that shared their
    programs, each once.
    """
    entries = {hash(entry.key): entry for entry in [*core.entries.values()]}
    recipes = {
        key: {} if entry.padded is None else entry.padded.recipes()
        for key, entry in entries.items()
    }
    traced: dict[Hashable, RecordedCall] = {}
    for trace in core.log.traces:
        if trace.arrays is not None and trace.key in entries:
            entry = entries[trace.key]
            padded = recipes[trace.key].get(tuple(map(aval_parts, trace.arrays)))
            call = RecordedCall(entry, trace.arrays, trace.sizes, trace.true, padded)
            traced[call.key] = call

    # The other sizes in a bucket. Axes that are not padded have the same size in all calls of a
    # program.
    sizes = {call.program: call.sizes for call in traced.values()}
    seen = dict(traced)
    for entry in {id(call.entry): call.entry for call in traced.values()}.values():
        for avals, padded in recipes[hash(entry.key)].items():
            arrays = tuple(
                jax.ShapeDtypeStruct(shape, dtype, weak_type=weak) for shape, dtype, weak in avals
            )
            axes = () if padded is None else padded.fill.axes
            true = {axis.name: axis.size for axis in axes}
            call = RecordedCall(entry, arrays, {}, true, padded)
            seen.setdefault(call.key, replace(call, sizes=sizes.get(call.program, {})))
    return [*seen.values()]


def are_all_sizes(core: FunctionInfo, seen: Sequence[RecordedCall]) -> bool:
    """Return whether each size that a padded axis had in a call is among these calls."""
    return all(
        set(counted) <= {each.true.get(axis) for each in seen}
        for axis, counted in core.counters.sizes.items()
    )


def program_key(seen: RecordedCall, padded: PaddingRecipe | None) -> tuple[Hashable, ...]:
    """Return the key of the program of a call that is padded in this way."""
    entry, arrays = seen.key
    if padded is None:
        return entry, arrays
    return entry, padded.counts.names, padded.counts.weak, padded.key
