"""Shardings of a stream: everything on one device, or chunks and carries over the devices of a
mesh.

If the streamed axis is sharded over the mesh, each device takes its part of each chunk and
accumulates a carry of its own. The carries are reduced once, when a pass ends, so a step needs no
collective. `Shard` does the same inside one program; this file does it for the steps of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import jax

from .._axes import Devices
from .._errors import OptionError
from .._jax.trees import device_put, tree_map
from .._jax.typed import Array
from .._stages import Chunk, Place
from .._stages.chunking.chunk import devices_of
from .._stages.chunking.chunked_axis import SYMBOL
from .._stages.sharding import sharding
from .._stages.stage import Skip
from .._view.view import View
from .schedule import Carry, Values

if TYPE_CHECKING:
    from .._program.entry import Specialization

T = TypeVar("T")
Begin = Callable[..., tuple[Values, Carry]]
"""Known values -> values that are computed from them, and the initial carry."""
Step = Callable[..., tuple[Carry, Sequence[jax.Array]]]
"""Values, carry, chunk, its start, and carries to replay -> carry, and results for the chunk."""
Join = Callable[..., Carry]
"""Carry -> carry, reduced over the devices and rounded to the program's dtypes."""


@dataclass(frozen=True)
class StreamLayout:
    """Sharding of the arrays of one step.

    Args:
        place: Sharding of all arguments, with a chunk in place of each streamed array; None on one
            device.
        devices: The devices that share each chunk; None if each device holds the whole chunk.
    """

    place: Place | None = None
    devices: Devices | None = None

    @classmethod
    def of(cls, entry: Specialization, stage: Chunk) -> StreamLayout:
        """Plan the sharding that the option `shard` asks for.

        Raises:
            MeshError: There is no mesh, or another axis does not divide.
            OptionError: The mesh has devices of several processes.
        """
        if entry.core.options.shard is None:
            return cls()

        # Plan for a chunk of the smallest size that the devices divide: `_stages.Place` demands
        # divisible sizes, and the real chunk size is rounded up to a multiple later (`round_up`).
        request = replace(entry.on_mesh(), nested=False)
        avals = stage.avals({SYMBOL: request.divisor(stage.axis)})
        leaves = zip(stage.view.leaves, avals, strict=True)
        smallest = View(tuple(leaf.reshape(aval.shape) for leaf, aval in leaves))
        place = Place.plan(smallest, request)
        if isinstance(place, Skip):
            return cls()
        if len({device.process_index for device in place.mesh.devices.flat}) > 1:
            raise OptionError(
                entry.core.where,
                "its mesh has devices of several processes.",
                "A stream is read by the process of its devices.",
                "give it a mesh of jax.local_devices(), and its own part of the data.",
                code="J201",
            )
        return cls(place, devices_of(stage.axis, place, request))

    @property
    def parts(self) -> int:
        """Number of devices that share a chunk."""
        return 1 if self.devices is None else self.devices.parts

    @property
    def key(self) -> Hashable:
        """Part of the checkpoint's key: a run resumes only with carries that are sharded the same
        way.
        """
        return None if self.devices is None else (self.devices.along, self.parts)

    def round_up(self, size: int) -> int:
        """Round a chunk size up to a multiple of the number of devices."""
        return -(-size // self.parts) * self.parts

    def sharding(
        self,
        argument: int,
        axis: int | None,
    ) -> jax.sharding.NamedSharding | None:
        """Sharding of an argument, or of its chunk, whose streamed axis is at `axis`; without
        `axis` it is replicated over the devices that share chunks.
        """
        if self.place is None:
            return None
        spec = list(self.place.specs[argument])
        if self.devices is not None:
            # The mesh axes of the chunks shard the streamed axis and nothing else.
            shared = set(self.devices.along)
            spec = [() if shared & set(along) else along for along in spec]
            if axis is not None:
                spec[axis] = self.devices.along
        return sharding(self.place.mesh, tuple(spec))

    def replicated(self) -> jax.sharding.NamedSharding | None:
        """Sharding of what each device has the whole of."""
        return None if self.place is None else sharding(self.place.mesh, ())

    def shard_carry(self, state: T) -> T:
        """Put a carry that was read from a file back on its devices; of abstract values, add the
        sharding.
        """
        if self.devices is None:
            return state
        over_devices = jax.sharding.NamedSharding(self.devices.mesh, self.devices.spec(0))

        def back(x: object) -> object:
            if isinstance(x, jax.ShapeDtypeStruct):
                return x.update(sharding=over_devices)
            return device_put(x, over_devices)

        return tree_map(back, state)

    def spread_count(self, count: Array) -> Array:
        """Put a number of iterations that is known of all devices into the carry of each."""
        if self.devices is None:
            return count
        return self.shard_carry(jax.numpy.broadcast_to(count, (self.parts,)))

    def begin(self, fn: Begin) -> Begin:
        """Wrap `values -> new values, carry`; with several devices each has a carry, along a new
        first axis.
        """
        if self.devices is None:
            return fn

        def here(values: Values) -> tuple[Values, Carry]:
            new, state = fn(values)
            return new, _as_part(state)

        none, own = self.devices.spec(None), self.devices.spec(0)
        return self.devices.shard_map(here, (none,), (none, own))

    def step(
        self,
        fn: Step,
        ins: dict[int, int],
        outs: list[int],
        *,
        whole: bool,
    ) -> Step:
        """Wrap `values, carry, chunk, start -> carry, results`.

        Args:
            fn: The step on one device. Its keyword `here` says whether this device runs the
                callbacks.
            ins: Position of the axis in each array of a chunk.
            outs: Position of the axis in each result.
            whole: Whether the chunk is a remainder that the devices do not divide: it is
                replicated, and the first device accumulates it.
        """
        devices = self.devices
        if devices is None:
            return fn

        def here(
            values: Values,
            state: Carry,
            chunk: Values,
            start: jax.Array,
        ) -> tuple[Carry, Sequence[jax.Array]]:
            n = next(iter(chunk))
            index = devices.index()
            carry = _own(state)

            if whole:
                # Every device computes a replicated remainder, and all but the first discard their
                # carry: otherwise each of them would add the same elements.
                new, out = fn(
                    values,
                    carry,
                    chunk,
                    start,
                    here=index == 0,
                )
                new = tree_map(partial(jax.numpy.where, index == 0), new, carry)
            else:
                # `start` counts in the whole array: each device adds the offset of its part.
                offset = index * chunk[n].shape[ins[n]]
                new, out = fn(
                    values,
                    carry,
                    chunk,
                    start + offset,
                    here=True,
                )
            return _as_part(new), out

        none, own = devices.spec(None), devices.spec(0)
        chunks = {n: none if whole else devices.spec(axis) for n, axis in ins.items()}
        results = [none if whole else devices.spec(axis) for axis in outs]
        return devices.shard_map(here, (none, own, chunks, none), (own, results))

    def join(self, fn: Join) -> Join:
        """Wrap `carry -> carry`, reduced over the devices."""
        if self.devices is None:
            return fn

        def here(state: Carry) -> Carry:
            return fn(_own(state))

        none, own = self.devices.spec(None), self.devices.spec(0)
        return self.devices.shard_map(here, (own,), none)


def _as_part(state: Carry) -> Carry:
    """Add the leading axis along which carries are sharded over the devices."""

    def part(x: jax.Array) -> jax.Array:
        return x[None]

    return tree_map(part, state)


def _own(state: Carry) -> Carry:
    """Drop that leading axis: the carry of this device."""

    def own(x: jax.Array) -> jax.Array:
        return x[0]

    return tree_map(own, state)
