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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from ..._jax.programs.jaxprs import inside
from ..callbacks import callback_result_is_read, is_ordered
from ..monoids import MONOIDS, Monoid, sendable
from ..typed_jax import jnp, lax
from .cut_axis import carrier_of, is_along, refusal
from .numbered import Node, has_state, monoids_of
from .passes import Pass, Passes


@dataclass(frozen=True)
class Devices:
    """The devices that an axis is sharded over.

    Args:
        mesh: JAX's mesh.
        along: The mesh axes that it is sharded over, the slowest first. XLA's partitioner decides
            about the other mesh axes.
    """

    mesh: Mesh | AbstractMesh
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

    def spec(self, axis: int | None) -> PartitionSpec:
        """The partition spec of an array with the axis at a position; of one without it if None."""
        if axis is None:
            return PartitionSpec()
        return PartitionSpec(*[None] * axis, self.along)

    def index(self) -> jax.Array:
        """The index of a device's shard, inside `shard_map`."""
        return lax.axis_index(self.along)

    @property
    def inside(self) -> AbstractContextManager[object]:
        """Context manager for tracing a program that runs inside `shard_map`: JAX records the mesh
        in each equation.
        """
        mesh = self.mesh if isinstance(self.mesh, AbstractMesh) else self.mesh.abstract_mesh
        kinds = tuple(
            AxisType.Manual if name in self.along else AxisType.Auto for name in mesh.axis_names
        )
        return jax.sharding.use_abstract_mesh(mesh.update(axis_types=kinds))

    def shard_map(
        self,
        fn: Callable[..., object],
        ins: object,
        outs: object,
    ) -> Callable[..., Any]:
        """Turn a function of shards into one of whole arrays, by JAX's `shard_map`."""
        return jax.shard_map(
            fn,
            mesh=self.mesh,
            in_specs=ins,
            out_specs=outs,
            axis_names=set(self.along),
            check_vma=False,
        )

    def combine_states(
        self,
        work: Pass,
        streamed: frozenset[int],
        state: Sequence[Sequence[jax.Array]],
    ) -> list[list[jax.Array]]:
        """Combine the accumulated values of a pass over all devices."""
        nodes = work.states(streamed)
        out = [list(values) for values in state]
        accumulated: list[tuple[int, int, Monoid]] = []
        for i, node in enumerate(nodes):
            accumulated += [(i, k, monoid) for k, monoid in enumerate(monoids_of(node))]

        # All sums go into one `psum`, hence one all-reduce of several operands.
        sums = [(i, k) for i, k, monoid in accumulated if monoid is MONOIDS["add"]]
        totals = self._all_reduce(lax.psum, [state[i][k] for i, k in sums])
        for (i, k), total in zip(sums, totals, strict=True):
            out[i][k] = total

        # Index and value of an argmax are compared together, so both are gathered.
        for i, node in enumerate(nodes):
            carrier = carrier_of(node.op)
            if not monoids_of(node) and carrier is not None:
                out[i] = carrier.merge([lax.all_gather(x, self.along) for x in state[i]])

        # Other monoids: their own collective, or an all-gather and a fold.
        for i, k, monoid in accumulated:
            x = state[i][k]
            if monoid in (MONOIDS["max"], MONOIDS["min"]):
                out[i][k] = self._extreme(x, monoid)
            elif monoid is not MONOIDS["add"]:
                out[i][k] = monoid.fold(lax.all_gather(x, self.along), axes=(0,))
        return out

    def _all_reduce(
        self,
        collective: Callable[[list[jax.Array], tuple[str, ...]], list[jax.Array]],
        xs: Sequence[jax.Array],
    ) -> list[jax.Array]:
        wide = [lax.convert_element_type(x, sendable(x.dtype)) for x in xs]
        reduced = collective(wide, self.along) if wide else []
        return [lax.convert_element_type(y, x.dtype) for x, y in zip(xs, reduced, strict=True)]

    def _extreme(
        self,
        x: jax.Array,
        monoid: Monoid,
    ) -> jax.Array:
        """The maximum or minimum over all devices, NaN if any device has one. Collectives drop or
        keep a NaN depending on their order, so a flag is reduced besides.
        """
        collective = lax.pmax if monoid is MONOIDS["max"] else lax.pmin
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return self._all_reduce(collective, [x])[0]
        is_nan = jnp.isnan(x)
        numbers = jnp.where(
            is_nan,
            monoid.identity(x.dtype),
            x,
        )
        (extreme,) = self._all_reduce(collective, [numbers])
        (flag,) = self._all_reduce(lax.pmax, [is_nan])
        return jnp.where(
            flag,
            jnp.asarray(np.nan, x.dtype),
            extreme,
        )


def check_order(passes: Passes, devices: Devices) -> None:
    """Check that a plan can run on several devices: no state runs from one element of the axis to
    the next, and no callback needs an order or an answer that devices do not give.

    Raises:
        Refused: An operation carries such a state, needs the whole axis at once, or makes such a
            callback.
    """
    for node in _nodes_of(passes):
        if node.parts is not None or not has_state(node, passes.streamed):
            continue
        carrier = carrier_of(node.op)
        if carrier is not None and carrier.refused_on_devices is not None:
            raise refusal(node.op, carrier.refused_on_devices)
    for node in passes.at_once:
        raise refusal(node.op, "needs all of it at once, of which each device has a part")

    # Callbacks.
    for node in passes.flat.steps:
        if devices.is_part and _is_answered(node):
            what = "calls back where the mesh has other axes too, which JAX does not"
            raise refusal(node.op, what)
        if node.token is None:
            continue
        if is_ordered(node.op):
            raise refusal(node.op, "calls back in order, which several devices do not")
        if is_along(node.op) and callback_result_is_read(node.op, is_used=True):
            raise refusal(node.op, "calls back for each element, and needs the answer")


def _nodes_of(passes: Passes) -> Iterator[Node]:
    """Yield the nodes of all passes, in order."""
    for work in passes.passes:
        yield from work.nodes


# JAX 0.10.2 and 0.12.0.1 do not call these where `shard_map` leaves mesh axes to XLA;
# `jax.debug.callback` is called there.
_ANSWERED = ("io_callback", "pure_callback")


def _is_answered(node: Node) -> bool:
    """Return whether a node holds a callback that returns values."""
    eqns = (node.op.eqn, *inside(node.op.eqn))
    return any(eqn.primitive.name in _ANSWERED for eqn in eqns)


def describe_collectives(passes: Passes) -> str:
    """Describe the collectives at the end of a pass, for a line of the plan."""
    counts = Counter(_collectives(passes))
    if not counts:
        return "nothing is sent"
    sent = [
        f"{count} {'value' if count == 1 else 'values'} by {name}" for name, count in counts.items()
    ]
    return f"{', '.join(sent)} at the end of a pass"


def _collectives(passes: Passes) -> Iterator[str]:
    for node in _nodes_of(passes):
        if has_state(node, passes.streamed):
            monoids = monoids_of(node)
            yield from (monoid.collective for monoid in monoids)
            if not monoids:
                yield "all_gather"
