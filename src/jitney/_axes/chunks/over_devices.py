"""Passes over an axis that is sharded over a mesh: each device runs the chunks of its own shard,
and the accumulated values are combined over the devices when a pass is over.

    loss = sum over n of f(x[n]), x sharded over 4 devices:
    4 partial sums, one per device, and one all-reduce (`psum`) at the end of the pass

State that runs from one element to the next (prefix scans, loops along the axis) would run from
device to device, and is refused. Positions and the size of the axis are those of the whole axis,
never of a shard: a plain `jnp.mean` inside `shard_map` would be the mean of a shard.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._jax.jaxprs import inside
from ..._jax.primitives import spelled
from ..callbacks import callback_result_is_read, is_ordered
from ..monoids import MONOIDS, Monoid, highest, sendable
from ..refusal import Refused
from ..typed_jax import jnp, lax
from .cut_axis import carry_kind, is_along, monoid_of
from .numbered import Node, has_state, monoids_of
from .passes import Pass, Passes

_AxisType: Any = jax.sharding.AxisType


@dataclass(frozen=True)
class Devices:
    """The devices that an axis is sharded over.

    Args:
        mesh: JAX's mesh.
        along: The mesh axes that it is sharded over, the slowest first. XLA's partitioner decides
            about the other mesh axes.
    """

    mesh: Any
    along: tuple[str, ...]

    @property
    def parts(self) -> int:
        """The number of shards of the axis."""
        return math.prod(self.mesh.shape[name] for name in self.along)

    @property
    def is_part(self) -> bool:
        """True if the mesh has other axes, which are left to XLA's partitioner."""
        return self.parts < math.prod(self.mesh.shape.values())

    @property
    def text(self) -> str:
        """The mesh axes, for a line of the plan."""
        return " and ".join(map(repr, self.along))

    def spec(self, axis: int | None) -> Any:
        """The partition spec of an array with the axis at a position; of one without it if None."""
        return (
            jax.sharding.PartitionSpec()
            if axis is None
            else jax.sharding.PartitionSpec(*[None] * axis, self.along)
        )

    def index(self) -> Any:
        """The index of a device's shard, inside `mapped`."""
        return lax.axis_index(self.along)

    @property
    def inside(self) -> Any:
        """Context manager for tracing a program that runs inside `mapped`: JAX records the mesh in
        each equation.
        """
        mesh = getattr(self.mesh, "abstract_mesh", self.mesh)
        kinds = [
            _AxisType.Manual if name in self.along else _AxisType.Auto for name in mesh.axis_names
        ]
        return jax.sharding.use_abstract_mesh(mesh.update(axis_types=tuple(kinds)))

    def mapped(self, fn: Callable[..., object], ins: object, outs: object) -> Callable[..., Any]:
        """Turn a function of shards into one of whole arrays, by JAX's `shard_map`."""
        return jax.shard_map(
            fn,
            mesh=self.mesh,
            in_specs=ins,
            out_specs=outs,
            axis_names=set(self.along),
            check_vma=False,
        )

    def together(
        self, work: Pass, streamed: frozenset[int], state: list[list[Any]]
    ) -> list[list[Any]]:
        """Combine the accumulated values of a pass over all devices."""
        # All sums go into one `psum`, hence one all-reduce of several operands.
        nodes = work.states(streamed)
        held = [
            (i, k, monoid)
            for i, node in enumerate(nodes)
            if not _is_placed(node)
            for k, monoid in enumerate(monoids_of(node))
        ]
        sums = [(i, k) for i, k, monoid in held if monoid is MONOIDS["add"]]
        out = [list(each) for each in state]
        for (i, k), total in zip(
            sums, self._reduced(lax.psum, [state[i][k] for i, k in sums]), strict=True
        ):
            out[i][k] = total

        # Index and value of an argmax are compared together, so both are gathered.
        for i, node in enumerate(nodes):
            if _is_placed(node):
                out[i] = _first_place(
                    monoid_of(node.op), [lax.all_gather(x, self.along) for x in state[i]]
                )

        # Other monoids: their own collective, or an all-gather and a fold.
        for i, k, monoid in held:
            if monoid in (MONOIDS["max"], MONOIDS["min"]):
                out[i][k] = self._extreme(state[i][k], monoid)
            elif monoid is not MONOIDS["add"]:
                out[i][k] = monoid.fold(lax.all_gather(state[i][k], self.along), axes=(0,))
        return out

    def _reduced(self, over: Any, xs: Sequence[Any]) -> list[Any]:
        wide = [lax.convert_element_type(x, sendable(x.dtype)) for x in xs]
        return [
            lax.convert_element_type(y, x.dtype)
            for x, y in zip(xs, over(wide, self.along) if wide else [], strict=True)
        ]

    def _extreme(self, x: jax.Array, monoid: Monoid) -> Any:
        """The maximum or minimum over all devices, NaN if any device has one. Collectives drop or
        keep a NaN depending on their order, so a flag is reduced besides.
        """
        over, least = lax.pmax if monoid is MONOIDS["max"] else lax.pmin, monoid.identity
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return self._reduced(over, [x])[0]
        bad = jnp.isnan(x)
        (extreme,) = self._reduced(over, [jnp.where(bad, least(x.dtype), x)])
        (flag,) = self._reduced(lax.pmax, [bad])
        return jnp.where(flag, jnp.asarray(np.nan, x.dtype), extreme)


def _is_placed(node: Node) -> bool:
    return node.parts is None and carry_kind(node.op) == "placed"


def _first_place(monoid: Monoid, parts: Sequence[Any]) -> list[Any]:
    """Combine the argmax of all devices: the smallest index among equal extremes, or among NaNs.

    The first device need not have the smallest index: in a stream it may have found its element in
    a later chunk than another device.
    """
    index, best = parts
    extreme = (jnp.max if monoid is MONOIDS["max"] else jnp.min)(best, axis=0, keepdims=True)
    same = best == extreme
    if jnp.issubdtype(best.dtype, jnp.inexact):
        same |= jnp.isnan(best) & jnp.isnan(extreme)
    return [jnp.min(jnp.where(same, index, highest(index.dtype)), axis=0), jnp.squeeze(extreme, 0)]


def check_order(passes: Passes, devices: Devices) -> None:
    """Check that a plan can run on several devices: no state runs from one element of the axis to
    the next, and no callback needs an order or an answer that devices do not give.

    Raises:
        Refused: An operation carries such a state, needs the whole axis at once, or makes such a
            callback.
    """
    for node in (node for work in passes.passes for node in work.nodes):
        if (
            node.parts is None
            and has_state(node, passes.streamed)
            and carry_kind(node.op) not in ("folded", "placed", "written")
        ):
            few = carry_kind(node.op) in ("picked", "topped")
            what = (
                "looks for elements of it on all devices"
                if few
                else "goes on from one element of it to the next, and so from device to device"
            )
            raise Refused(node.op.place, f"{what} (`{spelled(node.op.name)}`)")
    for node in passes.at_once:
        raise Refused(
            node.op.place,
            f"needs all of it at once, of which each device has a part (`{spelled(node.op.name)}`)",
        )
    for node in passes.flat.nodes:
        if devices.is_part and any(
            eqn.primitive.name in _ANSWERED for eqn in (node.op.eqn, *inside(node.op.eqn))
        ):
            raise Refused(
                node.op.place,
                "calls back where the mesh has other axes too, which JAX does not"
                f" (`{spelled(node.op.name)}`)",
            )
        if node.token is not None and is_ordered(node.op):
            raise Refused(
                node.op.place,
                f"calls back in order, which several devices do not (`{spelled(node.op.name)}`)",
            )
        if (
            node.token is not None
            and is_along(node.op)
            and callback_result_is_read(node.op, is_used=True)
        ):
            raise Refused(
                node.op.place,
                f"calls back for each element, and needs the answer (`{spelled(node.op.name)}`)",
            )


# JAX 0.10.2 and 0.12.0.1 do not call these where `shard_map` leaves mesh axes to XLA;
# `jax.debug.callback` is called there.
_ANSWERED = ("io_callback", "pure_callback")


def describe_collectives(passes: Passes) -> str:
    """Describe the collectives at the end of a pass, for a line of the plan."""
    counts = Counter(_collectives(passes))
    sent = [
        f"{count} {'value' if count == 1 else 'values'} by {name}" for name, count in counts.items()
    ]
    return f"{', '.join(sent)} at the end of a pass" if sent else "nothing is sent"


def _collectives(passes: Passes) -> Iterator[str]:
    for node in (node for work in passes.passes for node in work.nodes):
        if has_state(node, passes.streamed):
            yield from (
                ["all_gather"]
                if _is_placed(node)
                else [monoid.collective for monoid in monoids_of(node)]
            )
