"""Around a program with padded axes: find the bucket of a call, fill its arrays, cut the results.

Where arrays are filled and cut, on the host or on their device, is decided in `filling.py`. On the
host a call waits for its results if one of them has a padded axis.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._axes import Refused
from .._body.call_key import padded_key
from .._body.function import Function
from .._errors import JitneyWarning, sentence
from .._jax.mesh import is_within_trace
from .._jax.trees import extended, issubdtype, tree_flatten, tree_unflatten
from .._owners import users_level
from .._processes.agreement import refuse_padding
from .._signature.options import tolerance_of
from .._stages import Fill
from .._stages.stage import Skip
from .._view.cuts import Cut, shape_after
from .._view.layout import MAX_ENTRIES, described, jit_is_off, traced
from .._view.named_axes import beside, named_axes
from .._view.true_sizes import Counts, KnownSizes, NeedsNumbers, knowing
from .._view.view import View
from .filling import FILLING
from .outer_transforms import is_padded
from .wrappers import Run, runner

if TYPE_CHECKING:
    from .entry import Entry


_UNKNOWN: Any = object()


@dataclass(frozen=True)
class Padded:
    """How calls of one set of shapes are padded."""

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    counts: Counts
    key: Hashable  # of the program that runs them
    known: KnownSizes  # of its sizes, for a trace
    fills: tuple[bool, ...]  # which arrays are filled
    takes: tuple[bool, ...]  # behind the true size of which anything may stand
    stays: bool  # whether arrays lie where they were put, since nothing else places them
    cut: list[Any] = field(default_factory=list[Any])  # what `_cut` has worked out

    def arrays(self, arrays: Sequence[Any], *, whole: bool) -> list[Any]:
        """What the program gets; of a call that no outer transform traces (`whole`), what another
        padded program returned.
        """
        return [
            (
                FILLING.filled(array, shape, stays=self.stays, takes=whole and takes)
                if fills
                else array
            )
            for array, shape, fills, takes in zip(
                arrays, self.shapes, self.fills, self.takes, strict=True
            )
        ]

    def abstract(self, arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        out: list[jax.ShapeDtypeStruct] = []
        for array, shape in zip(arrays, self.shapes, strict=True):
            old, dtype, weak = described(array)
            out.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak and old == shape))
        return out


class SizeRefused(Refused):
    """A body does other operations at a size than its padded program does."""

    def __init__(self, fill: Fill, refusal: Refused):
        super().__init__(refusal.place, refusal.what)
        self.fill = fill


class PaddedCalls:
    """Runs the calls of an entry whose function pads."""

    def __init__(self, entry: Entry):
        self.entry = entry
        self.known: dict[Hashable, Padded | None] = {}
        self.refused: dict[Hashable, Refused] = {}
        self._runs: dict[Hashable, Run] = {}  # of each program

    def __call__(self, *arrays: Any) -> Any:
        if self.entry.sharded is not None and is_within_trace():
            return self.entry.within.run(*arrays)
        nested = traced(arrays) or (
            self.entry.request.nested and self.entry.core.options.shard is not None
        )
        if jit_is_off() or (nested and not is_padded(self.entry, arrays)):
            return runner(self.entry, arrays, self.entry.jitted)(*arrays)
        with self.entry.numbers():  # its dtypes are part of the keys
            return self._run(arrays, whole=not nested)

    def _run(self, arrays: Sequence[Any], *, whole: bool) -> Any:
        """One call; `whole` if no outer transform traces it."""
        key = (*self.entry.where(), *[described(array) for array in arrays])
        padded = self.known.get(key, _UNKNOWN)
        if padded is _UNKNOWN:
            padded = self._first(key, arrays)
        if isinstance(padded, SizeRefused):
            return self._refuse(padded.fill, padded, arrays, whole=whole)
        if padded is None:
            return self._program(key, arrays)(*arrays)
        given = (*padded.arrays(arrays, whole=whole), padded.counts)
        program = (*self.entry.where(), padded.counts.key, padded.key)
        # handled behind `except`: what is raised next has no part in it
        stopped: Refused | NeedsNumbers | None = None
        out: Any = None
        try:
            with knowing(padded.known):
                if self.entry.sharded is not None and program not in self._runs:
                    given = self.entry.sharded.arrived(given)
                out = self._program(program, given)(*given)
        except (Refused, NeedsNumbers) as reason:
            stopped = reason
        if isinstance(stopped, Refused):
            return self._refuse(padded.fill, stopped, arrays, whole=whole)
        if stopped is not None:
            self.entry.proofs[padded.key] = stopped.proof
            self.known = {}
            return self._run(arrays, whole=whole)
        self.entry.core.counters.padded(padded.fill.axes)
        return self._cut(padded, out, keeps=whole)

    def _first(self, key: Hashable, arrays: Sequence[Any]) -> Padded | SizeRefused | None:
        """How calls of these shapes are padded, worked out for the first of them."""
        if len(self.known) >= MAX_ENTRIES:
            self.known = {}
        try:
            padded = self.known[key] = self.bucket(arrays)
        except SizeRefused as refused:
            return refused
        return padded

    def pads(self, arrays: Sequence[Any]) -> bool:
        """Whether calls of these shapes, of which there was one, are padded."""
        return self._as_called(arrays) is not None

    def given(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """What the program of such calls takes: if there was one that was padded, arrays of its
        bucket and their true sizes.
        """
        padded = self._as_called(arrays)
        return arrays if padded is None else (*padded.abstract(arrays), padded.counts.abstract())

    def _as_called(self, arrays: Sequence[Any]) -> Padded | None:
        with self.entry.numbers():
            return self.known.get((*self.entry.where(), *map(described, arrays)))

    def bucket(self, arrays: Sequence[Any]) -> Padded | None:
        """How calls of these shapes are padded; None if they run at exact size.

        Raises:
            ContractError: The call does not fit the contract.
        """
        entry = self.entry
        if entry.sharded is not None:
            refuse_padding(entry.core.where, entry.sharded.where()[0])
        view = entry.planned(arrays, jit=False).view
        fill = Fill.plan(view, entry.on_mesh())
        if isinstance(fill, Skip) or fill.axes in self.refused:
            return None
        try:
            shapes = self._shapes(fill, view)
        except Refused as refusal:
            warn_refused(entry.core, refusal)
            return None
        if any(
            issubdtype(leaf.dtype, extended) and leaf.shape != s
            for leaf, s in zip(view.leaves, shapes, strict=True)
        ):
            warn_refused(
                entry.core, Refused("", "is an axis of PRNG keys, which the host cannot fill")
            )
            return None
        weak = tuple(
            leaf.weak_type and leaf.shape != shape
            for leaf, shape in zip(view.leaves, shapes, strict=True)
        )
        leaves = zip(view.leaves, shapes, strict=True)
        key = padded_key([(shape, leaf.dtype, leaf.weak_type) for leaf, shape in leaves])
        sizes, proof = {axis.name: axis.size for axis in fill.axes}, entry.proofs.get(key)
        try:
            numbers = [] if proof is None else proof.numbers_at(sizes)
        except Refused as refusal:
            raise SizeRefused(fill, refusal) from refusal
        counts = Counts(
            [np.asarray(size, np.int32) for size in sizes.values()],
            tuple(sizes),
            weak,
            numbers,
            sizes,
        )
        fills = tuple(leaf.shape != shape for leaf, shape in zip(view.leaves, shapes, strict=True))
        return Padded(
            fill,
            shapes,
            counts,
            key,
            KnownSizes(sizes),
            fills,
            self._takes(fill, len(shapes)),
            entry.sharded is None,
        )

    def _takes(self, fill: Fill, count: int) -> tuple[bool, ...]:
        """Behind the true size of which arrays anything may stand.

        It may where every padded axis is one of the program that Mask evaluates. Along a mapped
        axis the body runs on what stands there, where a loop may never end and a check may raise;
        chunks and choices by values look at it in ways of their own. What is donated is gone.
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
        """The shape that each array gets.

        Raises:
            Refused: A size cannot be worked out for another size of the axis.
        """
        shapes = tuple(map(tuple, fill.shapes(view)))
        unfilled = self.entry.layout.view(
            self.entry.core.contract, [leaf.abstract() for leaf in view.leaves], self.entry.statics
        )
        leaves = zip(view.leaves, unfilled.leaves, shapes, strict=True)
        # those of fields stay
        there = View(
            tuple(
                replace(leaf, shape=shape, hint=raw.hint or leaf.hint)
                for leaf, raw, shape in leaves
            )
        )
        for here, padded in zip(view.leaves, self.entry.written_out(there).leaves, strict=True):
            if any(size < was for size, was in zip(padded.shape, here.shape, strict=True)):
                raise Refused(
                    "",
                    f"has {here.path!r}, whose shape would fall from {here.shape} to"
                    f" {padded.shape}",
                )
            if here.hint != padded.hint:
                raise Refused(
                    "",
                    f"has {here.path!r}, whose size {here.hint and here.hint.text} is read off an"
                    " array that would be padded",
                )
        return shapes

    def ahead(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """What to compile for these arrays or abstract values: those of their bucket.

        Raises:
            Refused: At this size the body does other operations than its padded program does.
        """
        with self.entry.numbers():
            padded = self.bucket(arrays)
        if padded is None:
            return arrays
        return (*padded.abstract(arrays), padded.counts.abstract())

    def _program(self, key: Hashable, arrays: Sequence[Any]) -> Run:
        """How one program runs."""
        program = self._runs.get(key)
        if program is None:
            if len(self._runs) >= MAX_ENTRIES:
                self._runs = {}
            program = self._runs[key] = self.entry.runner(arrays)
        return program

    def _refuse(self, fill: Fill, refusal: Refused, arrays: Sequence[Any], *, whole: bool) -> Any:
        """From now on, calls of this bucket run at exact size."""
        self.refused[fill.axes] = refusal
        self.known = {
            key: None if place is not None and place.fill.axes == fill.axes else place
            for key, place in list(self.known.items())
        }
        view = self.entry.planned(arrays, jit=False).view
        sizes = {axis.name: axis.size for axis in fill.axes}
        warn_refused(self.entry.core, beside(view, named_axes(view, fill.levels), sizes, refusal))
        return self._run(arrays, whole=whole)

    def _cut(self, padded: Padded, out: Any, *, keeps: bool) -> Any:
        cuts = self.entry.cuts[padded.key]
        if not any(cuts):
            return out
        leaves, treedef = tree_flatten(out)
        if not padded.cut or padded.cut[0] is not cuts:  # a new trace has new ones
            sizes = {axis.name: axis.size for axis in padded.fill.axes}
            padded.cut[:] = (
                cuts,
                [_true_shape(x, cut, sizes) for x, cut in zip(leaves, cuts, strict=True)],
            )
        pairs = zip(leaves, padded.cut[1], strict=True)
        return tree_unflatten(
            treedef,
            [x if shape is None else FILLING.cut(x, shape, keeps=keeps) for x, shape in pairs],
        )


def _true_shape(result: Any, cut: Cut, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of what is left of a result; None if all of it is."""
    was = np.shape(result)  # an argument that JAX returns as it is may be a number of Python's
    shape = tuple(shape_after(was, cut, sizes))
    return None if shape == was else shape


def warn_refused(core: Function, refusal: Refused) -> None:
    """Say once that calls run at exact size, and why."""
    if core.counters.warn_once(f"pad {refusal.place}"):
        warnings.warn(explain(core, refusal), JitneyWarning, stacklevel=users_level())


def explain(core: Function, refusal: Refused) -> str:
    """Why an axis is not padded."""
    axes = " and ".join(repr(name) for name, _ in core.options.pad)
    return sentence(
        core.where,
        f"{axes} cannot be padded here: {refusal.place or 'it'} {refusal.what}.",
        "An axis is padded only if each operation along it is proven to give what it gives at exact"
        " size.",
        "change that line, or drop the axis from `pad`; each size runs exact until then, and"
        " compiles its own program.",
    )
