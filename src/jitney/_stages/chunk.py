"""Stage that cuts a long axis into chunks and works on them one after the other, so that
intermediate values never exist as a whole.

    mean(f(x[n]))   ->   scan over chunks of x: acc + sum(f(chunk)); then acc / n

Chunk stands inside Jit, since the loop over the chunks is part of the program, and outside Vmap,
whose axes can be cut too.

The loop is in `_axes/chunks/in_memory.py` (`_scan_chunks`), and what it carries for each operation
in `_axes/carriers/`. The outermost mapped axis is cut around `jax.vmap`
(`_axes/mapped_chunks.py`) if nothing has to be proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Self

import jax

from .. import _axes
from .._axes import ClosesOver, MadeOfSize, Refused
from .._errors import AxisError, OptionError, Where
from .._host.own_time import OWN_TIME
from .._jax.programs.primitives import public_name
from .._jax.typed import Array
from .._jax.xla.memory import Fit, compiled_bytes, fit, free_bytes, text
from .._signature.options import AUTO, is_measured
from .._view.named_axes import (
    clash_of,
    in_names,
    is_count,
    named_axes,
    names_of_signature,
    refuse_two_sizes,
    shape_at,
    sizes_of,
    with_shape_hint,
)
from .._view.result import Outcome
from .._view.view import View
from .bounded import Bounded, Whole, is_open
from .mapped_chunks import MappedChunks
from .sharding import Place
from .stage import Fn, Request, Shardings, Skip, Stage
from .vmap import Dims, Levels, OneByOne, levels_of

SYMBOL = "d0"
CACHE_BYTES = 64 * 2**20
"""Bytes that the values of one chunk take, about, where `memory` is not given."""
# Shortest chunk that is chosen.
_LEAST = 1024
_MOST = 2**31 - 1
# Smallest size that a symbol stands for.
_FEWEST = 2


@dataclass(frozen=True)
class Cut:
    """Decision about one body.

    Args:
        axis: Axis that is cut.
        passes: Passes over the data; None if the whole fits and nothing is cut, and for an axis
            that is mapped in chunks.
        width: Elements in one chunk.
        fit: Measured bytes, if `memory` was given.
        devices: Devices that share the axis, each with chunks of its own; None if there is one.
        size: Size of the axis.
        is_mapped: Whether each chunk is `jax.vmap` of the body, which needs no proof.
    """

    axis: str
    passes: _axes.Passes | None
    width: int
    fit: Fit | None = None
    devices: _axes.Devices | None = None
    size: int = 0
    is_mapped: bool = False

    @property
    def text(self) -> str:
        """Description for a line of the plan."""
        if self.is_mapped:
            return f"1 over the data, {self.width} of {self.axis} at a time by `jax.vmap`"
        if self.passes is None:
            return "not cut: all of it fits"
        back = sum(pass_.back for pass_ in self.passes.passes)
        ways = f", {back} of them from its end" if back else ""
        done = (
            f"{len(self.passes.passes)} over the data{ways}, {self.width} of {self.axis} at a"
            f" time{self._describe_counting(self.passes)}{self._describe_loops(self.passes)}"
            f"{self._describe_memory(self.passes)}"
        )
        if self.devices is None:
            return done
        return (
            f"{done} on each of {self.devices.parts} devices along {self.devices.text};"
            f" {_axes.describe_collectives(self.passes)}"
        )

    def _describe_counting(self, passes: _axes.Passes) -> str:
        """Describe the passes that only count the iterations of loops."""
        counting = [work for work in passes.passes if work.counts]
        if not counting:
            return ""
        operations = passes.counted_loops
        loops = [f"`{public_name(op.name)}` at {op.place}" for op in operations]
        names = ", ".join(dict.fromkeys(loops))
        count, are = f"{len(counting)} of them count", "are"
        if len(counting) == 1:
            count, are = "1 of them counts", "is"
        return (
            f"; {count} the iterations of {names}, and {are} repeated until no chunk takes more,"
            " so twice as a rule"
        )

    def _describe_loops(self, passes: _axes.Passes) -> str:
        """Describe the loops that take passes in each iteration."""
        line = ""
        for node in passes.at_once:
            loop = passes.loop(node)
            if loop is not None:
                line += (
                    f"; `{public_name(node.op.name)}` at {node.op.place} takes {loop.turns} in each"
                    " iteration"
                )
        return line

    def _describe_memory(self, passes: _axes.Passes) -> str:
        """Describe the memory that is needed in addition to one chunk."""
        line = ""
        held = passes.held_bytes(self.size)
        if passes.at_once and (held or len(passes.loops) < len(passes.at_once)):
            operations = [node.op for node in passes.at_once]
            names = [f"`{public_name(op.name)}` at {op.place}" for op in operations if op.place]
            whole = ", ".join(dict.fromkeys(names)) or "what looks at all of it"
            line = f"; {text(held)} are there as a whole, for {whole}"
        chunks = -(-self.size // self.width)
        carried = passes.kept_bytes(chunks)
        if carried:
            line += f"; {text(carried)} are kept of what is carried into each chunk"
        return line


ChunkPurpose = Literal["chunk", "memory", "stream"]
_WITHOUT: dict[ChunkPurpose, str] = {
    "chunk": "drop the axis from `chunk`",
    "memory": "give `memory` room for all of it",
    "stream": "stream along another axis",
}


@dataclass(frozen=True)
class Chunk(Stage):
    """Named axis, worked on in chunks."""

    axis: str
    size: int
    # Elements of a chunk; None for as many as fit.
    chunk: int | None
    # Bytes that the compiled program may take. None if no limit was given: then one chunk takes
    # what suits caches.
    budget: int | None
    # Stages of the axes to try if this one cannot be cut.
    others: tuple[Chunk, ...]
    view: View = field(compare=False)
    levels: Levels = field(compare=False)
    where: Where = field(compare=False)
    why: str = field(compare=False)
    # Devices that share the axis.
    devices: _axes.Devices | None = None
    # Shardings of the arrays.
    placed: Shardings | None = field(default=None, compare=False)
    name: str = field(default="chunk", compare=False)
    # True for `jitney.accumulate`, which has errors of its own.
    summed: bool = field(default=False, compare=False)
    # True if an outer transform may differentiate the program.
    derived: bool = field(default=False, compare=False)
    # Option that cuts the axis, for errors.
    asked: ChunkPurpose = field(default="chunk", compare=False)
    # True if the program goes backward, so that `remat="auto"` acts in it.
    recomputes: bool = field(default=False, compare=False)
    # Name of the bar that shows how many chunks are done.
    progress: str | None = None

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
            (),
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
                    may_iterate=in_memory and self._may_iterate,
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
                raise AxisError(
                    self.where,
                    f"axis {self.axis!r} cannot be accumulated over: {what}.",
                    "Microbatches add up to the batch if the loss is a mean or a sum over the axis"
                    " of terms of one element each; a statistic of the whole batch, as of batch"
                    " normalisation, is in none of them.",
                    "write it as such a mean; `chunk` on the loss cuts more than that, in several"
                    " passes over the data.",
                    code="J232",
                ) from _cause_of(refusal)
            raise AxisError(
                self.where,
                f"axis {self.axis!r} cannot be cut into chunks: {what}.",
                "A chunk sees its own elements; sums and the like, cumulative operations and loops"
                " go on from one to the next.",
                (
                    "return the size itself, or one array that is made of it, or"
                    f" {self._without(whole)}."
                    if isinstance(refusal, MadeOfSize)
                    else 'write remat="auto" with `memory`, which recomputes instead, or'
                    f" {self._without(whole)}."
                    if self.asked == "memory" and self.recomputes
                    else f"move that line out of the function, or {self._without(whole)}."
                ),
            ) from _cause_of(refusal)
        return passes

    @property
    def _may_iterate(self) -> bool:
        """Whether loops may take passes over the data in each iteration: on one device, and where
        nothing is differentiated or proven to be a sum.
        """
        return self.devices is None and not self.derived and not self.summed

    def _without(self, whole: int | None) -> str:
        """Ways around a cut, as parts of the fix.

        Args:
            whole: Bytes that the program takes without one, if they were counted.
        """
        if self.asked != "memory" or whole is None:
            return _WITHOUT[self.asked]
        return f"{_WITHOUT[self.asked]}: memory={whole}"

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
            raise AxisError(
                self.where,
                f"axis {self.axis!r} cannot be cut into chunks where it is sharded over"
                f" {self.devices.text}: {what}.",
                "Each device works on its own part, and only sums and the like are put together"
                " afterwards.",
                f"take {self.axis!r} out of `shard`, move that line out of the function, or"
                f" {self._without(whole)}.",
                code="J233",
            ) from _cause_of(refusal)

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

        names = " or ".join(repr(stage.axis) for stage in (self, *self.others))
        raise AxisError(
            self.where,
            f"no chunk along {names} brings the program to {text(budget)}: "
            f"the least is {text(least)}, all at once takes {text(whole)}.",
            "`memory` bounds temporaries and arguments, as the compiler counts them; the arguments"
            " are there as a whole.",
            (
                f'give it memory={least}, or write remat="auto" with `memory`, which recomputes.'
                if self.recomputes
                else f"give it memory={least}, or read the data piece by piece with"
                " `jitney.stream`."
            ),
            code="J230",
        )

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

    def at(self, axis: str) -> Chunk:
        """Stage of the axis that was chosen."""
        return next(stage for stage in (self, *self.others) if stage.axis == axis)


def _cause_of(refusal: Refused) -> BaseException | None:
    """What a user sees as the cause of an error: not the refusal, which the error has in words.
    A `ClosesOver` stays the cause, since `Chunk.wrap` looks for it.
    """
    cause: BaseException | None = refusal
    while isinstance(cause, Refused) and not isinstance(cause, ClosesOver):
        cause = cause.__cause__
    return cause


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
