"""Stage that cuts a long axis into chunks and works on them one after the other, so that
intermediate values never exist as a whole.

    mean(f(x[n]))   ->   scan over chunks of x: acc + sum(f(chunk)); then acc / n

An axis, its proof and its passes are in `chunked_axis.py`, the errors in `refusals.py`.

Chunk stands inside Jit, since the loop over the chunks is part of the program, and outside Vmap,
whose axes can be cut too.

The loop is in `_axes/chunks/in_memory.py` (`_scan_chunks`), and what it carries for each operation
in `_axes/carriers/`. The outermost mapped axis is cut around `jax.vmap`
(`_axes/mapped_chunks.py`) if nothing has to be proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import jax

from ... import _axes
from ..._axes import ClosesOver, Refused
from ..._errors import AxisError, OptionError
from ..._host.own_time import OWN_TIME
from ..._jax.typed import Array
from ..._jax.xla.memory import Fit, fit, free_bytes, text
from ..._signature.options import AUTO, is_measured
from ..._view.named_axes import (
    clash_of,
    is_count,
    named_axes,
    names_of_signature,
    refuse_two_sizes,
    sizes_of,
)
from ..._view.result import Outcome
from ..._view.view import View
from ..sharding import Place
from ..stage import Fn, Request, Skip, Stage
from ..vmap import OneByOne, levels_of
from .bounded import Bounded, Whole, is_open
from .chunked_axis import SYMBOL, ChunkedAxis
from .cut import Cut
from .mapped_chunks import MappedChunks
from .refusals import ChunkPurpose, no_chunk_fits

_MOST = 2**31 - 1
# Smallest size that a symbol stands for.
_FEWEST = 2


@dataclass(frozen=True)
class Chunk(ChunkedAxis, Stage):
    """Named axis, worked on in chunks."""

    # Stages of the axes to try if this one cannot be cut.
    others: tuple[Chunk, ...] = ()
    # Name of the bar that shows how many chunks are done.
    progress: str | None = None
    name: str = field(default="chunk", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | OneByOne | MappedChunks | Bounded | Whole | Skip:
        options = request.options
        if not options.chunk and options.memory is None:
            return Skip("chunk", "no `chunk` given")
        if options.remat == AUTO:
            return Skip("chunk", '`memory` is for what `remat="auto"` saves')
        if request.whole is not None:
            return Skip("chunk", request.whole)

        if is_measured(options.chunk):
            return Skip("chunk", "the width is measured around the whole program")

        # `chunk={axis: 1}` of a mapped axis is a loop in place of `jax.vmap`.
        one_by_one = OneByOne.of(view, request)
        if one_by_one is not None:
            return one_by_one

        # Under an outer trace only what can be differentiated in chunks is cut; see
        # `Request.derived`.
        is_cut = options.accumulate or (request.derived and options.memory is None)
        if request.nested and not is_cut:
            return Skip("chunk", "under an outer trace: all at once")

        # Symbolic sizes are not cut. The budget is checked at the largest of them.
        if is_open(view):
            if options.accumulate:
                raise Refused("", f"calls {request.where}, whose microbatches are of a known size")
            return Bounded.plan(view, request)

        if not options.chunk:
            return cls.plan_longest(view, request) or Whole.plan(view, request)

        ((axis, chunk),) = options.chunk
        stage = cls.of(view, request, axis, None if chunk == AUTO else int(chunk))
        if stage is None:
            return Skip("chunk", f"no array has an axis {axis!r}")
        if stage.size < _FEWEST or (stage.chunk is not None and stage.part <= stage.chunk):
            each = "" if stage.devices is None else " on each device"
            return Skip("chunk", f"{axis}={stage.size} is one chunk{each}")
        if stage.chunk is None or not MappedChunks.fits(view, request, axis, stage.levels):
            return stage
        return MappedChunks(
            axis,
            stage.size,
            stage.chunk,
            stage,
            stage.why,
            stage.progress,
        )

    @classmethod
    def of(
        cls,
        view: View,
        request: Request,
        axis: str,
        chunk: int | None,
        asked: ChunkPurpose = "chunk",
    ) -> Self | None:
        """Stage for one axis, of any size; None if no array has the axis.

        Args:
            view: Abstract arrays of the call.
            request: User's options.
            axis: Name of the axis.
            chunk: Elements at a time; None for as many as fit.
            asked: Option that cuts the axis, for errors.

        Raises:
            ContractError: Two arrays differ in the size of the axis.
        """
        inside = View(tuple(leaf for leaf in view.leaves if not is_count(leaf)))
        levels = levels_of(view, request)
        named = named_axes(inside, levels)
        size = sizes_of(inside, named).get(axis)
        if size is None:
            return None

        refuse_two_sizes(request.where, axis, inside, named)
        if size > _MOST:
            raise AxisError(
                request.where,
                f"axis {axis!r} has {size:,} elements.",
                f"Up to {_MOST:,} can be counted, in 32 bits.",
                "work on the parts one after the other.",
            )

        options, memory = request.options, request.options.memory
        budget: int | None = None
        if memory is not None:
            budget = free_bytes() if memory == AUTO else int(memory)
        place = request.outer_stage(Place)
        devices = None if place is None else devices_of(axis, place, request)

        if chunk is not None:
            how = f"of {chunk}"
        elif budget:
            how = f"so that the program takes {text(budget)}"
        else:
            how = "as suits caches"
        if devices is not None:
            how += f" on each of {devices.parts} devices along {devices.text}, by `shard_map`"
        why = f"{axis}={size} in chunks {how}"
        if options.accumulate:
            why = (
                f"gradients of {axis}={size} accumulated over microbatches {how}: the loss is a sum"
                f" over {axis!r}, which is proven"
            )

        return cls(
            axis,
            size,
            chunk,
            budget,
            inside,
            levels,
            request.where,
            why,
            devices,
            None if place is None else place.shardings,
            summed=options.accumulate,
            derived=request.derived,
            asked=asked,
            recomputes=request.recomputes,
            progress=request.where.name if options.progress else None,
        )

    @classmethod
    def plan_longest(
        cls,
        view: View,
        request: Request,
    ) -> Self | None:
        """Stage for any axis that can be cut, the longest first; None if there is none."""
        inside = View(tuple(leaf for leaf in view.leaves if not is_count(leaf)))
        levels = levels_of(view, request)
        named = named_axes(inside, levels)
        sizes = sizes_of(inside, named)
        long = [
            name
            for name, size in sizes.items()
            if size >= _FEWEST and clash_of(name, inside, named) is None
        ]
        # Axes of the signature come before those of fields: data are longer than parameters.
        own = names_of_signature(inside, named) | {name for name, _ in levels}
        names = sorted(long, key=lambda name: (name not in own, -sizes[name]))
        all_stages = [cls.of(view, request, name, None, "memory") for name in names]
        stages = [stage for stage in all_stages if stage is not None]
        if not stages:
            return None
        longest, *others = stages
        return replace(longest, others=tuple(others))

    @property
    def scope(self) -> str:
        # The axis is chosen when the body is traced, so `wrap` opens the scope.
        return ""

    def cut(self, fn: Fn) -> Cut:
        """Decide the axis and the width of the chunks.

        With a budget this compiles the whole, then two narrow programs, and the width that the line
        through them predicts.

        Raises:
            AxisError: The axis cannot be cut, or no chunk fits the budget.
            OptionError: There is a budget, but the devices exist only as an abstract mesh.
        """
        if self.budget is not None:
            with OWN_TIME.running():
                return self._fitting(fn, self.budget)
        passes = self.passes(fn)
        return Cut(
            self.axis,
            passes,
            self.chunk or self.suiting(passes),
            devices=self.devices,
            size=self.size,
        )

    def _fitting(self, fn: Fn, budget: int) -> Cut:
        meshes = [sharding.mesh for sharding in self.placed or ()]
        if any(isinstance(mesh, jax.sharding.AbstractMesh) for mesh in meshes):
            raise OptionError(
                self.where,
                "`memory` finds its chunk by compiling, and the devices are not there.",
                "What is simulated is compiled by another process, as it was planned.",
                f'give it `chunk={{"{self.axis}": ...}}` instead of `memory`.',
                code="J201",
            )

        avals = self.avals({SYMBOL: self.size})
        whole = self.bytes(fn, avals)
        if whole <= budget:
            return Cut(
                self.axis,
                None,
                self.size,
                Fit(self.size, None, whole, budget),
            )

        # Try the axes from the longest on; the first that can be cut and fits is taken.
        failed: AxisError | None = None
        least = whole
        for stage in (self, *self.others):
            try:
                passes = stage.passes(fn, whole=whole)
                fitting = fit(
                    lambda width, stage=stage, passes=passes: stage.bytes(
                        in_chunks(stage, passes, width), avals
                    ),
                    stage.suiting(passes),
                    budget,
                )
            except AxisError as error:
                failed = failed or error
                continue
            if isinstance(fitting, Fit):
                return Cut(stage.axis, passes, fitting.width, fitting, stage.devices, stage.size)
            least = min(least, fitting.least)

        # No chunk takes less than the whole, so the first refusal is the better error.
        if failed is not None and least == whole:
            raise failed

        axes = [stage.axis for stage in (self, *self.others)]
        raise no_chunk_fits(self.where, axes, budget, least, whole, recomputes=self.recomputes)

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        def chunked(*arrays: Array) -> Sequence[Array]:
            try:
                cut = self.cut(fn)
            except AxisError as error:
                # A body that closes over an outer tracer runs whole; the caller reports it.
                if not isinstance(error.__cause__, ClosesOver):
                    raise
                outcome.uncut = error.__cause__
                return list(fn(*arrays))
            if cut.passes is None:
                return list(fn(*arrays))
            with jax.named_scope(f"chunk {cut.axis}"):
                if self.derived:
                    derivative = partial(self.derivative, fn)
                    results = _axes.run_chunked_differentiable(
                        cut.passes, derivative, arrays, self.size, cut.width
                    )
                else:
                    results = _axes.run_chunked(
                        cut.passes,
                        arrays,
                        self.at(cut.axis).size,
                        cut.width,
                        cut.devices,
                        self.progress,
                    )
                return cut.passes.weakly_typed(results)

        return chunked

    def at(self, axis: str) -> Chunk:
        """Stage of the axis that was chosen."""
        return next(stage for stage in (self, *self.others) if stage.axis == axis)


def in_chunks(
    stage: Chunk,
    passes: _axes.Passes,
    width: int,
) -> Fn:
    """Run a body in chunks of one width."""

    def whole(*arrays: Array) -> Sequence[Array]:
        results = _axes.run_chunked(passes, arrays, stage.size, width, stage.devices)
        return passes.weakly_typed(results)

    return whole


def devices_of(
    axis: str,
    place: Place,
    request: Request,
) -> _axes.Devices | None:
    """Devices that share an axis; None if it is replicated."""
    rules = request.options.shard
    if rules is None or request.divisor(axis) == 1:
        return None
    along = dict(rules.axes).get(axis, ())
    return _axes.Devices(place.mesh, along)
