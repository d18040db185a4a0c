"""Recipes of padded calls: bucket, filled shapes of the arrays and true sizes of a call.

With `pad={"n": "pow2"}`, a call of `x: f32[5]` has the recipe: `x` is filled to f32[8], and the
true size 5 travels behind it. A call that is not padded has none, and a refusal says why. What is
done with a recipe is in `padded_calls.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import jax
import numpy as np

from ..._axes import Refused
from ..._body.call_key import padded_key
from ..._body.function import FunctionInfo
from ..._errors import PaddingWarning, format_error
from ..._jax.mesh import current, is_within_trace
from ..._jax.typed import Array
from ..._owners import users_level
from ..._processes.compare_processes import refuse_padding
from ..._signature.options import tolerance_of
from ..._stages import Fill
from ..._stages.stage import Request, Skip
from ..._view.layout import aval_parts
from ..._view.result_padding import Cut
from ..._view.true_sizes import KnownSizes, Proof, TrueSizes
from ..._view.view import Leaf, View
from ..compiled_calls import CompiledCalls
from .filling import FILLING

_CutShapes = tuple[list[Cut], list[tuple[int, ...] | None]]
"""The cuts of a trace, and the true shape of each result."""


@dataclass(frozen=True)
class _Filled:
    """Arrays of a call, filled.

    Args:
        fill: The axes that are filled.
        shapes: Of each array its filled shape.
        fills: Whether it is filled.
        weak: Whether it is filled and was weakly typed before.
        parts: Shape, dtype and weak type of each array, filled.
    """

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    fills: tuple[bool, ...]
    weak: tuple[bool, ...]
    parts: tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class PaddingRecipe:
    """Recipe for padding the calls of one set of shapes."""

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    counts: TrueSizes
    # Key of the program that runs them.
    key: tuple[object, ...]
    # True sizes, for a trace.
    known: KnownSizes
    # The arrays that are filled.
    filled: tuple[int, ...]
    # Which arrays may hold anything in their padding.
    takes: tuple[bool, ...]
    # True if arrays stay on their device, since nothing else shards them.
    stays: bool
    # Why an earlier program of the bucket is not the body at this size.
    differs: Refused | None = None
    # Cache of `_cut`: one entry, or none.
    cut: list[_CutShapes] = field(default_factory=list[_CutShapes])

    def arrays(
        self,
        arrays: Sequence[object],
        *,
        whole: bool,
    ) -> list[object]:
        """Return the arrays for the program, filled.

        If no outer transform traces the call (`whole`), an array that another padded program
        returned is taken with its padding.
        """
        given = list(arrays)
        for i in self.filled:
            given[i] = FILLING.fill(
                given[i],
                self.shapes[i],
                stays=self.stays,
                takes=whole and self.takes[i],
            )
        return given

    def abstract(self, arrays: Sequence[object]) -> list[jax.ShapeDtypeStruct]:
        out: list[jax.ShapeDtypeStruct] = []
        for array, shape in zip(arrays, self.shapes, strict=True):
            old, dtype, weak = aval_parts(array)
            stays_weak = weak and old == shape
            out.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=stays_weak))
        return out


@dataclass(frozen=True)
class RefusedSize:
    """A size at which a body does other operations than its padded program does.

    Args:
        fill: The axes that would be filled.
        refusal: Why they are not.
    """

    fill: Fill
    refusal: Refused


class Buckets:
    """Finds out how the calls of an entry are padded."""

    # The number of programs that a bucket may have.
    most = 1

    def __init__(self, entry: CompiledCalls):
        self.entry = entry
        # Programs that no trace has made.
        self.missing: set[Hashable] = set()
        # Axes of buckets that are not padded -> why.
        self.refused: dict[Hashable, Refused] = {}

    def demand_bucket(self, arrays: Sequence[object]) -> PaddingRecipe | None:
        """Return how calls of these shapes are padded; None if they run at exact size.

        Raises:
            ContractError: The call does not fit the contract.
            Refused: At this size the body does other operations than its padded program does.
        """
        found = self.bucket(arrays)
        if isinstance(found, RefusedSize):
            raise found.refusal
        return found

    def bucket(self, arrays: Sequence[object]) -> PaddingRecipe | RefusedSize | None:
        """Return how calls of these shapes are padded; None if they run at exact size.

        Raises:
            ContractError: The call does not fit the contract.
        """
        entry = self.entry
        if entry.sharded is not None:
            refuse_padding(entry.core.where, current(entry.core.options.mesh))

        # The bucket, or the part of it in which the body is one program.
        view = entry.plan_call(arrays, jit=False).view
        request = entry.on_mesh()
        while True:
            found = self._filled(view, request)
            if found is None:
                return None
            fill, key = found.fill, padded_key(found.parts)
            narrower = entry.narrower.get((key, *fill.sizes))
            if narrower is None:
                break
            request = replace(request, tops=tuple({**dict(request.tops), **narrower.tops}.items()))
            if any(axis.size > narrower.tops.get(axis.name, axis.size) for axis in fill.axes):
                self.refuse(narrower.above)

        # The first program of the bucket that is the body at this size, or is not traced yet, with
        # the numbers that Python computes from the sizes, if it takes any.
        sizes = {axis.name: axis.size for axis in fill.axes}
        numbers: Sequence[Array] = ()
        proof: Proof | None = None
        differs: Refused | None = None
        for turn in range(self.most):
            key = padded_key(found.parts, turn)
            if key in self.missing:
                continue
            proof = entry.proofs.get(key)
            try:
                numbers = () if proof is None else proof.numbers_at(sizes)
                break
            except Refused as refusal:
                # Without the ends of its range: no shorter bucket has a program for this size.
                differs = differs or Refused(refusal.place, refusal.what)
        else:
            return None if differs is None else RefusedSize(fill, differs)

        values: list[object] = [np.asarray(size, np.int32) for size in sizes.values()]
        # JAX takes a number that is on the device sooner; a trace would trace the transfer.
        if entry.sharded is None and not is_within_trace():
            values = list(map(jax.device_put, values))
        counts = TrueSizes(
            values,
            tuple(sizes),
            found.weak,
            numbers,
            sizes,
            turn,
        )
        return PaddingRecipe(
            fill,
            found.shapes,
            counts,
            key,
            KnownSizes(sizes, derivatives={} if proof is None else proof.derivatives),
            tuple(i for i, is_filled in enumerate(found.fills) if is_filled),
            self._takes(fill, len(found.shapes)),
            entry.sharded is None,
            differs,
        )

    def refuse(self, refusal: Refused) -> None:
        """Say why an axis is not padded."""
        warn_refusal(self.entry.core, refusal)

    def _filled(self, view: View, request: Request) -> _Filled | None:
        """Return which axes are filled, and the shapes of the filled arrays; None if the call runs
        at exact size.
        """
        fill = Fill.plan(view, request)
        if isinstance(fill, Skip) or fill.axes in self.refused:
            return None
        try:
            shapes = self._shapes(fill, view)
        except Refused as refusal:
            self.refuse(refusal)
            return None

        fills = tuple(leaf.shape != shape for leaf, shape in zip(view.leaves, shapes, strict=True))

        # Filled arrays come back strongly typed; the program still computes as for weak ones.
        leaves = list(zip(view.leaves, shapes, fills, strict=True))
        weak = tuple(leaf.weak_type and fills_it for leaf, _, fills_it in leaves)
        parts = tuple((shape, leaf.dtype, leaf.weak_type) for leaf, shape, _ in leaves)
        return _Filled(
            fill,
            shapes,
            fills,
            weak,
            parts,
        )

    def _takes(self, fill: Fill, count: int) -> tuple[bool, ...]:
        """Return which arrays may hold anything in their padding.

        An array may if Mask evaluates the program along every padded axis. Along a mapped axis the
        body itself runs on the padding, where a loop may never end and a check may raise; chunks
        and policies chosen by values look at the padding in ways of their own. A donated array is
        gone.
        """
        entry, options = self.entry, self.entry.core.options
        maps = any(name in fill.sizes for name, _ in fill.levels)
        looks = (
            maps
            or options.chunk
            or tolerance_of(options.precision) is not None
            or entry.sharded is not None
        )
        return tuple(not looks and i not in entry.request.donated for i in range(count))

    def _shapes(self, fill: Fill, view: View) -> tuple[tuple[int, ...], ...]:
        """Return the filled shape of each array.

        Raises:
            Refused: A size cannot be computed for another size of the axis.
        """
        shapes = tuple(map(tuple, fill.shapes(view)))
        entry = self.entry
        abstract = [leaf.abstract() for leaf in view.leaves]
        unfilled = entry.layout.view(entry.core.contract, abstract, entry.statics)

        # Read annotations such as `{model.width}*n` once more, with the filled shapes in place of
        # the true ones.
        leaves: list[Leaf] = []
        for leaf, raw, shape in zip(view.leaves, unfilled.leaves, shapes, strict=True):
            leaves.append(replace(leaf, shape=shape, hint=raw.hint or leaf.hint))
        filled = entry.fill_in_sizes(View(tuple(leaves)))

        # The annotations of fields are read off the instances, so a layout reads them.
        resized = [leaf.abstract() for leaf in filled.leaves]
        again = entry.layout.view(entry.core.contract, resized, entry.statics)
        for here, padded, there in zip(view.leaves, filled.leaves, again.leaves, strict=True):
            if any(size < was for size, was in zip(padded.shape, here.shape, strict=True)):
                raise Refused(
                    "",
                    f"has {here.path!r}, whose shape would fall from {here.shape} to"
                    f" {padded.shape}",
                )
            hint = here.declared
            if here.hint != padded.hint or here.field != there.field:
                raise Refused(
                    "",
                    f"has {here.path!r}, whose size {hint and hint.text} is read off an"
                    " array that would be padded",
                )
        return shapes


def warn_refusal(
    core: FunctionInfo,
    refusal: Refused,
    *,
    alone: bool = False,
) -> None:
    """Warn once that calls run at exact size, or those of one size alone, with the reason."""
    if core.counters.warn_once(f"pad {refusal.place}"):
        text = explain(core, refusal, alone=alone)
        warnings.warn(text, PaddingWarning, stacklevel=users_level())


def explain(
    core: FunctionInfo,
    refusal: Refused,
    *,
    alone: bool = False,
) -> str:
    """Return the reason why an axis is not padded, or is not at one size, as a message."""
    which = "a size like this" if alone else "each size"
    axes = " and ".join(repr(name) for name, _ in core.options.pad)
    return format_error(
        core.where,
        f"{axes} cannot be padded here: {refusal.place or 'it'} {refusal.what}.",
        "An axis is padded only if each operation along it is proven to give what it gives at exact"
        " size.",
        f"change that line, or drop the axis from `pad`; {which} runs exact until then, and"
        " compiles its own program.",
    )
