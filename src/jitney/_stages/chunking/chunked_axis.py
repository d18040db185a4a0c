"""Named axis of a body, the proof that it can be cut into chunks, and the passes over the data in
which the body then runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import jax

from ... import _axes
from ..._axes import ClosesOver, MadeOfSize, Refused
from ..._errors import AxisError, Where
from ..._jax.programs.primitives import public_name
from ..._jax.xla.memory import compiled_bytes
from ..._view.named_axes import in_names, named_axes, shape_at, sizes_of, with_shape_hint
from ..._view.view import View
from ..stage import Fn, Shardings
from ..vmap import Dims, Levels
from .refusals import (
    ChunkPurpose,
    cannot_accumulate,
    cannot_cut,
    cannot_cut_on_devices,
    cannot_stream,
    made_of_size,
    without,
)

SYMBOL = "d0"
CACHE_BYTES = 64 * 2**20
"""Bytes that the values of one chunk take, about, where `memory` is not given."""
# Shortest chunk that is chosen.
_LEAST = 1024


@dataclass(frozen=True)
class ChunkedAxis:
    """Named axis of a body, and the shapes and shardings of the body's arrays."""

    axis: str
    size: int
    # Elements of a chunk; None for as many as fit.
    chunk: int | None
    # Bytes that the compiled program may take. None if no limit was given: then one chunk takes
    # what suits caches.
    budget: int | None
    view: View = field(compare=False)
    levels: Levels = field(compare=False)
    where: Where = field(compare=False)
    why: str = field(compare=False)
    # Devices that share the axis.
    devices: _axes.Devices | None = None
    # Shardings of the arrays.
    placed: Shardings | None = field(default=None, compare=False)
    # True for `jitney.accumulate`, which has errors of its own.
    summed: bool = field(default=False, compare=False)
    # True if an outer transform may differentiate the program.
    derived: bool = field(default=False, compare=False)
    # Option that cuts the axis, for errors.
    asked: ChunkPurpose = field(default="chunk", compare=False)
    # True if the program goes backward, so that `remat="auto"` acts in it.
    recomputes: bool = field(default=False, compare=False)

    @property
    def part(self) -> int:
        """Elements of the axis on one device."""
        return self.size if self.devices is None else self.size // self.devices.parts

    def avals(self, sizes: Mapping[str, object]) -> list[jax.ShapeDtypeStruct]:
        """Abstract arguments, given a size for the symbol."""
        named = named_axes(self.view, self.levels)
        known = sizes_of(self.view, named)
        changed = {self.axis: sizes[SYMBOL]}
        avals: list[jax.ShapeDtypeStruct] = []
        for leaf, axes in zip(self.view.leaves, named, strict=True):
            shape = shape_at(leaf, axes, known, changed)
            avals.append(leaf.reshape(shape).abstract())
        return avals

    def passes(
        self,
        fn: Fn,
        *,
        in_memory: bool = True,
        whole: int | None = None,
    ) -> _axes.Passes:
        """Plan the passes over the data in which the function runs in chunks.

        Args:
            fn: Body.
            in_memory: Whether the arguments exist as a whole.
            whole: Bytes that the program takes uncut, if they were counted; for the error.

        Raises:
            AxisError: An operation looks along the axis in a way that cannot be cut.
            Refused: The same, where the derivative of an outer transform is to be cut.
        """
        ranges = {SYMBOL: (self.size, self.size)}
        try:
            # Over devices the body runs in `shard_map` and is traced as such.
            with nullcontext() if self.devices is None else self.devices.inside:
                program = _axes.trace(fn, self.avals, ranges, {SYMBOL: self.size})
                _axes.demand_no_tracers(program.jaxpr)
                passes = _axes.plan_passes(
                    program.jaxpr,
                    SYMBOL,
                    ranges,
                    program.numbers,
                    in_memory=in_memory,
                    may_iterate=self._may_iterate,
                )
            if self.derived:
                passes.demand_no_callbacks()
            self._refuse_whole_axis(passes)
            self._check_order(passes, whole)
        except Refused as refusal:
            named = named_axes(self.view, self.levels)
            explained = with_shape_hint(self.view, named, {self.axis: self.size}, refusal)
            reason = in_names(explained.what, [self.axis])
            if self.derived:
                raise Refused(explained.place, reason) from refusal
            what = f"{explained.place or 'it'} {reason}"
            if self.summed:
                error = cannot_accumulate(self.where, self.axis, what)
            elif isinstance(refusal, MadeOfSize):
                error = made_of_size(self.where, self.axis, what, self._without(whole))
            elif not in_memory and self._is_cut_in_memory(fn):
                error = cannot_stream(self.where, self.axis, what)
            else:
                recomputes = self.asked == "memory" and self.recomputes
                error = cannot_cut(
                    self.where, self.axis, what, self._without(whole), recomputes=recomputes
                )
            raise error from _cause_of(refusal)
        return passes

    def _is_cut_in_memory(self, fn: Fn) -> bool:
        """True if the function, which cannot be streamed, runs in chunks of arrays in memory."""
        try:
            self.passes(fn)
        except (AxisError, Refused):
            return False
        return True

    @property
    def _may_iterate(self) -> bool:
        """Whether loops that cannot be cut may run on whole operands: on one device, and where
        nothing is differentiated or proven to be a sum.
        """
        return self.devices is None and not self.derived and not self.summed

    def _without(self, whole: int | None) -> str:
        """Part of the fix that does without the cut."""
        return without(self.asked, whole)

    def _refuse_whole_axis(self, passes: _axes.Passes) -> None:
        """Refuse operations that need the whole axis: of a batch, only microbatches exist."""
        if self.summed and passes.at_once:
            op = passes.at_once[0].op
            raise Refused(op.place, f"needs all of it at once (`{public_name(op.name)}`)")

    def _check_order(self, passes: _axes.Passes, whole: int | None) -> None:
        if self.devices is None:
            return
        try:
            _axes.check_order(passes, self.devices)
        except Refused as refusal:
            what = f"{refusal.place or 'it'} {in_names(refusal.what, [self.axis])}"
            raise cannot_cut_on_devices(
                self.where, self.axis, self.devices.text, what, self._without(whole)
            ) from _cause_of(refusal)

    def suiting(self, passes: _axes.Passes) -> int:
        """Width of a chunk whose values suit caches: longer chunks take more memory and no less
        time.
        """
        most = CACHE_BYTES // max(1, _axes.bytes_per_element(passes))
        # A multiple of `_LEAST`, if it is above it.
        return min(self.part, max(_LEAST, most - most % _LEAST))

    def bytes(
        self,
        fn: Fn,
        avals: Sequence[object],
    ) -> int:
        """Bytes that a body takes on one device, as the compiler counts them.

        The body is compiled as it runs: over devices, Shard stands around it.
        """
        compiled = fn if self.placed is None else _axes.partition_safe(fn)
        return compiled_bytes(compiled, avals, self.placed)

    def derivative(
        self,
        fn: Fn,
        varying: Sequence[int],
    ) -> _axes.Passes:
        """Passes of the body's derivative along the arguments that vary.

        Raises:
            Refused: The derivative cannot be cut.
        """
        leaves = self.view.leaves
        tangents = [replace(leaves[i], weak_type=False) for i in varying]
        levels: list[tuple[str, Dims]] = []
        for name, dims in self.levels:
            dims_of_tangents = [dims[i] for i in varying]
            levels.append((name, (*dims, *dims_of_tangents)))
        along = replace(self, view=View((*leaves, *tangents)), levels=tuple(levels))
        jvp = _axes.jvp_function(fn, len(leaves), varying)
        return along.passes(jvp)


def _cause_of(refusal: Refused) -> BaseException | None:
    """Cause of an error that a user sees: not the refusal, which the error has in words.
    A `ClosesOver` stays the cause, since `Chunk.wrap` looks for it.
    """
    cause: BaseException | None = refusal
    while isinstance(cause, Refused) and not isinstance(cause, ClosesOver):
        cause = cause.__cause__
    return cause
