"""Padded calls: find the bucket of a call, fill its arrays, run the padded program, cut the
results.

With `pad={"n": "pow2"}`, a call of `x: f32[5]` fills `x` to f32[8], runs the program of the bucket
with the true size 5 as an int32 argument, and cuts each result with the axis `n` from 8 to 5.

Where arrays are filled and cut, on the host or on their device, is decided in `filling.py`. On the
host a call waits for its results if one of them has a padded axis.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import numpy as np

from ..._axes import Refused
from ..._body.call_key import padded_key
from ..._body.function import FunctionInfo
from ..._errors import PaddingWarning, format_error
from ..._jax.mesh import current, is_within_trace
from ..._jax.settings import x64_is_on
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array, DType
from ..._owners import users_level
from ..._processes.compare_processes import refuse_padding
from ..._signature.options import tolerance_of
from ..._stages import Fill
from ..._stages.stage import Request, Skip
from ..._view.layout import MAX_ENTRIES, aval_parts, is_nested_trace, jit_is_off
from ..._view.named_axes import named_axes, with_shape_hint
from ..._view.result_padding import Cut, unpadded_shape
from ..._view.true_sizes import (
    KnownSizes,
    NeedsNumbers,
    TrueSizes,
    knowing,
    reset_known,
    set_known,
)
from ..._view.view import Leaf, View
from ..compiled_calls import CompiledCalls, Narrower
from ..outer_transforms import is_padded
from .filling import DEVICE_ARRAYS, FILLING
from .in_32_bits import as_typed
from .warm_padded import WarmCall, fill_plans, warm_key
from .wrappers import Run, runner

_UNKNOWN: Any = object()
_CutShapes = tuple[list[Cut], list[tuple[int, ...] | None]]
"""The cuts of a trace, and the true shape of each result."""
_Avals = tuple[tuple[tuple[int, ...], DType, bool], ...]
"""Shape, dtype and weak type of each array."""


@dataclass(frozen=True)
class _Filled:
    """Arrays of a call, filled.

    Args:
        fill: The axes that are filled.
        shapes: Of each array its filled shape.
        fills: Whether it is filled.
        weak: Whether it is filled and was weakly typed before.
        key: Key of the program.
    """

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    fills: tuple[bool, ...]
    weak: tuple[bool, ...]
    key: Hashable


@dataclass(frozen=True)
class PaddingRecipe:
    """Recipe for padding the calls of one set of shapes."""

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    counts: TrueSizes
    # Key of the program that runs them.
    key: Hashable
    # True sizes, for a trace.
    known: KnownSizes
    # The arrays that are filled.
    filled: tuple[int, ...]
    # Which arrays may hold anything in their padding.
    takes: tuple[bool, ...]
    # True if arrays stay on their device, since nothing else shards them.
    stays: bool
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


class SizeRefused(Refused):
    """A body does other operations at a size than its padded program does."""

    def __init__(self, fill: Fill, refusal: Refused):
        super().__init__(refusal.place, refusal.what)
        self.fill = fill


class PaddedCalls:
    """Runs the calls of an entry whose function pads."""

    def __init__(self, entry: CompiledCalls):
        self.entry = entry
        self.known: dict[Hashable, PaddingRecipe | None] = {}
        self.refused: dict[Hashable, Refused] = {}
        self._is_wide = entry.core.options.precision == "f64"
        # Key of a program -> its runner.
        self._runs: dict[Hashable, Run] = {}
        # Calls that have run before, by `warm_key`; none where more decides than their arrays.
        self._warm: dict[Hashable, WarmCall[PaddingRecipe]] = {}
        self._may_be_warm = not self._is_wide and entry.core.options.shard is None

    def __call__(self, *arrays: Array) -> object:
        warm = self._warm.get(warm_key(arrays)) if self._warm else None
        return self._decide(arrays) if warm is None else self._run_warm(warm, arrays)

    def _run_warm(self, warm: WarmCall[PaddingRecipe], arrays: Sequence[Array]) -> object:
        """Run a call like one that has run before."""
        given = [*arrays]
        FILLING.fill_all(given, warm.plans)

        recipe = warm.recipe
        token = set_known(recipe.known)
        try:
            out = warm.run(*given, recipe.counts)
        except (Refused, NeedsNumbers):
            # JAX has dropped its trace, and another one comes out otherwise.
            out = _UNKNOWN
        finally:
            reset_known(token)
        if out is _UNKNOWN:
            self._warm = {}
            return self._decide(arrays)

        self.entry.core.counters.count_padded_call(recipe.fill.axes)
        return self._cut(recipe, out, keeps=True)

    def _decide(self, arrays: Sequence[Array]) -> object:
        """Run a call of which nothing is known yet."""
        if self.entry.sharded is not None and is_within_trace():
            return self.entry.nested_entry.run(*arrays)

        # Inside a trace a call is padded only under the transforms that `is_padded` allows.
        nested = is_nested_trace(arrays) or (
            self.entry.request.nested and self.entry.core.options.shard is not None
        )
        if jit_is_off() or (nested and not is_padded(self.entry, arrays)):
            return runner(self.entry, arrays, self.entry.jitted)(*arrays)
        if not self._is_wide:
            return self._run(arrays, whole=not nested)
        if nested and not x64_is_on():
            arrays = as_typed(arrays)
        # The dtypes under this setting are part of the keys.
        with self.entry.numbers():
            return self._run(arrays, whole=not nested)

    def _run(self, arrays: Sequence[Array], *, whole: bool) -> object:
        """Run one call; `whole` if no outer transform traces it."""
        key = (*self.entry.mesh_key(), *[aval_parts(array) for array in arrays])

        # The recipe, which the first call of these shapes works out. None: at exact size.
        padded = self.known.get(key, _UNKNOWN)
        if padded is _UNKNOWN:
            padded = self._first(key, arrays)
        if isinstance(padded, SizeRefused):
            return self._refuse(padded.fill, padded, arrays, whole=whole)
        if padded is None:
            return self._program(key, arrays)(*arrays)

        # Fill, and run the program of the bucket.
        given = (*padded.arrays(arrays, whole=whole), padded.counts)
        program = (*self.entry.mesh_key(), padded.counts.key, padded.key)
        # Handled after `except`, so that errors raised next do not carry this one as their context.
        stopped: Refused | NeedsNumbers | None = None
        out: object = None
        try:
            with knowing(padded.known):
                if self.entry.sharded is not None and program not in self._runs:
                    given = self.entry.sharded.shard_donations(given)
                out = self._program(program, given)(*given)
        except (Refused, NeedsNumbers) as reason:
            stopped = reason

        if isinstance(stopped, Refused):
            if not self.narrow(padded, stopped):
                return self._refuse(padded.fill, stopped, arrays, whole=whole)
            return self._repeat(padded, arrays, whole=whole)

        # The trace has found that Python computes numbers from the sizes. With the proof the recipe
        # gets them, as arguments, and the call is repeated.
        if stopped is not None:
            self.entry.proofs[padded.key] = stopped.proof
            return self._repeat(padded, arrays, whole=whole)

        self.entry.core.counters.count_padded_call(padded.fill.axes)
        if whole and self._may_be_warm:
            self._note_warm(padded, arrays, self._program(program, given))
        return self._cut(padded, out, keeps=whole)

    def _note_warm(self, padded: PaddingRecipe, arrays: Sequence[Array], run: Run) -> None:
        """Note how calls like this one run, once one has."""
        key = warm_key(arrays)
        if key is None:
            return
        plans = fill_plans(arrays, padded.filled, padded.shapes, padded.takes)
        if len(self._warm) >= MAX_ENTRIES:
            self._warm = {}
        self._warm[key] = WarmCall(run, padded, plans)

    def narrow(self, padded: PaddingRecipe, refusal: Refused) -> bool:
        """Note that the bucket of a program has to end before its size, if the refusal is of sizes
        above that alone; return whether it is.
        """
        tops = padded.fill.narrower(refusal, self.entry.on_mesh())
        if tops:
            self.entry.narrower[padded.key] = Narrower(refusal, tops)
        return bool(tops)

    def _repeat(
        self,
        padded: PaddingRecipe,
        arrays: Sequence[Array],
        *,
        whole: bool,
    ) -> object:
        """Run a call once more, of whose program more is known now."""
        self._warm = {}
        self.known = {
            shapes: recipe
            for shapes, recipe in [*self.known.items()]
            if recipe is None or recipe.key != padded.key
        }
        return self._run(arrays, whole=whole)

    def _first(
        self,
        key: Hashable,
        arrays: Sequence[object],
    ) -> PaddingRecipe | SizeRefused | None:
        """Work out and store how calls of these shapes are padded."""
        if len(self.known) >= MAX_ENTRIES:
            self.known = {}
        try:
            padded = self.known[key] = self.bucket(arrays)
        except SizeRefused as refused:
            return refused
        return padded

    def recipes(self) -> dict[_Avals, PaddingRecipe | None]:
        """Return how calls were padded, by their shapes; None for those at exact size.

        It is for functions that are not on a mesh, where shapes alone are the keys.
        """
        return {cast("_Avals", key): recipe for key, recipe in [*self.known.items()]}

    def pads(self, arrays: Sequence[Array]) -> bool:
        """Return whether calls of these shapes are padded; there has been one."""
        return self._lookup_recipe(arrays) is not None

    def program_arguments(self, arrays: Sequence[Array]) -> Sequence[object]:
        """Return the arguments of the program of such calls: arrays of the bucket and true sizes,
        if a call was padded.
        """
        padded = self._lookup_recipe(arrays)
        return arrays if padded is None else (*padded.abstract(arrays), padded.counts.abstract())

    def _lookup_recipe(self, arrays: Sequence[Array]) -> PaddingRecipe | None:
        with self.entry.numbers():
            return self.known.get((*self.entry.mesh_key(), *map(aval_parts, arrays)))

    def bucket(self, arrays: Sequence[object]) -> PaddingRecipe | None:
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
            fill, key = found.fill, found.key
            narrower = entry.narrower.get(key)
            if narrower is None:
                break
            request = replace(request, tops=tuple({**dict(request.tops), **narrower.tops}.items()))
            if any(axis.size > narrower.tops.get(axis.name, axis.size) for axis in fill.axes):
                self.refuse(narrower.above)

        # Numbers that Python computes from the sizes, if the program takes any.
        sizes = {axis.name: axis.size for axis in fill.axes}
        proof = entry.proofs.get(key)
        try:
            numbers = [] if proof is None else proof.numbers_at(sizes)
        except Refused as refusal:
            raise SizeRefused(fill, refusal) from refusal

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
        key = padded_key([(shape, leaf.dtype, leaf.weak_type) for leaf, shape, _ in leaves])
        return _Filled(
            fill,
            shapes,
            fills,
            weak,
            key,
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

    def ahead(self, arrays: Sequence[object]) -> Sequence[object]:
        """Return the abstract arrays of the bucket to compile for, given these arrays or abstract
        values.

        Raises:
            Refused: At this size the body does other operations than its padded program does.
        """
        with self.entry.numbers():
            padded = self.bucket(arrays)
        if padded is None:
            return arrays
        return (*padded.abstract(arrays), padded.counts.abstract())

    def narrow_ahead(self, arrays: Sequence[object], refusal: Refused) -> bool:
        """`narrow` for what `ahead` returned."""
        with self.entry.numbers():
            padded = None if isinstance(refusal, SizeRefused) else self.bucket(arrays)
        return padded is not None and self.narrow(padded, refusal)

    def _program(self, key: Hashable, arrays: Sequence[object]) -> Run:
        """Return the runner of one program."""
        program = self._runs.get(key)
        if program is None:
            if len(self._runs) >= MAX_ENTRIES:
                self._runs = {}
            program = self._runs[key] = self.entry.runner(arrays)
        return program

    def _refuse(
        self,
        fill: Fill,
        refusal: Refused,
        arrays: Sequence[Array],
        *,
        whole: bool,
    ) -> object:
        """Run this call, and all later ones of its bucket, at exact size."""
        self._warm = {}
        self.refused[fill.axes] = refusal
        known: dict[Hashable, PaddingRecipe | None] = {}
        for key, recipe in list(self.known.items()):
            is_refused = recipe is not None and recipe.fill.axes == fill.axes
            known[key] = None if is_refused else recipe
        self.known = known

        view = self.entry.plan_call(arrays, jit=False).view
        sizes = {axis.name: axis.size for axis in fill.axes}
        explained = with_shape_hint(
            view,
            named_axes(view, fill.levels),
            sizes,
            refusal,
        )
        warn_refusal(self.entry.core, explained)
        return self._run(arrays, whole=whole)

    def _cut(
        self,
        padded: PaddingRecipe,
        out: object,
        *,
        keeps: bool,
    ) -> object:
        cuts = self.entry.cuts[padded.key]
        if not any(cuts):
            return out
        known = padded.cut[0] if padded.cut else None
        if known is not None and known[0] is cuts and len(cuts) == 1 and type(out) in DEVICE_ARRAYS:
            shape = known[1][0]
            return out if shape is None else FILLING.cut(out, shape, keeps=keeps)
        leaves, treedef = tree_flatten(out)
        # A new trace has new cuts.
        if not padded.cut or padded.cut[0][0] is not cuts:
            sizes = {axis.name: axis.size for axis in padded.fill.axes}
            shapes = [_true_shape(x, cut, sizes) for x, cut in zip(leaves, cuts, strict=True)]
            padded.cut[:] = [(cuts, shapes)]

        _, shapes = padded.cut[0]
        for i, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True)):
            if shape is not None:
                leaves[i] = FILLING.cut(leaf, shape, keeps=keeps)
        return tree_unflatten(treedef, leaves)


def _true_shape(
    result: Any,
    cut: Cut,
    sizes: Mapping[str, int],
) -> tuple[int, ...] | None:
    """Return the shape of a result after the cut; None if nothing is cut off."""
    # An argument that JAX returns unchanged may be a Python number.
    was = np.shape(result)
    shape = tuple(unpadded_shape(was, cut, sizes))
    return None if shape == was else shape


def warn_refusal(core: FunctionInfo, refusal: Refused) -> None:
    """Warn once that calls run at exact size, with the reason."""
    if core.counters.warn_once(f"pad {refusal.place}"):
        warnings.warn(explain(core, refusal), PaddingWarning, stacklevel=users_level())


def explain(core: FunctionInfo, refusal: Refused) -> str:
    """Return the reason why an axis is not padded, as a message."""
    axes = " and ".join(repr(name) for name, _ in core.options.pad)
    return format_error(
        core.where,
        f"{axes} cannot be padded here: {refusal.place or 'it'} {refusal.what}.",
        "An axis is padded only if each operation along it is proven to give what it gives at exact"
        " size.",
        "change that line, or drop the axis from `pad`; each size runs exact until then, and"
        " compiles its own program.",
    )
