"""Where what a stream works on lies: on one device, or over those of a mesh.

Of an axis that lies along the mesh each device has its own part of each chunk, and accumulates for
itself; what the devices have is put together when a pass is over, so that a step sends nothing. It
stands between Shard, which does so inside one program, and the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from .._axes import Devices
from .._errors import OptionError
from .._jax.trees import device_put, is_a, tree_map
from .._stages import Chunk, Place
from .._stages.chunk import SYMBOL, devices_of
from .._stages.place import sharding
from .._stages.stage import Skip
from .._view.view import View

if TYPE_CHECKING:
    from .._program.entry import Entry

_jax: Any = jax
_jnp: Any = jax.numpy


@dataclass(frozen=True)
class Laid:
    """Where the arrays of one step lie.

    Args:
        place: Of all arguments, with chunks of those that have the axis; None on one device.
        devices: Those that share each chunk; None if it is whole on each.
    """

    place: Place | None = None
    devices: Devices | None = None

    @classmethod
    def of(cls, entry: Entry, stage: Chunk) -> Laid:
        """As `shard` says.

        Raises:
            MeshError: There is no mesh, or another axis does not divide.
            OptionError: The mesh has devices of several processes.
        """
        if entry.core.options.shard is None:
            return cls()
        request = replace(entry.on_mesh(), nested=False)
        avals = stage.avals({SYMBOL: request.divisor(stage.axis)})
        place = Place.plan(
            View(
                tuple(
                    leaf.reshaped(aval.shape)
                    for leaf, aval in zip(stage.view.leaves, avals, strict=True)
                )
            ),
            request,
        )
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
        """How many devices share a chunk."""
        return 1 if self.devices is None else self.devices.parts

    @property
    def key(self) -> Hashable:
        """What a run in progress can be gone on with."""
        return None if self.devices is None else (self.devices.along, self.parts)

    def rounded(self, size: int) -> int:
        """The size of a chunk, such that its devices divide it."""
        return -(-size // self.parts) * self.parts

    def sharding(self, argument: int, axis: int | None) -> Any:
        """Where an argument lies that has the axis there, or a chunk of it; without the axis, whole
        on the devices that share it.
        """
        if self.place is None:
            return None
        spec = list(self.place.specs[argument])
        if self.devices is not None:
            spec = [() if set(along) & set(self.devices.along) else along for along in spec]
            if axis is not None:
                spec[axis] = self.devices.along
        return sharding(self.place.mesh, tuple(spec))

    def accumulated(self, state: Any) -> Any:
        """What the devices hold, of a file, back on them; or its abstract values, with where they
        lie.
        """
        if self.devices is None:
            return state
        lies = _jax.sharding.NamedSharding(self.devices.mesh, self.devices.spec(0))

        def back(x: Any) -> Any:
            return x.update(sharding=lies) if is_a(x, jax.ShapeDtypeStruct) else device_put(x, lies)

        return tree_map(back, state)

    def begin(self, fn: Callable[[Any], Any]) -> Callable[..., Any]:
        """`values -> new values, state`; of several devices each has a state, along a new first
        axis.
        """
        if self.devices is None:
            return fn

        def here(values: Any) -> Any:
            new, state = fn(values)
            return new, _as_part(state)

        none, own = self.devices.spec(None), self.devices.spec(0)
        return self.devices.mapped(here, (none,), (none, own))

    def step(
        self, fn: Callable[..., Any], ins: dict[int, int], outs: list[int], *, whole: bool
    ) -> Callable[..., Any]:
        """`values, state, chunk, start -> state, results`.

        Args:
            fn: The same on one device; `here` says whether its callbacks are called.
            ins: Of each array of a chunk, where it has the axis.
            outs: Of each result.
            whole: Whether the chunk is a rest that the devices do not divide: the first of them
                accumulates it.
        """
        devices = self.devices
        if devices is None:
            return fn

        def here(values: Any, state: Any, chunk: Any, start: Any) -> Any:
            n, index, held = next(iter(chunk)), devices.index(), _own(state)
            at = start if whole else start + index * chunk[n].shape[ins[n]]
            new, out = fn(values, held, chunk, at, here=index == 0 if whole else True)
            return _as_part(
                tree_map(partial(_jnp.where, index == 0), new, held) if whole else new
            ), out

        none, own = devices.spec(None), devices.spec(0)
        chunks = {n: none if whole else devices.spec(axis) for n, axis in ins.items()}
        return devices.mapped(
            here,
            (none, own, chunks, none),
            (own, [none if whole else devices.spec(axis) for axis in outs]),
        )

    def join(self, fn: Callable[[Any], Any]) -> Callable[..., Any]:
        """`state -> state`, of all devices."""
        if self.devices is None:
            return fn

        def here(state: Any) -> Any:
            return fn(_own(state))

        return self.devices.mapped(here, (self.devices.spec(0),), self.devices.spec(None))


def _as_part(state: Any) -> Any:
    def part(x: Any) -> Any:
        return x[None]

    return tree_map(part, state)


def _own(state: Any) -> Any:
    def own(x: Any) -> Any:
        return x[0]

    return tree_map(own, state)
