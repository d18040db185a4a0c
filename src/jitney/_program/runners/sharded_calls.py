"""Calls of a program over several devices: one compiled program for each mesh and set of shapes,
with the shardings of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from traceback import walk_tb
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding

from ..._body.body import Placement
from ..._errors import shortlist
from ..._jax.debug_names import body_of
from ..._jax.mesh import automatic, context, current
from ..._jax.trees import device_put, tree_map
from ..._jax.typed import AnyMesh, Jitted
from ..._jax.xla.memory import text
from ..._processes.compare_processes import compare_then_run, with_sharding
from ..._signature.options import OPTIONAL
from ..._stages.sharding import Place, no_mesh
from ..._view.layout import MAX_ENTRIES, jit_is_off
from ..compiled_calls import CompiledCalls
from ..tracing.traced_calls import Retry
from .wrappers import Run, jitless_runner, outermost_runner

Shardings = Sequence[NamedSharding | None]
"""Sharding of each argument; None for the true sizes of a padded call."""


class ShardedCalls:
    """Runs the calls of an entry whose function shards.

    While all calls have the same shapes in the same mesh, a call goes straight to their one
    program. JAX compares shapes faster than Python could, and traces that program if a call has
    other shapes after all, which raises `Retry`. From then on programs are looked up by shapes.
    """

    def __init__(self, entry: CompiledCalls):
        self.entry = entry
        self._jits: dict[tuple[AnyMesh, *tuple[Hashable, ...]], tuple[Jitted, Shardings]] = {}
        self._runs: dict[Hashable, Run] = {}
        # The mesh context of every call so far, if all had the same shapes.
        self._context: object = None
        self._only: Run = self._call_by_key
        self._shapes: tuple[object, ...] = ()

    def __call__(self, *arrays: object) -> object:
        # The questions of `PlacedCalls`; JAX gives the second answer with the mesh.
        if jit_is_off():
            return jitless_runner(self.entry, self.entry.jitted)(*arrays)
        try:
            around = jax.sharding.get_mesh()
        except ValueError:
            # `get_mesh` raises inside a trace.
            around = None
        if around is None:
            return self.entry.nested_entry.run(*arrays)

        # The one program, if no other has been needed. An error of the body is the user's; any
        # other, with other shapes, means that this call needs another program.
        if self._context is not around:
            return self._call_by_key(*arrays)
        try:
            return self._only(*arrays)
        except (Retry, ValueError) as error:
            failed = isinstance(error, ValueError) and _is_of_body(error, self.entry.jitted)
            if failed or shapes_of(arrays) == self._shapes:
                raise
        return self._call_by_key(*arrays)

    def _call_by_key(self, *arrays: object) -> object:
        key = (*self.mesh_key(), *shapes_of(arrays))
        run = self._runs.get(key)

        if run is None:
            if len(self._runs) >= MAX_ENTRIES:
                self._runs = {}
            given = arrays
            arrays = self.shard_donations(arrays)
            run = self.runner(arrays, given)
            first = not self._runs
            self._runs[key] = run
            if first:
                self._context, self._only, self._shapes = key[1], run, key[2:]
            else:
                self._context, self._only, self._shapes = None, self._call_by_key, ()
        return run(*arrays)

    def shard_donations(
        self,
        arrays: Sequence[object],
        *,
        abstract: bool = False,
    ) -> tuple[object, ...]:
        """Return the arrays of a first call, with donated arrays already sharded as the results
        will be.

        Donated arrays come back as results in the next call, and JAX would trace once more for
        arrays that are on a mesh where those of the first call were not. With `abstract`, arrays
        hold no numbers.

        Raises:
            MeshError: There is no mesh, or an axis does not divide.
        """
        given = self.entry.request.donated
        shardings = self.jit(arrays)[1] if given else ()
        if not shardings:
            return tuple(arrays)
        place = _abstract if abstract else _reshard
        return tuple(place(x, shardings[i]) if i in given else x for i, x in enumerate(arrays))

    def has_mesh(self) -> bool:
        """Return whether a call of now runs on a mesh."""
        return current(self.entry.core.options.mesh) is not None

    def mesh_key(self) -> tuple[Any, AnyMesh]:
        """Return the mesh of a call, and the mesh of the context around it."""
        return current(self.entry.core.options.mesh), context()

    def jit(self, arrays: Sequence[object]) -> tuple[Jitted, Shardings]:
        """Return JAX's function for these arrays or abstract values, and their shardings; no
        shardings without a mesh.

        Raises:
            MeshError: There is no mesh, or an axis does not divide.
        """
        options = self.entry.core.options
        mesh = current(options.mesh)
        if mesh is None and options.mesh == OPTIONAL:
            return self.entry.jitted, ()
        if mesh is None:
            raise no_mesh(self.entry.core.where)

        key = (mesh, *shapes_of(arrays))
        jitted = self._jits.get(key)
        if jitted is None:
            if len(self._jits) >= MAX_ENTRIES:
                self._jits = {}
            jitted = self._jits[key] = self.entry.jit_on_mesh(mesh, arrays)
        return jitted

    def placement(self, jitted: object) -> Placement | None:
        """Return the mesh and the shardings of a function of JAX; None if it has no mesh."""
        for (mesh, *_), (known, shardings) in [*self._jits.items()]:
            if known is jitted:
                return mesh, shardings
        return None

    def scope(self) -> AbstractContextManager[object]:
        """Return the context in which the program is traced: the mesh of the program, if the caller
        is in another.
        """
        mesh, around = self.mesh_key()
        if mesh is None or around.empty or around == automatic(mesh):
            return nullcontext()
        return jax.set_mesh(automatic(mesh))

    def runner(
        self,
        arrays: Sequence[object],
        given: Sequence[object] | None = None,
    ) -> Run:
        """Return the function that runs outermost calls of these shapes; `given` are the arguments
        before `shard_donations`.

        Raises:
            MeshError: There is no mesh, or an axis does not divide.
        """
        mesh, around = self.mesh_key()
        jitted, shardings = self.jit(arrays)
        if mesh is None:
            return outermost_runner(self.entry, arrays, jitted)

        # From the inside out: processes agree on the program, arrays are moved to its devices,
        # explicit axes are relabelled, and the mesh context is entered.
        explicit = mesh is not automatic(mesh)
        inside = _automatic(arrays, shardings) if explicit else arrays
        with self.scope():
            run = compare_then_run(
                outermost_runner(self.entry, inside, jitted),
                self.entry,
                mesh,
                jitted,
                inside,
                given or arrays,
                shardings,
            )
            run = _moving(run, jitted, shardings)
        if explicit:
            run = _explicit(run, mesh, shardings)
        return run if around.empty or around == automatic(mesh) else _inside(run, self.scope)


def shapes_of(arrays: Sequence[object]) -> tuple[Hashable, ...]:
    """Return the shape of each array; `()` for the true sizes of a padded call, which are
    numbers.
    """
    return tuple([getattr(array, "shape", ()) for array in arrays])


def _reshard(array: object, to: NamedSharding | None) -> object:
    return with_sharding(array, to) if isinstance(array, jax.Array) else array


def _abstract(array: object, to: NamedSharding | None) -> object:
    if not isinstance(array, (jax.Array, jax.ShapeDtypeStruct)):
        return array
    weak = bool(array.weak_type)
    return jax.ShapeDtypeStruct(
        array.shape,
        array.dtype,
        sharding=to,
        weak_type=weak,
    )


def _moving(
    run: Run,
    jitted: object,
    shardings: Shardings,
) -> Run:
    """Move arrays that were put elsewhere on purpose, after JAX has refused them, and only then."""

    def moving(*arrays: object) -> object:
        try:
            return run(*arrays)
        except ValueError as error:
            # A refusal comes before anything runs, so nothing has been donated yet.
            refused = any(refusal in str(error) for refusal in _REFUSALS)
            if not refused or _is_of_body(error, jitted):
                raise
            moved: list[object] = []
            for x, to in zip(arrays, shardings, strict=True):
                elsewhere = to is not None and _lies_elsewhere(x, to)
                moved.append(with_sharding(x, to) if elsewhere else x)
            if all(new is old for new, old in zip(moved, arrays, strict=True)):
                raise
        return run(*moved)

    return moving


# Messages of jax 0.10.2 to 0.12.0.1 about an array that is sharded otherwise than the program takes
# it, raised before anything runs. JAX has no type for them.
_REFUSALS = (
    "does not match the sharding on the respective arg",
    "Received incompatible devices for jitted computation",
)


def _is_of_body(error: Exception, jitted: object) -> bool:
    """Return whether an error was raised while the function was traced, even with a message of
    JAX.
    """
    body = body_of(jitted).__code__
    return any(frame.f_code is body for frame, _ in walk_tb(error.__traceback__))


def _lies_elsewhere(array: object, to: NamedSharding) -> bool:
    return (
        isinstance(array, jax.Array)
        and array.committed
        and not array.sharding.is_equivalent_to(to, array.ndim)
    )


def _explicit(
    run: Run,
    mesh: jax.sharding.Mesh,
    shardings: Shardings,
) -> Run:
    """Return a runner for arrays with explicit axes, of a program with automatic ones: the same
    buffers under other labels.
    """

    def relabelled(x: object) -> object:
        if not isinstance(x, jax.Array) or not isinstance(x.sharding, NamedSharding):
            return x
        return device_put(x, NamedSharding(mesh, x.sharding.spec))

    def around(*arrays: object) -> object:
        return tree_map(relabelled, run(*_automatic(arrays, shardings)))

    return around


def _automatic(arrays: Sequence[object], shardings: Shardings) -> list[object]:
    pairs = zip(arrays, shardings, strict=True)
    return [device_put(x, to) if _is_explicit(x) else x for x, to in pairs]


def _is_explicit(array: object) -> bool:
    mesh = getattr(getattr(array, "sharding", None), "mesh", None)
    return mesh is not None and AxisType.Explicit in mesh.axis_types


def _inside(run: Run, scope: Callable[[], AbstractContextManager[object]]) -> Run:
    def inside(*arrays: object) -> object:
        with scope():
            return run(*arrays)

    return inside


def transfers(
    place: Place | None,
    arrays: Sequence[object],
    paths: Sequence[str],
) -> list[str]:
    """Return the cost of placing these arrays, in words; abstract ones cost nothing."""
    if place is None:
        return []
    host = [
        (array.nbytes, path)
        for array, path in zip(arrays, paths, strict=True)
        if isinstance(array, np.ndarray)
    ]
    moved = [
        (array.nbytes, path)
        for array, path, to in zip(arrays, paths, place.shardings, strict=False)
        if isinstance(array, jax.Array) and not array.sharding.is_equivalent_to(to, array.ndim)
    ]
    ways = {
        "from the host straight to the devices that hold it": host,
        "from other devices": moved,
    }
    costs: list[str] = []
    for how, transferred in ways.items():
        if transferred:
            size = text(sum(size for size, _ in transferred))
            costs.append(f"{size} {how}: {shortlist([path for _, path in transferred])}")
    return costs
