"""Stage that runs the outermost mapped axis in chunks, each of which is `jax.vmap` of the body.

    vmap="fit", chunk={"fit": 64}   ->   a loop over 64 of `fit` at a time: jax.vmap(body)

Chunk takes the decision, and Vmap carries it out, as for `OneByOne`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax

from ... import _axes
from ..._jax.typed import Array
from ..._view.named_axes import is_count, named_axes
from ..._view.result import Outcome
from ..._view.view import View
from ..stage import Fn, Request, Stage


@dataclass(frozen=True)
class MappedChunks(Stage):
    """Outermost mapped axis, in chunks.

    `jax.vmap` computes each element alone, so the operations of the body need no proof. A body
    whose elements may know of one another is cut by the stage `proven`, by the rules of its
    operations.
    """

    axis: str
    size: int
    # Elements of a chunk, at most.
    width: int
    proven: Stage
    why: str = field(compare=False)
    # Name of the bar that shows how many chunks are done.
    progress: str | None = None
    name: str = field(default="chunk", compare=False)

    @classmethod
    def fits(
        cls,
        view: View,
        request: Request,
        axis: str,
        levels: Sequence[tuple[str, Sequence[int | None]]],
    ) -> bool:
        """Return whether an axis is the outermost mapped one, and nothing but mapped."""
        options = request.options
        if request.nested or request.derived or options.accumulate or options.shard is not None:
            return False
        if not levels or levels[0][0] != axis or any(map(is_count, view.leaves)):
            return False
        # An annotation that has this name too is cut with it.
        named = named_axes(view, levels)
        mapped = zip(named, levels[0][1], strict=True)
        return all(
            [each.axis for each in axes if each.size == axis] == ([] if dim is None else [dim])
            for axes, dim in mapped
        )

    @property
    def length(self) -> int:
        """Elements of each chunk."""
        return _axes.balanced(self.size, self.width)

    def loop_over(
        self,
        fn: Fn,
        dims: Sequence[int | None],
        outcome: Outcome,
    ) -> Fn:
        """Run the function over the axis in chunks."""

        def looped(*arrays: jax.Array) -> Sequence[Array]:
            program = _axes.trace_element(fn, arrays, dims)
            if not _axes.computes_alone(program):
                return self.proven.wrap(jax.vmap(fn, in_axes=dims), outcome)(*arrays)
            with jax.named_scope(f"chunk {self.axis}"):
                return _axes.map_in_chunks(
                    program,
                    arrays,
                    dims,
                    self.size,
                    self.width,
                    self.progress,
                )

        return looped

    def needs_proof(
        self,
        fn: Fn,
        avals: Sequence[jax.ShapeDtypeStruct],
    ) -> bool:
        """Return whether the body, for one element, has to be cut by the rules of its
        operations.
        """
        program = _axes.trace_element(fn, avals, [None] * len(avals))
        return not _axes.computes_alone(program)
