"""Padded calls: find the recipe of a call, fill its arrays, run the padded program, cut the
results.

With `pad={"n": "pow2"}`, a call of `x: f32[5]` fills `x` to f32[8], runs the program of the bucket
with the true size 5 as an int32 argument, and cuts each result with the axis `n` from 8 to 5.

Recipes are made in `padding_recipes.py`. Where arrays are filled and cut, on the host or on their
device, is decided in `filling.py`. On the host a call waits for its results if one of them has a
padded axis. Calls that have run before take the short way of `warm_padded.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..._axes import Refused
from ..._body.call_key import padded_key
from ..._body.placed_calls import PlacedCalls
from ..._jax.settings import x64_is_on
from ..._jax.trees import tree_flatten, tree_unflatten
from ..._jax.typed import Array, DType
from ..._stages import Fill
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.result_padding import Cut, unpadded_shape
from ..._view.true_sizes import (
    NeedsNumbers,
    Proof,
    knowing,
    reset_known,
    set_known,
)
from ..compiled_calls import CompiledCalls, Narrower
from ..outer_transforms import is_padded
from .filling import DEVICE_ARRAYS, FILLING
from .in_32_bits import as_typed
from .padding_recipes import Buckets, PaddingRecipe, RefusedSize, warn_refusal
from .warm_padded import WarmCall, fill_plans, warm_key
from .wrappers import Run, jitless_runner, nested_runner

_UNKNOWN: Any = object()
_Avals = tuple[tuple[tuple[int, ...], DType, bool], ...]
"""Shape, dtype and weak type of each array."""


class PaddedCalls(Buckets, PlacedCalls[Array]):
    """Runs the calls of an entry whose function pads."""

    most = 3
    asks_jit = True

    def __init__(self, entry: CompiledCalls):
        Buckets.__init__(self, entry)
        PlacedCalls.__init__(self)
        # On a mesh any trace counts. Elsewhere a call with numbers among unrelated tracers is
        # padded as an outermost one.
        self.asks_traces = entry.sharded is not None
        self.known: dict[Hashable, PaddingRecipe | None] = {}
        self._is_wide = entry.core.options.precision == "f64"
        # Key of a program -> its runner.
        self._runs: dict[Hashable, Run] = {}
        # Calls that have run before, by `warm_key`; none where more decides than their arrays.
        self._warm: dict[Hashable, WarmCall[PaddingRecipe]] = {}
        self._may_be_warm = not self._is_wide and entry.core.options.shard is None

    def __call__(self, *arrays: Array) -> object:
        warm = self._warm.get(warm_key(arrays)) if self._warm else None
        if warm is None:
            return super().__call__(*arrays)

        # A call like one that has run before. Each line here is in microseconds of users' calls.
        given = [*arrays]
        FILLING.fill_all(given, warm.plans)
        token = set_known(warm.known)
        try:
            out = warm.run(*given, warm.counts)
        except (Refused, NeedsNumbers):
            # JAX has dropped its trace, and another one comes out otherwise.
            out = _UNKNOWN
        finally:
            reset_known(token)
        if out is _UNKNOWN:
            self._warm = {}
            return super().__call__(*arrays)

        warm.tally.calls += 1
        version = self.entry.cuts.version
        if warm.whole_at == version:
            return out
        if not any(self.entry.cuts[warm.recipe.key]):
            warm.whole_at = version
            return out
        return self._cut(warm.recipe, out, keeps=True)

    def run_without_jit(self, arrays: Sequence[Array]) -> object:
        """Run a call with jit off, unpadded."""
        return jitless_runner(self.entry, self.entry.jitted)(*arrays)

    def run_within(self, arrays: Sequence[Array]) -> object:
        """Run a call inside a trace: padded only under the transforms that `is_padded` allows."""
        if self.entry.sharded is not None:
            return self.entry.nested_entry.run(*arrays)
        if not is_padded(self.entry, arrays):
            return nested_runner(self.entry, self.entry.jitted)(*arrays)
        return self._run_padded(arrays, whole=False)

    def run_outermost(self, arrays: Sequence[Array]) -> object:
        """Run a call that stands in no trace."""
        # The nested entry of a function that shards runs in a trace, whatever its arrays are.
        if self.entry.request.nested and self.entry.core.options.shard is not None:
            return self.run_within(arrays)
        return self._run_padded(arrays, whole=True)

    def _run_padded(self, arrays: Sequence[Array], *, whole: bool) -> object:
        """Run a call of which nothing is known yet, with jit on; `whole` if no outer transform
        traces it.
        """
        if not self._is_wide:
            return self._run(arrays, whole=whole)
        if not whole and not x64_is_on():
            arrays = as_typed(arrays)
        # The dtypes under this setting are part of the keys.
        with self.entry.numbers():
            return self._run(arrays, whole=whole)

    def _run(
        self,
        arrays: Sequence[Array],
        *,
        whole: bool,
        proof: Proof | None = None,
    ) -> object:
        """Run one call; `whole` if no outer transform traces it. A proof is that of its trace just
        before.
        """
        key = (*self.entry.mesh_key(), *[aval_parts(array) for array in arrays])

        # The recipe, which the first call of these shapes works out. None: at exact size.
        padded = self.known.get(key, _UNKNOWN)
        if padded is _UNKNOWN:
            padded = self._first(key, arrays)
        if isinstance(padded, RefusedSize):
            # Other sizes of the bucket share its program.
            return self._run_exact(key, padded.fill, padded.refusal, arrays, whole=whole)
        if padded is None:
            return self._program(key, arrays, whole=whole)(*arrays)

        # Fill, and run the program of the bucket.
        given = (*padded.arrays(arrays, whole=whole), padded.counts)
        program = (*self.entry.mesh_key(), padded.counts.key, padded.key)
        # Handled after `except`, so that errors raised next do not carry this one as their context.
        stopped: Refused | NeedsNumbers | None = None
        out: object = None
        try:
            known = padded.known
            with knowing(known if proof is None else self.entry.known_again(known, proof)):
                if self.entry.sharded is not None and program not in self._runs:
                    given = self.entry.sharded.shard_donations(given)
                out = self._program(program, given, whole=whole)(*given)
        except (Refused, NeedsNumbers) as reason:
            stopped = reason

        if isinstance(stopped, Refused):
            if self.narrow(padded, stopped):
                return self._repeat(padded, arrays, whole=whole)
            if not self._is_odd(padded, stopped):
                return self._refuse(padded.fill, stopped, arrays, whole=whole)
            refusal = padded.differs or stopped
            return self._run_exact(key, padded.fill, refusal, arrays, whole=whole)

        # The trace has found that Python computes numbers from the sizes. With the proof the recipe
        # gets them, as arguments, and the call is repeated.
        if stopped is not None:
            self.entry.proofs[padded.key] = stopped.proof
            return self._repeat(padded, arrays, whole=whole, proof=stopped.proof)

        self.entry.core.counters.count_padded_call(padded.fill.axes)
        if whole and self._may_be_warm:
            self._note_warm(padded, arrays, self._program(program, given, whole=whole))
        return self._cut(padded, out, keeps=whole)

    def _is_odd(self, padded: PaddingRecipe, refusal: Refused) -> bool:
        """Note that a bucket has no program that is made at this size; return whether sizes of the
        bucket may have one nevertheless.

        Another size gets one more chance where none has a program yet. Of those that differ from a
        program, the first that has none of its own is the last that is tried.
        """
        turn = padded.counts.turn
        if not turn and not refusal.by_size:
            return False
        parts = padded.key[:-1] if turn else padded.key
        last = self.most if turn else 1
        self.missing.update(padded_key(parts, each) for each in range(turn, last))
        return True

    def _run_exact(
        self,
        key: Hashable,
        fill: Fill,
        refusal: Refused,
        arrays: Sequence[Array],
        *,
        whole: bool,
    ) -> object:
        """Run a call at exact size, whose bucket may have a program for other sizes."""
        self.known[key] = None
        self._warn(fill, refusal, arrays, alone=True)
        return self._run(arrays, whole=whole)

    def _note_warm(
        self,
        padded: PaddingRecipe,
        arrays: Sequence[Array],
        run: Run,
    ) -> None:
        """Note how calls like this one run, once one has."""
        key = warm_key(arrays)
        if key is None:
            return
        if len(self._warm) >= MAX_ENTRIES:
            self._warm = {}
        self._warm[key] = WarmCall(
            run,
            padded,
            padded.known,
            padded.counts,
            fill_plans(arrays, padded.filled, padded.shapes, padded.takes),
            self.entry.core.counters.tally(padded.fill.axes),
        )

    def narrow(self, padded: PaddingRecipe, refusal: Refused) -> bool:
        """Note that the bucket of a program has to end before its size, if the refusal is of sizes
        above that alone; return whether it is.
        """
        tops = padded.fill.narrower(refusal, self.entry.on_mesh())
        if tops:
            # Beside another axis, one of exact size may be as long as its bucket.
            self.entry.narrower[padded.key, *padded.fill.sizes] = Narrower(refusal, tops)
        return bool(tops)

    def _repeat(
        self,
        padded: PaddingRecipe,
        arrays: Sequence[Array],
        *,
        whole: bool,
        proof: Proof | None = None,
    ) -> object:
        """Run a call once more, of whose program more is known now."""
        self._warm = {}
        self.known = {
            shapes: recipe
            for shapes, recipe in [*self.known.items()]
            if recipe is None or recipe.key != padded.key
        }
        return self._run(arrays, whole=whole, proof=proof)

    def _first(
        self,
        key: Hashable,
        arrays: Sequence[object],
    ) -> PaddingRecipe | RefusedSize | None:
        """Work out and store how calls of these shapes are padded."""
        if len(self.known) >= MAX_ENTRIES:
            self.known = {}
        padded = self.bucket(arrays)
        if not isinstance(padded, RefusedSize):
            self.known[key] = padded
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
        if padded is None:
            return arrays
        return (*padded.abstract(arrays), padded.counts.abstract())

    def _lookup_recipe(self, arrays: Sequence[Array]) -> PaddingRecipe | None:
        with self.entry.numbers():
            mesh = self.entry.mesh_key()
            key = (*mesh, *map(aval_parts, arrays))
            return self.known.get(key)

    def ahead(self, arrays: Sequence[object]) -> Sequence[object]:
        """Return the abstract arrays of the bucket to compile for, given these arrays or abstract
        values.

        Raises:
            Refused: At this size the body does other operations than its padded program does.
        """
        with self.entry.numbers():
            padded = self.demand_bucket(arrays)
        if padded is None:
            return arrays
        return (*padded.abstract(arrays), padded.counts.abstract())

    def narrow_ahead(self, arrays: Sequence[object], refusal: Refused) -> bool:
        """`narrow` for what `ahead` returned."""
        with self.entry.numbers():
            padded = self.bucket(arrays)
        return isinstance(padded, PaddingRecipe) and self.narrow(padded, refusal)

    def is_single(self, arrays: Sequence[object]) -> bool:
        """Return whether no other size has the bucket of such calls, which would be padded."""
        with self.entry.numbers():
            padded = self.bucket(arrays)
        return padded is not None and padded.fill.is_single

    def _program(
        self,
        key: Hashable,
        arrays: Sequence[object],
        *,
        whole: bool,
    ) -> Run:
        """Return the runner of one program."""
        program = self._runs.get(key)
        if program is None:
            if len(self._runs) >= MAX_ENTRIES:
                self._runs = {}
            program = self._runs[key] = self.entry.runner(arrays, nested=not whole)
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

        self._warn(fill, refusal, arrays)
        return self._run(arrays, whole=whole)

    def _warn(
        self,
        fill: Fill,
        refusal: Refused,
        arrays: Sequence[Array],
        *,
        alone: bool = False,
    ) -> None:
        """Warn that calls run at exact size, or those of one size alone, unless no other size has
        the bucket.
        """
        if not fill.is_single:
            view = self.entry.plan_call(arrays, jit=False).view
            warn_refusal(self.entry.core, fill.explained(view, refusal), alone=alone)

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
            shapes = [_true_shape(leaf, cut, sizes) for leaf, cut in zip(leaves, cuts, strict=True)]
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
