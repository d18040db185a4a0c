"""Meshes: devices along named axes. The mesh is JAX's own; this module finds it, builds it and
checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType

from .._errors import MeshError
from .._owners import public
from .._public import public_in


@public_in("jitney.types")
class Mesh:
    """Devices along named axes, for `mesh=` or as a context manager. Built by `jitney.mesh`."""

    def __init__(self, mesh: Any):
        self.mesh = mesh
        self._entered: list[Any] = []

    @property
    def shape(self) -> Mapping[str, int]:
        """The number of devices along each axis."""
        return dict(self.mesh.shape)

    def __enter__(self) -> Mesh:
        context = jax.set_mesh(self.mesh)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.mesh == other.mesh

    def __hash__(self) -> int:
        return hash(self.mesh)

    def __repr__(self) -> str:
        return f"<jitney mesh: {mesh_text(self.mesh)}>"


@public
def mesh(
    *,
    devices: Any = None,
    explicit: bool = False,
    **axes: int,
) -> Mesh:
    """A mesh of devices, in an order that JAX chooses for how they are wired.

        with jitney.mesh(data=4, model=2):
            step(model, x)                             # shard={"batch": "data", "hidden": "model"}

        @jitney.optimize(shard={"batch": "data"}, mesh=jitney.mesh(data=-1))

    Args:
        axes: The number of devices along each axis; -1, once, for all remaining devices.
        devices: The devices to use; by default all devices of the process group.
        explicit: Whether the axes are of JAX's explicit type, so that shardings are part of the
            types of arrays.

    Raises:
        MeshError: There are too few devices, or they do not fill the axes.
    """
    several = isinstance(devices, (Sequence, np.ndarray)) and not isinstance(devices, str)
    found = jax.devices() if devices is None else list(devices) if several else None
    if found is None or not all(hasattr(device, "process_index") for device in found):
        raise MeshError(
            "jitney.mesh()",
            f"devices={devices!r}.",
            "They are a list of JAX's devices; the size of an axis is the number of devices"
            " along it.",
            "write jitney.mesh(data=2), or jitney.mesh(data=2, devices=jax.devices()[:2]).",
            code="J253",
        )

    # Devices beyond the product of the sizes stay unused.
    sizes = _sizes(axes, len(found))
    kind = AxisType.Explicit if explicit else AxisType.Auto
    used = found[: math.prod(sizes.values())]
    return Mesh(
        jax.make_mesh(
            tuple(sizes.values()), tuple(sizes), axis_types=(kind,) * len(sizes), devices=used
        )
    )


def _sizes(axes: Mapping[str, int], count: int) -> dict[str, int]:
    text = ", ".join(f"{name}={size}" for name, size in axes.items())
    where = f"jitney.mesh({text})"
    bad = [
        name
        for name, size in axes.items()
        if not isinstance(size, int) or isinstance(size, bool) or (size < 1 and size != -1)
    ]
    if not axes or bad or list(axes.values()).count(-1) > 1:
        raise MeshError(
            where,
            f"{bad[0]}={axes[bad[0]]!r} is not a number of devices."
            if bad
            else "that is not a layout.",
            "Each axis has a number of devices; one of them may be -1, for all that are left.",
            "write jitney.mesh(data=-1).",
            code="J253",
        )
    known = math.prod(size for size in axes.values() if size != -1)
    if known > count or (-1 in axes.values() and count % known):
        raise MeshError(
            where,
            (
                f"there {'is 1 device' if count == 1 else f'are {count} devices'}, which {known}"
                " does not divide."
                if known <= count
                else (
                    f"{known} devices are needed, and there"
                    f" {'is 1' if count == 1 else f'are {count}'}."
                )
            ),
            "A mesh has one device for each of its places.",
            "make an axis smaller; on one CPU, XLA_FLAGS=--xla_force_host_platform_device_count=8"
            " gives eight virtual devices.",
            code="J252",
        )
    return {name: count // known if size == -1 else size for name, size in axes.items()}


def current(given: object = None, *, nested: bool = False) -> Any:
    """Return JAX's mesh that a call runs on, or None: the mesh of the decoration, or without one
    (or with "optional") the mesh of the context.

    Under an outer trace (`nested`) the context has an abstract mesh, since only the outermost
    program knows the devices. Inside `shard_map` that mesh takes precedence, since it records along
    which axes each device works alone.

    Raises:
        MeshError: The decoration names something that is not a mesh, or a `shard_map` or `pmap`
            around the call has divided other devices.
    """

    # A simulation overrides every other mesh.
    there = _on_paper.get()
    if there is not None:
        return there

    # `given` is the mesh of the decoration, unless it is a text ("optional").
    around = jax.sharding.get_abstract_mesh()
    if given is not None and not isinstance(given, str):
        found = mesh_of(given)
        return _divided_already(found, around) if nested and around.manual_axes else found
    found = around if nested else context()
    return None if found.empty else found


def _divided_already(given: Any, around: Any) -> Any:
    """Return the mesh of the surrounding `shard_map`, if its axes are those of the given one."""
    if dict(given.shape) == dict(around.shape):
        return around
    raise MeshError(
        "mesh=...",
        f"{mesh_text(given)} is asked for inside `shard_map` or `pmap` over another mesh.",
        "Inside one each device works alone on its part, and arrays can be sharded only"
        " over axes of"
        " that same mesh.",
        "call the function outside of it, or write it there without `shard`.",
        code="J254",
    )


def mesh_of(given: object) -> Any:
    """Return JAX's mesh inside of a `Mesh`, or the mesh itself.

    Raises:
        MeshError: The value is not a mesh.
    """
    found = given.mesh if isinstance(given, Mesh) else given
    if not isinstance(found, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        what = f"a {type(found).__name__} is not a mesh."
        raise MeshError(
            "mesh=...",
            what,
            "A mesh is devices along named axes.",
            "write mesh=jitney.mesh(data=-1).",
            code="J253",
        )
    return found


def context() -> Any:
    """Return the mesh of the context. Under a trace, which may be one of unrelated values, JAX
    shows only the abstract mesh.
    """
    return jax.sharding.get_abstract_mesh() if is_within_trace() else jax.sharding.get_mesh()


def is_within_trace() -> bool:
    """Return whether any trace is active, even one of unrelated values."""
    try:
        jax.sharding.get_mesh()
    # JAX: "get_mesh can only be used outside of `jax.jit`".
    except ValueError:
        return True
    return False


_on_paper: ContextVar[Any] = ContextVar("jitney mesh of a simulation", default=None)


@contextmanager
def on_paper(sizes: Mapping[str, int]) -> Generator[Any]:
    """Scope in which programs are traced for a simulated mesh, whatever mesh they name or are
    called under.
    """
    mesh = jax.sharding.AbstractMesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)
    )
    outside = jax.sharding.get_mesh()

    # An empty mesh replaces the concrete one of the context, which has other devices.
    token = _on_paper.set(mesh)
    try:
        with (
            nullcontext() if outside.empty else jax.set_mesh(_nowhere()),
            jax.sharding.use_abstract_mesh(mesh),
        ):
            yield mesh
    finally:
        _on_paper.reset(token)


@contextmanager
def outside() -> Generator[None]:
    """Scope without a mesh."""
    with nullcontext() if context().empty else jax.set_mesh(_nowhere()):
        yield


def _nowhere() -> Any:
    return jax.sharding.Mesh(np.empty((), object), ())


def automatic(found: Any) -> Any:
    """Return the same devices and axes with automatic axis types, so that XLA chooses the shardings
    between arguments and results. Manual axes, along which `shard_map` has divided the work, stay.
    """
    if AxisType.Explicit not in found.axis_types:
        return found
    kinds = tuple(AxisType.Auto if kind == AxisType.Explicit else kind for kind in found.axis_types)
    if isinstance(found, jax.sharding.AbstractMesh):
        return found.update(axis_types=kinds)
    return jax.sharding.Mesh(found.devices, found.axis_names, axis_types=kinds)


def explicit_mesh(values: Sequence[object]) -> Any:
    """Return the mesh with explicit axes of the surrounding trace or of one of these arrays, or
    None.
    """
    shardings = [
        getattr(jax.typeof(x), "sharding", None) for x in values if isinstance(x, jax.Array)
    ]
    meshes = [
        jax.sharding.get_abstract_mesh(),
        *(x.mesh for x in shardings if isinstance(x, jax.sharding.NamedSharding)),
    ]
    return next((found for found in meshes if AxisType.Explicit in found.axis_types), None)


def spec(array: object) -> tuple[Any, ...]:
    """Partition spec of an array on an explicit mesh; () if it has none."""
    found = getattr(jax.typeof(array), "sharding", None)
    return tuple(found.spec) if isinstance(found, jax.sharding.NamedSharding) else ()


def is_manual(found: Any, axis: str) -> bool:
    """Return whether `shard_map` or `pmap` has divided the work along a mesh axis."""
    return dict(zip(found.axis_names, found.axis_types, strict=True)).get(axis) == AxisType.Manual


@contextmanager
def automatically(found: object) -> Generator[Callable[[Any], Any]]:
    """Scope inside a trace in which all axes of an explicit mesh are automatic; it yields the
    function that reshards an array for it.

    `jax.sharding.auto_axes` does the same, but needs the shardings of the results in advance.
    """

    def brought(x: Any) -> Any:
        return jax.sharding.reshard(x, jax.sharding.PartitionSpec())

    with jax.sharding.use_abstract_mesh(automatic(found)):
        yield brought


def with_explicit_sharding(
    x: Any,
    found: object,
    along: Sequence[object],
) -> Any:
    """Return an array from such a scope with its sharding on the explicit mesh as a part of its
    type.
    """
    return jax.sharding.reshard(
        x, jax.sharding.NamedSharding(_abstract(found), jax.sharding.PartitionSpec(*along))
    )


def reshape_sharded(
    array: object,
    shape: Sequence[int],
    how: Callable[[Any, Any], object],
) -> Any:
    """Reshape an array by `how`; an axis that the mesh no longer divides evenly is replicated."""
    found = explicit_mesh([array])
    if found is None:
        return how(array, shape)
    along = spec(array)
    with automatically(found) as brought:
        out = how(brought(array), shape)
    return with_explicit_sharding(out, found, dividing(found, shape, along))


def dividing(
    found: Any,
    shape: Sequence[int],
    along: Sequence[Any],
) -> list[Any]:
    """Return the partition spec of an array: the given mesh axes where they divide its size, each
    mesh axis once, else None (replicated).
    """
    taken: set[str] = set()
    out: list[Any] = []
    for size, each in zip(shape, along, strict=False):
        names = (each,) if isinstance(each, str) else tuple(each or ())
        fits = (
            bool(names)
            and not taken & set(names)
            and size % math.prod(found.shape[name] for name in names) == 0
        )
        out.append(names if fits else None)
        taken |= set(names) if fits else set()
    return out


def _abstract(found: Any) -> Any:
    return found if isinstance(found, jax.sharding.AbstractMesh) else found.abstract_mesh


def mesh_text(found: Any) -> str:
    """Describe the axes of a mesh: `data=4, model=2`."""
    return ", ".join(f"{name}={size}" for name, size in found.shape.items())


def mesh_fingerprint(mesh: jax.sharding.Mesh) -> tuple[str, str]:
    """Describe one of JAX's meshes in a form that is the same in another process: its axes, and its
    devices in order.
    """
    devices = [
        (device.platform, device.device_kind, device.id, device.process_index)
        for device in mesh.devices.flat
    ]
    return repr((mesh.axis_names, mesh.devices.shape, mesh.axis_types)), repr(devices)
