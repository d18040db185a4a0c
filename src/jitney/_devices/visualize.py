"""`jitney.analysis.visualize`: the parts of a pytree's arrays on each device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from .._jax.trees import Tracer, keystr, tree_flatten_with_path
from .._jax.xla.memory import text as bytes_text
from .._owners import public
from .._public import public_in
from .._text.shown import Shown

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class ArrayPlacement:
    """Sharding of one array, and the part of it on one device.

    Args:
        path: Path in the tree.
        dtype: Its dtype.
        shape: Its shape over all devices together.
        spec: For each axis the axes of the mesh that it is sharded over.
        part: Shape of the part on one device.
        parts: Number of different parts; the other devices have copies.
        bytes: Bytes of one part.
        devices: Number of devices that have a part.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    spec: tuple[str, ...]
    part: tuple[int, ...]
    parts: int
    bytes: int
    devices: int


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Placement(Shown):
    """Result of `jitney.analysis.visualize`: each array, and the bytes of all of them on each
    device.
    """

    arrays: tuple[ArrayPlacement, ...]
    bytes: dict[str, int]

    def __rich__(self) -> Table:
        from .._text.console import table

        rows = [
            [
                (held.path, ""),
                (f"{held.dtype}{list(held.shape)}", ""),
                (_placement_text(held), "green" if held.parts > 1 else "dim"),
            ]
            for held in self.arrays
        ]
        most = max(self.bytes.values(), default=0)
        rows += [
            [
                (name, "cyan"),
                (bytes_text(size), ""),
                ("█" * max(1, round(30 * size / most)) if most else "", "cyan"),
            ]
            for name, size in self.bytes.items()
        ]
        return table("who holds what", rows)


def _placement_text(held: ArrayPlacement) -> str:
    if held.devices == 1:
        return f"on one device, {bytes_text(held.bytes)}"
    if held.parts == 1:
        return f"whole on each of {held.devices} devices, {bytes_text(held.bytes)}"
    copies = held.devices // held.parts
    also = f", each on {copies} devices" if copies > 1 else ""
    return (
        f"[{', '.join(held.spec)}]: {held.parts} parts of {list(held.part)}{also},"
        f" {bytes_text(held.bytes)}"
    )


@public
def visualize(tree: object) -> Placement:
    """Show which device holds which part of a module, an array or any tree of arrays; print it, or
    show it in a notebook.

    Args:
        tree: Any pytree; leaves that are not JAX arrays have no device.
    """
    arrays: list[ArrayPlacement] = []
    total: dict[Any, int] = {}
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer):
            continue
        # Devices with the same index have copies of the same part.
        places = leaf.sharding.devices_indices_map(leaf.shape)
        part = leaf.sharding.shard_shape(leaf.shape)
        size = math.prod(part) * leaf.dtype.itemsize
        parts = len({str(index) for index in places.values()})
        arrays.append(
            ArrayPlacement(
                keystr(path).removeprefix(".") or "array",
                str(leaf.dtype),
                tuple(leaf.shape),
                _spec(leaf),
                part,
                parts,
                size,
                len(places),
            )
        )
        for device in places:
            total[device] = total.get(device, 0) + size
    ordered = sorted(total.items(), key=lambda item: item[0].id)
    return Placement(
        tuple(arrays), {f"{device.platform} {device.id}": size for device, size in ordered}
    )


def _spec(array: jax.Array) -> tuple[str, ...]:
    spec = tuple(getattr(array.sharding, "spec", ()))
    # A `PartitionSpec` may be shorter than the array: the rest of the axes is not sharded.
    full = (*spec, *[None] * (array.ndim - len(spec)))
    return tuple("-" if on is None else on if isinstance(on, str) else "*".join(on) for on in full)
