"""Cut a long axis into chunks that are worked on one after the other, so that what the body makes of it is never there as a whole.

It stands inside Jit, since the loop over the chunks is part of the program, and outside Vmap, whose axes can be cut too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .._axes import Passes, Refused, bytes_per_element, plan_passes, run_chunked, trace
from .._errors import AxisError, Where, sentence
from .._named import in_names, is_count, named_axes, shape_at, sizes_of
from .._options import AUTO
from .._outcome import Outcome
from .._stage import Fn, Request, Skip
from .._view import View
from .vmap import levels_of

SYMBOL = "d0"
BUDGET = 64 * 2**20
"""How many bytes the values of one chunk may take where the size is left to jitney."""
_LEAST = 1024  # of a chunk
_FEWEST = 2  # a symbol stands for sizes from here on


@dataclass(frozen=True)
class Chunk:
    """One axis, worked on in chunks."""

    axis: str
    size: int
    chunk: int | None  # None: as many as fit the budget
    budget: int
    view: View = field(compare=False)
    levels: tuple[tuple[str, tuple[int | None, ...]], ...] = field(compare=False)
    where: Where = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="chunk", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        options = request.options
        if not options.chunk:
            return Skip("chunk", "no `chunk` given")
        if request.whole is not None:
            return Skip("chunk", request.whole)
        if request.nested:
            return Skip("chunk", "under an outer trace: all at once")
        ((axis, chunk),) = options.chunk
        stage = cls.of(view, request, axis, None if chunk == AUTO else int(chunk))
        if stage is None:
            return Skip("chunk", f"no array has an axis {axis!r}")
        if stage.size < _FEWEST or (stage.chunk is not None and stage.size <= stage.chunk):
            return Skip("chunk", f"{axis}={stage.size} is one chunk")
        return stage

    @classmethod
    def of(cls, view: View, request: Request, axis: str, chunk: int | None) -> Self | None:
        """The stage for an axis, of any size; None if no array has it."""
        inside = View(tuple(leaf for leaf in view.leaves if not is_count(leaf)))
        levels = levels_of(view, request)
        size = sizes_of(inside, named_axes(inside, levels)).get(axis)
        if size is None:
            return None
        budget = request.options.memory or BUDGET
        how = f"so that the values of one take {budget / 2**20:.4g} MiB" if chunk is None else f"of {chunk}"
        return cls(axis, size, chunk, budget, inside, levels, request.where, f"{axis}={size} in chunks {how}")

    def inner(self, view: View) -> View:
        return view

    def avals(self, sizes: Any) -> list[jax.ShapeDtypeStruct]:
        """The arguments as abstract values, with a size for the symbol."""
        named = named_axes(self.view, self.levels)
        known = sizes_of(self.view, named)
        return [
            jax.ShapeDtypeStruct(shape_at(leaf, axes, known, {self.axis: sizes[SYMBOL]}), leaf.dtype, weak_type=leaf.weak_type)
            for leaf, axes in zip(self.view.leaves, named, strict=True)
        ]

    def passes(self, fn: Fn) -> Passes:
        """How the function is worked on in chunks.

        Raises:
            AxisError: An operation looks along the axis in a way that cannot be cut.
        """
        ranges = {SYMBOL: (self.size, self.size)}
        try:
            return plan_passes(trace(fn, self.avals, ranges).jaxpr, SYMBOL, ranges)
        except Refused as refusal:
            what = f"{refusal.place or 'it'} {in_names(refusal.what, [self.axis])}"
            raise AxisError(
                sentence(self.where, f"axis {self.axis!r} cannot be cut into chunks: {what}.",
                         "A chunk sees its own elements; sums and their kin, cumulative operations and loops go on from one to the next.",
                         "move that line out of the function, or drop the axis from `chunk`.")
            ) from refusal  # fmt: skip

    def check(self, outcome: Outcome) -> None:
        """Check that the results have one form.

        Raises:
            AxisError: A number among them is made of the size of the axis.
        """
        if not outcome.has_one_form:
            raise AxisError(
                sentence(self.where, f"axis {self.axis!r} cannot be cut into chunks: a result is a Python number made of its size.",
                         "While a function is traced for chunks its sizes are symbols, and numbers made of them are arrays.",
                         "return the size itself, or make an array of the number.")
            )  # fmt: skip

    def fitting(self, passes: Passes) -> int:
        """The size of a chunk."""
        if self.chunk is not None:
            return self.chunk
        fit = self.budget // max(1, bytes_per_element(passes))
        return min(self.size, max(_LEAST, fit))

    def wrap(self, fn: Fn) -> Fn:
        def chunked(*arrays: Any) -> list[Any]:
            passes = self.passes(fn)
            return run_chunked(passes, arrays, self.size, self.fitting(passes))

        return chunked
