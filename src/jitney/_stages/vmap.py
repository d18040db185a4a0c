"""Stage that maps the body over axes that its signature does not name.

    vmap="batch", x: Float[Array, "n"] called with shape (8, 5), w: Float[Array, "n"] with (5,)
        ->  jax.vmap(body, in_axes=(0, None))

An array is mapped if it has one dimension more than its annotation (`positions_by_rank`), or as the
option says (`dict_form.py`). `OneByOne` and `MappedChunks` run an axis as a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import jax

from .. import _axes
from .._errors import ContractError, Where, plural, shortlist
from .._jax.typed import Array
from .._signature.options import VmapAxis
from .._view.named_axes import is_count
from .._view.result import Outcome
from .._view.view import Leaf, View
from .chunking.mapped_chunks import MappedChunks
from .dict_form import Dims as Dims
from .dict_form import clause_on, dict_form, positions_by_path, possible_stacks, warning_of
from .stage import Fn, Request, Skip, Stage

Levels = tuple[tuple[str, Dims], ...]
"""Mapped axes, outermost first, each with its positions in the arrays at its level."""


@dataclass(frozen=True)
class Vmap(Stage):
    """Levels of `jax.vmap`, one per axis, outermost first. Each has a position for every array,
    or None to broadcast it.
    """

    axes: tuple[str, ...]
    levels: tuple[Dims, ...]
    why: str = field(compare=False)
    # Stage that runs one of the axes in a loop.
    loop: OneByOne | MappedChunks | None = None
    # True if threads share the outermost axis.
    is_divided: bool = False
    # Text of the warning that an argument, which is shared, looks like a stack.
    guess: str = field(default="", compare=False)
    name: str = field(default="vmap", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        axes: list[str] = []
        levels: list[Dims] = []
        reasons: list[str] = []
        guess = ""
        for axis in request.options.vmap:
            if axis.dims is None:
                dims = positions_by_rank(view, axis, request.where)
            else:
                dims = positions_by_path(view, axis, request)
            stacks = [] if axis.dims is not None else possible_stacks(view, dims)
            unclear = clause_on(stacks, view, axis, dims)
            if all(dim is None for dim in dims):
                reasons.append(
                    f"no argument has an axis {axis.name!r} before those of its annotation{unclear}"
                )
                continue
            reasons.append(_reason(view, axis, dims, request) + unclear)
            guess = warning_of(stacks, view, axis, dims, request.where)
            axes.append(axis.name)
            levels.append(dims)
            # The next axis sees the arrays without this one.
            view = _drop(view, dims)

        if not request.options.vmap:
            return Skip("vmap", "no `vmap` axis given")
        why = "; ".join(reasons)
        if not levels:
            return Skip("vmap", why)
        is_jitted = request.whole is None and not request.nested
        return cls(
            tuple(axes),
            tuple(levels),
            why,
            request.outer_stage(OneByOne) or request.outer_stage(MappedChunks),
            is_jitted and request.options.workers is not None,
            guess,
        )

    @property
    def scope(self) -> str:
        return f"vmap {' '.join(self.axes)}"

    def inner(self, view: View) -> View:
        for dims in self.levels:
            view = _drop(view, dims)
        return view

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        outcome.levels = self.axes
        if self.is_divided and not isinstance(self.loop, OneByOne):
            fn = _noting_rules(fn, outcome)
        for axis, dims in zip(reversed(self.axes), reversed(self.levels), strict=True):
            if self.loop is not None and self.loop.axis == axis:
                fn = self.loop.loop_over(fn, dims, outcome)
            else:
                fn = jax.vmap(fn, in_axes=dims)
        return fn


def _noting_rules(fn: Fn, outcome: Outcome) -> Fn:
    """Trace the function of one element before it is mapped, and note where it has a rule of its
    own for `jax.vmap`: nothing is seen of it afterwards.
    """

    def noted(*arrays: jax.Array) -> Sequence[Array]:
        program = _axes.trace_element(fn, arrays, [None] * len(arrays))
        outcome.joint_rules += _axes.joint_rules(program)
        return _axes.evaluate_element(program, arrays)

    return noted


@dataclass(frozen=True)
class OneByOne(Stage):
    """Mapped axis that runs as a loop: `chunk={axis: 1}`.

    Chunk takes the decision, and Vmap carries it out. The body of the loop is the function that
    Vmap would have mapped, so a branch runs one of its sides only, and a loop ends when its own
    condition does.
    """

    axis: str
    is_differentiated: bool
    why: str = field(compare=False)
    name: str = field(default="chunk", compare=False)

    @classmethod
    def of(
        cls,
        view: View,
        request: Request,
    ) -> Self | None:
        """Decide; None if the axis is not mapped, is shared by devices, or is cut into longer
        chunks.

        Nothing has to be proven or known beforehand, so it acts under outer transforms too.
        """
        options = request.options
        if len(options.chunk) != 1 or options.accumulate:
            return None
        ((axis, chunk),) = options.chunk
        if chunk != 1:
            return None

        vmap = Vmap.plan(view, request)
        if isinstance(vmap, Skip) or axis not in vmap.axes or request.divisor(axis) > 1:
            return None
        # The size of the axis, in the arrays without the axes mapped outside of it.
        at = vmap.axes.index(axis)
        for dims in vmap.levels[:at]:
            view = _drop(view, dims)
        positions = zip(view.leaves, vmap.levels[at], strict=True)
        size = next(leaf.shape[dim] for leaf, dim in positions if dim is not None)
        if _axes.is_symbolic(size) or size == 0:
            return None
        # Under an outer trace of JAX the loop may be differentiated.
        why = (
            f"{axis}={size} one at a time, in a loop: a branch of the body is one branch, and a"
            " loop ends when it ends"
        )
        return cls(axis, request.nested, why)

    def loop_over(
        self,
        fn: Fn,
        dims: Dims,
        outcome: Outcome,
    ) -> Fn:
        """Run the function over the axis in a loop."""
        return _axes.map_sequentially(fn, dims, is_differentiated=self.is_differentiated)


def _drop(view: View, dims: Dims) -> View:
    pairs = zip(view.leaves, dims, strict=True)
    return View(tuple(_drop_dim(leaf, dim) for leaf, dim in pairs))


def _drop_dim(leaf: Leaf, dim: int | None) -> Leaf:
    if dim is None:
        return leaf
    before, after = leaf.shape[:dim], leaf.shape[dim + 1 :]
    return leaf.reshape(before + after)


def positions_by_rank(
    view: View,
    axis: VmapAxis,
    where: Where,
) -> Dims:
    """Apply the rank rule: an array with one dimension more than its annotation is mapped over
    the leading one, an array as annotated is broadcast.

    Raises:
        ContractError: Some arrays of an argument have the axis, and others not.
    """
    dims = tuple(
        0 if leaf.declared_rank is not None and len(leaf.shape) == leaf.declared_rank + 1 else None
        for leaf in view.leaves
    )
    # Arrays of one argument, such as the fields of a module, are mapped all or none.
    for argument in dict.fromkeys(leaf.argument for leaf in view.leaves):
        declared = [i for i in view.of(argument) if view.leaves[i].declared_rank is not None]
        mapped = [i for i in declared if dims[i] is not None]
        if mapped and len(mapped) < len(declared):
            one = view.leaves[mapped[0]]
            other = next(view.leaves[i] for i in declared if dims[i] is None)
            raise ContractError(
                where,
                f"axis {axis.name!r} is in {one.path} {one.shape} but not in {other.path}"
                f" {other.shape}.",
                "Of one argument all arrays are mapped or none.",
                f'stack all of them, or say which: vmap={{"{axis.name}": {{...}}}}.',
                code="J211",
            )
        if mapped:
            _refuse_unnamed(view, argument, view.leaves[mapped[0]], axis, dims, where)
    return dims


def _refuse_unnamed(
    view: View,
    argument: str,
    mapped: Leaf,
    axis: VmapAxis,
    dims: Dims,
    where: Where,
) -> None:
    """Check that no array without a declared rank could have the axis, next to a mapped array of
    the same argument.

    Raises:
        ContractError: A field of a module without a rank is as long as the axis.
    """
    for leaf in (view.leaves[i] for i in view.of(argument)):
        if leaf.declared_rank is None and leaf.shape[:1] == mapped.shape[:1]:
            raise ContractError(
                where,
                f"axis {axis.name!r} is in {mapped.path} {mapped.shape}, and may be in {leaf.path}"
                f" {leaf.shape}.",
                "An array is mapped if it has one axis more than its annotation, and this one has"
                " none.",
                "annotate the field, `jitney.register_axes` it, or say it:"
                f" {dict_form(view, axis, dims, [argument])}.",
                code="J211",
            )


def _reason(
    view: View,
    axis: VmapAxis,
    dims: Dims,
    request: Request,
) -> str:
    """Return the line of the plan on a mapped axis.

    Raises:
        ContractError: The arrays along it have two sizes.
    """
    positions = list(zip(view.leaves, dims, strict=True))
    mapped = [(leaf, leaf.shape[dim]) for leaf, dim in positions if dim is not None]
    first, size = mapped[0]
    for leaf, other in mapped:
        if other != size:
            raise ContractError(
                request.where,
                f"axis {axis.name!r} has two sizes, {size} from {first.path!r} and {other} from"
                f" {leaf.path!r}.",
                f"Every argument mapped over {axis.name!r} must agree on it.",
                "pass equal sizes.",
                code="J210",
            )

    # Scalars that hold true sizes of padded axes are jitney's own, so they are not listed.
    shared = sum(dim is None and not is_count(leaf) for leaf, dim in positions)
    paths = shortlist([leaf.path for leaf, _ in mapped])
    return f"{axis.name}={size} over {paths}; {plural(shared, 'array')} broadcast"


def levels_of(view: View, request: Request) -> Levels:
    """Mapped axes, outermost first, with their positions in the arrays as they are at each
    level.
    """
    vmap = Vmap.plan(view, request)
    if isinstance(vmap, Skip):
        return ()
    return tuple(zip(vmap.axes, vmap.levels, strict=True))
