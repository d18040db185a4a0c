"""Where the arrays of a call lie: each named axis along an axis of the mesh.

It stands outside Jit, which is told the placements: NumPy arrays then go straight to their devices,
and arrays that lie right are not moved (`_program/sharded_calls.py`). Shard and Chunk act on what
it has decided.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax

from .._errors import MeshError, OptionError, Where, counted, few, name_fix
from .._jax.memory import text
from .._jax.mesh import automatic, described, is_manual
from .._signature.options import FSDP, OPTIONAL, Sharding
from .._view.named_axes import Named, named_axes
from .._view.view import Leaf, View
from .stage import Request, Skip, Stage
from .vmap import levels_of

_sharding: Any = jax.sharding
Spec = tuple[tuple[str, ...], ...]
"""For each axis of an array the axes of the mesh that it lies along."""


@dataclass(frozen=True)
class Place(Stage):
    """One placement for each array."""

    mesh: Any
    specs: tuple[Spec, ...]
    why: str = field(compare=False)
    name: str = field(default="place", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
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
            check_axes(request, rules, named_axes(view, levels_of(view, request)))
            return Skip("place", "no mesh is around, and mesh='optional' has it run without one")
        mesh = automatic(request.mesh)
        named = named_axes(view, levels_of(view, request))
        check_names(request, rules, mesh, named)
        can_pad = {*request.axes, *(axis.name for axis in request.options.vmap)}.difference(
            name for name, _ in request.options.pad
        )
        specs = tuple(
            spec_of(request.where, *each, rules, mesh, can_pad)
            for each in zip(view.leaves, named, strict=True)
        )
        return cls(mesh, specs, f"mesh {described(mesh)}: {_listing(view, specs, rules, mesh)}")

    @property
    def shardings(self) -> tuple[Any, ...]:
        """JAX's shardings."""
        return tuple(sharding(self.mesh, spec) for spec in self.specs)


def sharding(mesh: Any, spec: Spec) -> Any:
    """JAX's sharding of one array."""
    parts = [None if not along else along[0] if len(along) == 1 else along for along in spec]
    while parts and parts[-1] is None:
        parts.pop()
    return _sharding.NamedSharding(mesh, _sharding.PartitionSpec(*parts))


def divided(like: Any, shape: Sequence[int]) -> Any:
    """A sharding as another one, of an array of this shape: axes that do not divide lie whole on
    each device.
    """
    if not isinstance(like, _sharding.NamedSharding):
        return like
    given: Any = like
    parts: list[Any] = []
    for size, along in zip(shape, tuple(given.spec), strict=False):
        names = () if along is None else (along,) if isinstance(along, str) else along
        parts.append(
            along if size % math.prod(given.mesh.shape[name] for name in names) == 0 else None
        )
    return _sharding.NamedSharding(given.mesh, _sharding.PartitionSpec(*parts))


def no_mesh(where: Where) -> MeshError:
    """The error of a call that has nowhere to lie."""
    return MeshError(
        where,
        "`shard` has no mesh.",
        "Axes lie along the axes of a mesh of devices.",
        "call it inside `with jitney.mesh(data=-1):`, or decorate with mesh=jitney.mesh(data=-1); "
        'with mesh="optional" it runs without one too.',
        code="J250",
    )


def check_names(
    request: Request, rules: Sharding, mesh: Any, named: Sequence[Sequence[Named]]
) -> None:
    """Whether the axes that are named exist, of the mesh and of arrays.

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
                    f"{name!r} shall lie along {axis!r}, which the mesh does not have.",
                    f"The axes of the mesh are {described(mesh)}.",
                    name_fix(axis, mesh.shape, "correct the name, or make a mesh that has it."),
                    code="J251",
                )
    check_axes(request, rules, named)


def check_axes(request: Request, rules: Sharding, named: Sequence[Sequence[Named]]) -> None:
    """Whether the axes that shall lie along a mesh exist.

    Raises:
        OptionError: Neither the signature, nor `vmap`, nor any field has such an axis.
    """
    known = sorted(
        {axis.size for axes in named for axis in axes}
        | {axis.name for axis in request.options.vmap}
        | set(request.axes)
    )
    for name, _ in rules.axes:
        if name not in known:
            raise OptionError(
                request.where,
                f"`shard` names {name!r}, which no array of this call has.",
                "Axes of the signature, of `vmap` and of fields of modules are"
                f" {', '.join(known) or 'none'}.",
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
    named: Sequence[Named],
    rules: Sharding,
    mesh: Any,
    can_pad: Collection[str] = (),
) -> Spec:
    """The placement of one array. An axis of the mesh serves one axis of it: the first that asks.

    Args:
        where: The function.
        leaf: The array.
        named: Its axes.
        rules: Which axes lie along which of the mesh.
        mesh: The devices.
        can_pad: The axes that `pad` may name, and does not.

    Raises:
        MeshError: An axis does not divide.
    """
    wanted: Mapping[str, tuple[str, ...]] = dict(rules.axes)
    spec: list[tuple[str, ...]] = [()] * len(leaf.shape)
    taken: set[str] = set()
    for axis in sorted(named, key=lambda named_axis: named_axis.axis):
        along = wanted.get(axis.size, ())
        if not along or taken & set(along):
            continue
        parts = math.prod(mesh.shape[name] for name in along)
        if leaf.shape[axis.axis] % parts:
            raise _does_not_divide(where, leaf, axis, along, parts, can_pad)
        spec[axis.axis] = along
        taken |= set(along)
    if rules.fsdp and leaf.in_module:
        _spread(spec, leaf, mesh, taken)
    return tuple(spec)


def _spread(spec: list[tuple[str, ...]], leaf: Leaf, mesh: Any, taken: set[str]) -> None:
    """Lay the largest axis of a parameter that divides along the mesh, if none lies there yet."""
    free = [name for name in mesh.shape if not is_manual(mesh, name)]
    along = FSDP if FSDP in free else free[0]
    if along in taken:
        return
    fits = [
        i
        for i, size in enumerate(leaf.shape)
        if not spec[i] and size and size % mesh.shape[along] == 0
    ]
    if fits and mesh.shape[along] > 1:
        spec[max(fits, key=lambda i: leaf.shape[i])] = (along,)


def _does_not_divide(
    where: Where,
    leaf: Leaf,
    axis: Named,
    along: Sequence[str],
    parts: int,
    can_pad: Collection[str],
) -> MeshError:
    size = leaf.shape[axis.axis]
    up, text = -(-size // parts) * parts, " and ".join(map(repr, along))
    padded = f'pad it, pad={{"{axis.size}": [{up}]}}, ' if axis.size in can_pad and size > 1 else ""
    other = f"make the mesh such that its part along {text} divides {size}"
    return MeshError(
        where,
        f"axis {axis.size!r} of {leaf.path} has size {size}, which the {parts} devices along {text}"
        " do not divide.",
        "Each device holds an equal part.",
        f"{padded}make it {up}, {other}, or take {axis.size!r} out of `shard`.",
    )


def _listing(view: View, specs: Sequence[Spec], rules: Sharding, mesh: Any) -> str:
    """What lies where; of what lies whole, its bytes, and what `"fsdp"` would leave of them on each
    device.
    """
    spread = [(leaf, spec) for leaf, spec in zip(view.leaves, specs, strict=True) if any(spec)]
    texts = [
        f"{leaf.path}[{', '.join('*'.join(along) or '-' for along in spec)}]"
        for leaf, spec in spread
    ]
    whole = [leaf for leaf, spec in zip(view.leaves, specs, strict=True) if not any(spec)]
    if not whole:
        return few(texts)
    taken = sum(_bytes(leaf) for leaf in whole)
    left = taken if rules.fsdp else sum(_bytes(leaf) // _parts(leaf, mesh) for leaf in whole)
    fewer = f', of which "fsdp" in `shard` would leave {text(left)}' if left < taken else ""
    return "; ".join(
        [
            *([few(texts)] if texts else []),
            f"{counted(len(whole), 'array')} whole on each device, {text(taken)}{fewer}",
        ]
    )


def _bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def _parts(leaf: Leaf, mesh: Any) -> int:
    """Among how many devices `"fsdp"` would divide an array that lies nowhere."""
    spec: list[tuple[str, ...]] = [()] * len(leaf.shape)
    if leaf.in_module:
        _spread(spec, leaf, mesh, set())
    return math.prod(mesh.shape[name] for along in spec for name in along)
