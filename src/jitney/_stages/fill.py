"""Stage that chooses the bucket of each padded axis, and the shapes of the padded arrays.

Fill stands outside Jit, which is keyed by shapes. Sizes are those that the body sees, so the axes
of Vmap are looked through first. Its second step records what is cut off the results. Padding and
cutting themselves are done around the program (`_program/runners/padded_calls.py`).

Whether the body may be padded is proven by `mask.py`, by the rule of each operation
(`_axes/uses.py`, in `demand`). Where it may not, `CallPlanner._padded_plan` (`_body/body.py`) puts
the sentence into the plan, and `_program/runners/padding_recipes.py` warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from .._axes import Refused
from .._jax.typed import Array
from .._signature.buckets import Bucket
from .._view.named_axes import (
    count_leaf,
    is_count,
    named_axes,
    refuse_two_sizes,
    shape_at,
    sizes_of,
    with_shape_hint,
)
from .._view.result import Outcome
from .._view.result_padding import cuts_of
from .._view.view import View
from .stage import Request, Skip, Stage
from .vmap import Levels, levels_of


@dataclass(frozen=True)
class PaddedAxis:
    """Padded axis with the sizes that share its bucket: from `low` to `high`, the size of the
    bucket.
    """

    name: str
    low: int
    high: int
    size: int = field(compare=False)
    # Size of the bucket, of which the body is one program up to `high` only.
    bucket: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        part = "" if self.bucket is None else f", not {self.bucket}, where it is another program"
        padding = f"{self.high / self.size - 1:.0%} padding"
        return f"{self.name} {self.size} -> {self.high}{part} ({padding})"


@dataclass(frozen=True)
class Fill(Stage):
    """Arrays padded to buckets, before Jit."""

    axes: tuple[PaddedAxis, ...]
    levels: Levels = field(compare=False)
    why: str = field(compare=False)
    name: str = field(default="fill", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        if not request.options.pad:
            return Skip("fill", "no `pad` given")
        if request.exact is not None:
            return Skip("fill", request.exact)
        # With leaves that hold true sizes, the view is that of arrays which are padded already.
        filled = [leaf for leaf in view.leaves if is_count(leaf)]
        levels = levels_of(view, request)
        named = named_axes(view, levels)
        sizes = sizes_of(view, named)

        axes: list[PaddedAxis] = []
        reasons: list[str] = []
        for name, bucket in request.options.pad:
            refuse_two_sizes(request.where, name, view, named)
            size = sizes.get(name)
            # Padded arrays are as long as the bucket, or as its part.
            top = size if filled else dict(request.tops).get(name)
            decided = _pad_axis(name, size, bucket, request.divisor(name), top)
            reasons.append(str(decided))
            if isinstance(decided, PaddedAxis):
                axes.append(decided)

        why = "; ".join(reasons)
        if not axes:
            return Skip("fill", why)
        if filled:
            ranges = [f"{axis.name} from {axis.low} to {axis.high}" for axis in axes]
            return cls(tuple(axes), levels, ", ".join(ranges))
        return cls(tuple(axes), levels, f"{why}; by repeating the last element; results are cut")

    def narrower(self, refusal: Refused, request: Request) -> dict[str, int]:
        """Axis -> the size that its bucket would have to end at for the body to be one program;
        empty if no shorter bucket can help.
        """
        tops: dict[str, int] = {}
        for axis in self.axes:
            # The largest: if a comparison before it is in the way, it comes next.
            known = refusal.ends.get(axis.name, ())
            ends = [end for end in known if axis.low <= end < axis.high]
            if ends and max(ends) % request.divisor(axis.name) == 0:
                tops[axis.name] = max(ends)
        return tops

    @property
    def is_single(self) -> bool:
        """True if no other size has the bucket, as of powers of two none shares that of 2: the
        program at exact size is one for the bucket too.
        """
        return all(axis.low == axis.high for axis in self.axes)

    def explained(self, view: View, refusal: Refused) -> Refused:
        """The refusal to pad a call, with a hint if shapes did not fit (`with_shape_hint`)."""
        sizes = {axis.name: axis.size for axis in self.axes}
        return with_shape_hint(view, named_axes(view, self.levels), sizes, refusal)

    @property
    def sizes(self) -> dict[str, int]:
        """Padded size of each axis."""
        return {axis.name: axis.high for axis in self.axes}

    def shapes(self, view: View) -> list[tuple[int, ...]]:
        """Padded shape of each array."""
        named = named_axes(view, self.levels)
        known = sizes_of(view, named)
        return [
            shape_at(leaf, axes, known, self.sizes)
            for leaf, axes in zip(view.leaves, named, strict=True)
        ]

    def inner(self, view: View) -> View:
        if any(map(is_count, view.leaves)):
            return view
        # The true size of each axis arrives as a scalar behind the arrays.
        shaped = zip(view.leaves, self.shapes(view), strict=True)
        leaves = [leaf.reshape(shape) for leaf, shape in shaped]
        counts = [count_leaf(axis.name) for axis in self.axes]
        return View((*leaves, *counts))

    def finish(
        self,
        results: Sequence[Array],
        outcome: Outcome,
    ) -> Sequence[Array]:
        """Record what is cut off the results.

        Raises:
            Refused: A result holds a size, or something else that differs from one size to the
                next, outside its arrays.
        """
        outcome.refuse_differences()
        outcome.cuts = cuts_of(len(results), outcome.levels, outcome.proof, list(self.sizes))
        return results


def _pad_axis(
    name: str,
    size: int | None,
    bucket: Bucket,
    divisor: int,
    top: int | None,
) -> PaddedAxis | str:
    if size is None:
        return f"no array has an axis {name!r}"
    bounds = bucket.range(size, divisor)
    if bounds is None:
        why = "sizes 0 and 1 do" if size < 2 else f"it is above the largest bucket of {bucket}"
        return f"{name}={size} runs as it is: {why}"
    low, high = bounds
    if top is None or not low <= top < high:
        return PaddedAxis(name, low, high, size)
    if size > top:
        return f"{name}={size} runs as it is: up to {top} it is one program"
    return PaddedAxis(name, low, top, size, high)
