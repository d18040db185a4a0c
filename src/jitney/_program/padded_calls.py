"""Around a program with padded axes: find the bucket of a call, fill its arrays, cut the results.

All of it happens on the host, with NumPy, because anything else would be compiled for each size. On a CPU a device array is host memory:
it is read in place, and results are views of what the program returned. Elsewhere the arrays that have a padded axis cross to the host
and back, and the plan says so. A call waits for its results if one of them has a padded axis.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._axes import Refused
from .._body.call_key import padded_key
from .._body.function import Function
from .._errors import JitneyWarning, sentence
from .._jax.mesh import explicit_around, is_within_trace, reshaped
from .._jax.trees import Tracer, device_put, extended, is_a, issubdtype, tree_flatten, tree_unflatten
from .._owners import users_level
from .._processes.agreement import refuse_padding
from .._stages import Fill
from .._stages.place import divided
from .._stages.stage import Skip
from .._view.cuts import shape_after
from .._view.layout import MAX_ENTRIES, described, jit_is_off, traced
from .._view.named_axes import beside, named_axes
from .._view.true_sizes import Counts, KnownSizes, NeedsNumbers, knowing
from .._view.view import View
from .outer_transforms import is_padded
from .wrappers import Run, runner

if TYPE_CHECKING:
    from .entry import Entry

_jax: Any = jax
_lax: Any = jax.lax


@dataclass(frozen=True)
class Padded:
    """How calls of one set of shapes are padded."""

    fill: Fill
    shapes: tuple[tuple[int, ...], ...]
    counts: Counts
    key: Hashable  # of the program that runs them
    known: KnownSizes  # of its sizes, for a trace

    def arrays(self, arrays: Sequence[Any]) -> list[Any]:
        return [array if described(array)[0] == shape else filled(array, shape) for array, shape in zip(arrays, self.shapes, strict=True)]

    def abstract(self, arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        out: list[jax.ShapeDtypeStruct] = []
        for array, shape in zip(arrays, self.shapes, strict=True):
            old, dtype, weak = described(array)
            out.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak and old == shape))
        return out


def filled(array: Any, shape: Sequence[int]) -> Any:
    """An array with its last element along each axis repeated up to a shape. Zeros would give NaNs to whoever divides by them."""
    if is_a(array, Tracer):
        return _filled_in(array, tuple(shape))
    host = np.asarray(array)
    out = np.empty(shape, host.dtype)
    out[tuple(slice(0, size) for size in host.shape)] = host
    for axis, size in enumerate(host.shape):
        if size < shape[axis]:
            behind, last = [slice(None)] * len(shape), [slice(None)] * len(shape)
            behind[axis], last[axis] = slice(size, None), slice(size - 1, size)
            out[tuple(behind)] = out[tuple(last)]
    return out


def cut(result: jax.Array, shape: Sequence[int]) -> jax.Array:
    """The leading part of an array, without a program for each size."""
    if tuple(result.shape) == tuple(shape):
        return result
    if is_a(result, Tracer):
        return _cut_in(result, tuple(shape)) if explicit_around([result]) else _leading(result, shape)
    part = np.asarray(result)[tuple(slice(0, size) for size in shape)]
    if len(result.devices()) > 1:
        return device_put(part, divided(result.sharding, shape))
    return device_put(part, next(iter(result.devices()))) if result.committed else device_put(part)


@partial(_jax.jit, static_argnums=1)
def _filled_in(array: Any, shape: tuple[int, ...]) -> Any:
    """`filled`, for arrays that an outer transform traces; nothing that is filled in depends on them."""
    return reshaped(array, shape, _repeated)


def _repeated(array: Any, shape: tuple[int, ...]) -> Any:
    for axis, size in enumerate(array.shape):
        if size < shape[axis]:
            last = _lax.stop_gradient(_lax.slice_in_dim(array, size - 1, size, axis=axis))
            behind = _lax.broadcast_in_dim(last, [*last.shape[:axis], shape[axis] - size, *last.shape[axis + 1 :]], range(last.ndim))
            array = _lax.concatenate([array, behind], axis)
    return array


@partial(_jax.jit, static_argnums=1)
def _cut_in(array: Any, shape: tuple[int, ...]) -> Any:
    """`cut`, for arrays of a mesh with explicit axes."""
    return reshaped(array, shape, _leading)


def _leading(array: Any, shape: Sequence[int]) -> Any:
    return _lax.slice(array, [0] * len(shape), shape)


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
        nested = traced(arrays) or (self.entry.request.nested and self.entry.core.options.shard is not None)
        if jit_is_off() or (nested and not is_padded(self.entry, arrays)):
            return runner(self.entry, arrays, self.entry.jitted)(*arrays)
        with self.entry.numbers():  # its dtypes are part of the keys
            return self._run(arrays)

    def _run(self, arrays: Sequence[Any]) -> Any:
        key = (*self.entry.where(), *[described(array) for array in arrays])
        try:
            padded = self.known[key]
        except KeyError:
            if len(self.known) >= MAX_ENTRIES:
                self.known = {}
            try:
                padded = self.known[key] = self.bucket(arrays)
            except SizeRefused as refused:
                return self._refuse(refused.fill, refused, arrays)
        if padded is None:
            return self._program(key, arrays)(*arrays)
        given = (*padded.arrays(arrays), padded.counts)
        program = (*self.entry.where(), padded.counts.key, padded.key)
        try:
            with knowing(padded.known):
                if self.entry.sharded is not None and program not in self._runs:
                    given = self.entry.sharded.arrived(given)
                out = self._program(program, given)(*given)
        except Refused as refusal:
            return self._refuse(padded.fill, refusal, arrays)
        except NeedsNumbers as needs:
            self.entry.proofs[padded.key] = needs.proof
            self.known = {}
            return self._run(arrays)
        self.entry.core.counters.padded(padded.fill.axes)
        return self._cut(padded, out)

    def pads(self, arrays: Sequence[Any]) -> bool:
        """Whether calls of these shapes, of which there was one, are padded."""
        with self.entry.numbers():
            return self.known.get((*self.entry.where(), *map(described, arrays))) is not None

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
        if any(issubdtype(leaf.dtype, extended) and leaf.shape != s for leaf, s in zip(view.leaves, shapes, strict=True)):
            warn_refused(entry.core, Refused("", "is an axis of PRNG keys, which the host cannot fill"))
            return None
        weak = tuple(leaf.weak_type and leaf.shape != shape for leaf, shape in zip(view.leaves, shapes, strict=True))
        leaves = zip(view.leaves, shapes, strict=True)
        key = padded_key([(shape, leaf.dtype, leaf.weak_type) for leaf, shape in leaves])
        sizes, proof = {axis.name: axis.size for axis in fill.axes}, entry.proofs.get(key)
        try:
            numbers = [] if proof is None else proof.numbers_at(sizes)
        except Refused as refusal:
            raise SizeRefused(fill, refusal) from refusal
        counts = Counts([np.asarray(size, np.int32) for size in sizes.values()], tuple(sizes), weak, numbers, sizes)
        return Padded(fill, shapes, counts, key, KnownSizes(sizes))

    def _shapes(self, fill: Fill, view: View) -> tuple[tuple[int, ...], ...]:
        """The shape that each array gets.

        Raises:
            Refused: A size cannot be worked out for another size of the axis.
        """
        shapes = tuple(map(tuple, fill.shapes(view)))
        unfilled = self.entry.layout.view(self.entry.core.contract, [leaf.abstract() for leaf in view.leaves], self.entry.statics)
        leaves = zip(view.leaves, unfilled.leaves, shapes, strict=True)
        there = View(tuple(replace(leaf, shape=shape, hint=raw.hint or leaf.hint) for leaf, raw, shape in leaves))  # those of fields stay
        for here, padded in zip(view.leaves, self.entry.written_out(there).leaves, strict=True):
            if any(size < was for size, was in zip(padded.shape, here.shape, strict=True)):
                raise Refused("", f"has {here.path!r}, whose shape would fall from {here.shape} to {padded.shape}")
            if here.hint != padded.hint:
                raise Refused("", f"has {here.path!r}, whose size {here.hint and here.hint.text} is read off an array that would be padded")
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

    def _refuse(self, fill: Fill, refusal: Refused, arrays: Sequence[Any]) -> Any:
        """From now on, calls of this bucket run at exact size."""
        self.refused[fill.axes] = refusal
        self.known = {key: None if place is not None and place.fill.axes == fill.axes else place for key, place in list(self.known.items())}
        view = self.entry.planned(arrays, jit=False).view
        sizes = {axis.name: axis.size for axis in fill.axes}
        warn_refused(self.entry.core, beside(view, named_axes(view, fill.levels), sizes, refusal))
        return self._run(arrays)

    def _cut(self, padded: Padded, out: Any) -> Any:
        cuts = self.entry.cuts[padded.key]
        if not any(cuts):
            return out
        leaves, treedef = tree_flatten(out)
        sizes = {axis.name: axis.size for axis in padded.fill.axes}
        left = iter(cuts)
        kept = [cut(x, shape_after(x.shape, next(left), sizes)) if isinstance(x, jax.Array) else x for x in leaves]
        return tree_unflatten(treedef, kept)


def warn_refused(core: Function, refusal: Refused) -> None:
    """Say once that calls run at exact size, and why."""
    if core.counters.warn_once(f"pad {refusal.place}"):
        warnings.warn(explain(core, refusal), JitneyWarning, stacklevel=users_level())


def explain(core: Function, refusal: Refused) -> str:
    """Why an axis is not padded."""
    axes = " and ".join(repr(name) for name, _ in core.options.pad)
    return sentence(
        core.where, f"{axes} cannot be padded here: {refusal.place or 'it'} {refusal.what}.",
        "An axis is padded only if each operation along it is proven to give what it gives at exact size.",
        "change that line, or drop the axis from `pad`; each size runs exact until then, and compiles its own program.",
    )  # fmt: skip
