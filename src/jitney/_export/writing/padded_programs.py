"""Writer of the program of a bucket: it takes arrays of the size of the bucket and the true sizes
behind them, as the program of a padded call does, and serves all sizes of the bucket.

    sizes={"batch": 5}, pad={"batch": "pow2"}   ->   one program, of batch=5 to 8

A body that Python computes numbers for, from its sizes, was looked at one size after another. The
file has the numbers of each size that was looked at, and takes no other size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import export as jax_export

from ..._axes import Refused
from ..._jax.typed import Array
from ..._program.entry import Specialization
from ..._program.runners.padded_calls import PaddedCalls
from ..._program.runners.padding_recipes import PaddingRecipe, warn_refusal
from ..._program.tolerance.decide import with_policy
from ..._serialized.padded_cuts import serialise_cuts
from ..._stages.fill import PaddedAxis
from ..._view.named_axes import named_axes, shape_at, sizes_of
from ..._view.true_sizes import Proof
from ..header import ArrayEntry, PaddingEntry, ProgramEntry
from ..values import Data, data_of
from .lowering import ExportTrace, traced_program
from .parts import Part

_MOST_SIZES, _MOST_BYTES = 64, 1 << 16
"""Of a bucket whose numbers are found for all of its sizes: how many sizes it has at most, and how
many bytes these numbers take. Of others the file has the sizes that were asked for.
"""


@dataclass(frozen=True)
class PaddedTrace:
    """A traced program of a bucket.

    Args:
        entry: The calls that it serves.
        recipe: How a call of the example's sizes is padded.
        trace: The program.
    """

    entry: Specialization
    recipe: PaddingRecipe
    trace: ExportTrace

    @property
    def axes(self) -> Sequence[PaddedAxis]:
        """The axes that are filled."""
        return self.recipe.fill.axes

    def ranges(self) -> dict[str, list[int]]:
        """Each padded axis with the least and the largest size that the program serves."""
        return {axis.name: [axis.low, axis.high] for axis in self.axes}

    def arrays(self, arrays: Sequence[Array]) -> list[ArrayEntry]:
        """The arrays of a call, with symbols for the padded sizes."""
        view = self.entry.plan_call(arrays, jit=False).view
        named = named_axes(view, self.recipe.fill.levels)
        known = sizes_of(view, named)
        symbols = ", ".join(f"d{i}" for i in range(len(self.axes)))
        dims = jax_export.symbolic_shape(symbols)
        changed = dict(zip(self.ranges(), dims, strict=True))
        entries: list[ArrayEntry] = []
        for leaf, axes in zip(view.leaves, named, strict=True):
            dims_of_leaf = shape_at(leaf, axes, known, changed)
            shape = [size if isinstance(size, int) else str(size) for size in dims_of_leaf]
            entries.append(
                {
                    "path": leaf.path,
                    "shape": shape,
                    "dtype": str(leaf.dtype),
                    "weak": bool(leaf.weak_type),
                }
            )
        return entries

    def told(self) -> PaddingEntry:
        """The header entry of the padding."""
        return {
            "shapes": [list(shape) for shape in self.recipe.shapes],
            "axes": list(self.recipe.counts.names),
            "cuts": serialise_cuts(self.entry.cuts[self.recipe.key]),
            "numbers": self._numbers(),
        }

    def _numbers(self) -> list[list[Data]] | None:
        """Sizes with the numbers that Python computes from them; None if it computes none and has
        looked at none.
        """
        proof = self.entry.proofs.get(self.recipe.key)
        if proof is None:
            return None
        own = [axis.size for axis in self.axes]
        found = [[own, _as_data(proof.numbers_at(self._named(own)))]]
        # Sizes at which the body does other operations are left out: the program is not theirs.
        found += list(self._others(proof, own))
        return found

    def _others(self, proof: Proof, own: list[int]) -> Iterator[list[Data]]:
        spans = [range(axis.low, axis.high + 1) for axis in self.axes]
        count = int(np.prod([len(span) for span in spans]))
        size = sum(number.nbytes for number in proof.numbers_at(self._named(own)))
        if count > _MOST_SIZES or count * size > _MOST_BYTES:
            return
        for sizes in map(list, itertools.product(*spans)):
            if sizes == own:
                continue
            try:
                numbers = proof.numbers_at(self._named(sizes))
            except Refused:
                continue
            yield [sizes, _as_data(numbers)]

    def _named(self, sizes: Sequence[int]) -> dict[str, int]:
        return dict(zip(self.recipe.counts.names, sizes, strict=True))


def padded_trace(entry: Specialization, arrays: Sequence[Array]) -> PaddedTrace | None:
    """Trace the program of the bucket of a call; None if such calls run at exact size, with a
    warning if padding is refused.
    """
    calls = PaddedCalls(entry)
    while True:
        try:
            return _trace(entry, calls, arrays)
        except Refused as refused:
            refusal = refused
        # In a shorter bucket it may be one program.
        if not calls.narrow_ahead(arrays, refusal):
            warn_refusal(entry.core, refusal)
            return None


def _trace(
    entry: Specialization,
    calls: PaddedCalls,
    arrays: Sequence[Array],
) -> PaddedTrace | None:
    recipe = calls.demand_bucket(arrays)
    if recipe is None:
        return None
    given = (*recipe.abstract(arrays), recipe.counts.abstract())
    try:
        made: jax.stages.Traced = with_policy(entry, arrays, lambda: entry.lower(given, "trace"))
    finally:
        entry.land()
    return PaddedTrace(entry, recipe, traced_program(made))


def one_of_each(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with one for each bucket, which has the numbers of all its sizes."""
    kept: dict[str, Part] = {}
    for number, part in enumerate(parts):
        padding = part.told.get("padding")
        if padding is None:
            kept[f"{number}"] = part
            continue
        first = kept.setdefault(_key(part.told, padding), part)
        numbers = (first.told.get("padding") or padding)["numbers"]
        if first is not part and numbers is not None:
            known = [sizes for sizes, _ in numbers]
            numbers += [each for each in padding["numbers"] or () if each[0] not in known]
    return list(kept.values())


def _key(told: ProgramEntry, padding: Mapping[str, object]) -> str:
    shown = [told["sizes"], told["arrays"], told["results"], told["result"]]
    return repr([*shown, padding["shapes"], padding["axes"], padding["cuts"]])


def _as_data(numbers: Sequence[Array]) -> list[Data]:
    return [data_of(np.asarray(number)) for number in numbers]
