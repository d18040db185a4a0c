"""Stage that decides the shardings of the arguments: each named axis over axes of the mesh.

    shard={"batch": "data"}, x: Float[Array, "batch n"], data=4   ->   x: PartitionSpec("data")

Place stands outside Jit, which takes the shardings: NumPy arrays then go straight to their devices,
and arrays that have the right sharding are not moved (`_program/runners/sharded_calls.py`).
`_program/lowering.py` hands the shardings to JAX, in `jit_on_mesh`.
Shard and Chunk act on its decision.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .._errors import MeshError, OptionError, Where, name_fix, plural, shortlist
from .._jax.mesh import automatic, is_manual, mesh_text
from .._jax.typed import AnyMesh
from .._jax.xla.memory import text
from .._signature.options import FSDP, OPTIONAL, Sharding
from .._view.named_axes import NamedAxis, named_axes
from .._view.view import Leaf, View
from .stage import Request, Skip, Stage
from .vmap import levels_of

Spec = tuple[tuple[str, ...], ...]
"""Mesh axes that each dimension of an array is sharded over."""


@dataclass(frozen=True)
class Place(Stage):
    """Shardings of the arguments, one for each array."""

    # An `AnyMesh`; those that ask it for its devices know that it has some.
    mesh: Any
    specs: tuple[Spec, ...]
    why: str = field(compare=False)
    name: str = field(default="place", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        rules = request.options.shard
        if rules is None:
            return Skip("place", "no `shard` given")
        if request.single is not None:
            return Skip("place", request.single)
        if request.mesh is None:
            if request.nested:
                return Skip("place", "under an outer trace without a mesh")
            if request.options.mesh != OPTIONAL:
                raise no_mesh(request.where)
            # Without a mesh the options are checked all the same.
            check_axes(request, rules, named_axes(view, levels_of(view, request)))
            return Skip("place", "no mesh is around, and mesh='optional' has it run without one")

        mesh = automatic(request.mesh)
        named = named_axes(view, levels_of(view, request))
        check_names(request, rules, mesh, named)
        # Named axes that are not padded yet: `pad` is a fix for those that the devices do not
        # divide.
        mapped = {axis.name for axis in request.options.vmap}
        padded = {name for name, _ in request.options.pad}
        can_pad = {*request.axes, *mapped} - padded

        specs = tuple(
            spec_of(request.where, leaf, axes, rules, mesh, can_pad)
            for leaf, axes in zip(view.leaves, named, strict=True)
        )
        listing = _listing(view, specs, rules, mesh)
        return cls(mesh, specs, f"mesh {mesh_text(mesh)}: {listing}")

    @property
    def shardings(self) -> tuple[jax.sharding.NamedSharding, ...]:
        """`NamedSharding` of each array."""
        return tuple(sharding(self.mesh, spec) for spec in self.specs)


def sharding(mesh: AnyMesh, spec: Spec) -> jax.sharding.NamedSharding:
    """`NamedSharding` of one array."""
    parts: list[tuple[str, ...] | str | None] = []
    for along in spec:
        if len(along) == 1:
            parts.append(along[0])
        else:
            parts.append(along or None)
    while parts and parts[-1] is None:
        parts.pop()
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*parts))


def adapt_sharding(like: object, shape: Sequence[int]) -> Any:
    """Adapt a sharding to an array of this shape: dimensions that the devices do not divide are
    replicated.
    """
    if not isinstance(like, jax.sharding.NamedSharding):
        return like
    sizes = like.mesh.shape
    parts: list[object] = []
    for size, along in zip(shape, tuple(like.spec), strict=False):
        names = (along,) if isinstance(along, str) else along or ()
        devices = math.prod(sizes[name] for name in names)
        parts.append(along if size % devices == 0 else None)
    return jax.sharding.NamedSharding(like.mesh, jax.sharding.PartitionSpec(*parts))


def no_mesh(where: Where) -> MeshError:
    """Error of a call with `shard` but without a mesh."""
    return MeshError(
        where,
        "`shard` has no mesh.",
        "Axes are sharded over the axes of a mesh of devices.",
        "call it inside `with jitney.mesh(data=-1):`, or decorate with mesh=jitney.mesh(data=-1); "
        'with mesh="optional" it runs without one too.',
        code="J250",
    )


def check_names(
    request: Request,
    rules: Sharding,
    mesh: AnyMesh,
    named: Sequence[Sequence[NamedAxis]],
) -> None:
    """Check that the named axes of the mesh and of the arrays exist.

    Raises:
        MeshError: The mesh has no such axis.
        OptionError: Neither the signature, nor `vmap`, nor any field has such an axis.
    """
    where = request.where
    for name, along in rules.axes:
        for axis in along:
            if axis not in mesh.shape:
                raise MeshError(
                    where,
                    f"{name!r} is to be sharded over {axis!r}, which the mesh does not have.",
                    f"The axes of the mesh are {mesh_text(mesh)}.",
                    name_fix(axis, mesh.shape, "correct the name, or make a mesh that has it."),
                    code="J251",
                )
    check_axes(request, rules, named)


def check_axes(
    request: Request,
    rules: Sharding,
    named: Sequence[Sequence[NamedAxis]],
) -> None:
    """Check that the axes in `shard` exist.

    Raises:
        OptionError: Neither the signature, nor `vmap`, nor any field has such an axis.
    """
    of_arrays = {axis.size for axes in named for axis in axes}
    mapped = {axis.name for axis in request.options.vmap}
    known = sorted(of_arrays | mapped | set(request.axes))
    for name, _ in rules.axes:
        if name not in known:
            raise OptionError(
                request.where,
                f"`shard` names {name!r}, which no array of this call has.",
                f"Axes of the signature, of `vmap` and of fields are {', '.join(known) or 'none'}.",
                name_fix(
                    name,
                    known,
                    "name it in an annotation, or with jitney.register_axes for a class that is not"
                    " yours.",
                ),
                code="J202",
            )


def spec_of(
    where: Where,
    leaf: Leaf,
    named: Sequence[NamedAxis],
    rules: Sharding,
    mesh: AnyMesh,
    can_pad: Collection[str] = (),
) -> Spec:
    """Partition spec of one array. A mesh axis shards one dimension: the first that names it.

    Args:
        where: The function.
        leaf: The array.
        named: Named axes of the array.
        rules: Mesh axes for each named axis.
        mesh: The devices.
        can_pad: Axes that `pad` could name, and does not.

    Raises:
        MeshError: The devices do not divide an axis.
    """
    wanted: Mapping[str, tuple[str, ...]] = dict(rules.axes)
    spec: list[tuple[str, ...]] = [()] * len(leaf.shape)
    taken: set[str] = set()
    for axis in sorted(named, key=lambda named_axis: named_axis.axis):
        along = wanted.get(axis.size, ())
        # A mesh axis may appear only once in a partition spec.
        if not along or taken & set(along):
            continue
        parts = math.prod(mesh.shape[name] for name in along)
        if leaf.shape[axis.axis] % parts:
            raise _does_not_divide(where, leaf, axis, along, parts, can_pad)
        spec[axis.axis] = along
        taken |= set(along)

    # Fully sharded data parallelism is for parameters only, on a mesh axis that is still free.
    if rules.fsdp and leaf.in_module:
        _shard_largest(spec, leaf, mesh, taken)
    return tuple(spec)


def _shard_largest(
    spec: list[tuple[str, ...]],
    leaf: Leaf,
    mesh: AnyMesh,
    taken: set[str],
) -> None:
    """Shard the largest dimension of a parameter that divides, if its mesh axis is still free."""
    free = [name for name in mesh.shape if not is_manual(mesh, name)]
    along = FSDP if FSDP in free else free[0]
    if along in taken:
        return
    parts = mesh.shape[along]
    fits = [i for i, size in enumerate(leaf.shape) if not spec[i] and size and size % parts == 0]
    if fits and parts > 1:
        largest = max(fits, key=lambda i: leaf.shape[i])
        spec[largest] = (along,)


def _does_not_divide(
    where: Where,
    leaf: Leaf,
    axis: NamedAxis,
    along: Sequence[str],
    parts: int,
    can_pad: Collection[str],
) -> MeshError:
    size = leaf.shape[axis.axis]
    up = -(-size // parts) * parts
    text = " and ".join(map(repr, along))
    padded = ""
    if axis.size in can_pad and size > 1:
        padded = f'pad it, pad={{"{axis.size}": [{up}]}}, '
    other = f"make the mesh such that its part along {text} divides {size}"
    return MeshError(
        where,
        f"axis {axis.size!r} of {leaf.path} has size {size}, which the {parts} devices along {text}"
        " do not divide.",
        "Each device holds an equal part.",
        f"{padded}make it {up}, {other}, or take {axis.size!r} out of `shard`.",
    )


def _listing(
    view: View,
    specs: Sequence[Spec],
    rules: Sharding,
    mesh: AnyMesh,
) -> str:
    """List the shardings for the plan, and the bytes that are replicated.

    For replicated arrays it says how much `"fsdp"` would leave on each device.
    """
    sharded: list[str] = []
    whole: list[Leaf] = []
    for leaf, spec in zip(view.leaves, specs, strict=True):
        if any(spec):
            dims = ["*".join(along) or "-" for along in spec]
            sharded.append(f"{leaf.path}[{', '.join(dims)}]")
        else:
            whole.append(leaf)
    if not whole:
        return shortlist(sharded)

    taken = sum(map(_bytes, whole))
    line = f"{plural(len(whole), 'array')} whole on each device, {text(taken)}"
    if not rules.fsdp:
        left = sum(_bytes(leaf) // _parts(leaf, mesh) for leaf in whole)
        if left < taken:
            line += f', of which "fsdp" in `shard` would leave {text(left)}'
    return f"{shortlist(sharded)}; {line}" if sharded else line


def _bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def _parts(leaf: Leaf, mesh: AnyMesh) -> int:
    """Number of devices that `"fsdp"` would shard a replicated array over."""
    spec: list[tuple[str, ...]] = [()] * len(leaf.shape)
    if leaf.in_module:
        _shard_largest(spec, leaf, mesh, set())
    names = [name for along in spec for name in along]
    return math.prod(mesh.shape[name] for name in names)
