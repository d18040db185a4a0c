"""Parts of a call on the CPU devices of one process, in place of threads: `shard_map` over them.

    jax.config.update("jax_num_cpu_devices", 2)

    a part          the program that a thread would run: f32[5,400] -> f32[5,3]
    all parts       its `shard_map`: f32[10,400] -> f32[10,3], compiled once
    a call          each part is put on its device; the results are gathered on the host, and become
                    one array of the one device where a call of the whole has it

`auto` alone runs calls so, where it has measured that threads take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ...._host.limits import allowed_cores
from ...._jax.devices import LocalDevice, local_devices
from ...._jax.equinox_checks import has_equinox_checks
from ...._jax.mesh import context
from ...._jax.programs.evaluation import evaluate_jaxpr
from ...._jax.trees import device_put, extended, issubdtype, tree_unflatten
from ...._jax.typed import Array, ClosedJaxpr, PyTreeDef
from ...._view.layout import aval_parts
from ...compiled_calls import CompiledCalls
from .parts import Division, PartialResult, is_hosted

DEVICES = "devices"
"""The value of `workers` of calls that `auto` runs so; no one else can give it."""
_AXIS = "parts"


def cpu_devices() -> list[LocalDevice]:
    """Return the devices that parts can run on: CPU devices where programs run on CPUs by default,
    no more than there are cores.
    """
    if jax.default_backend() != "cpu":
        return []
    found = [each for each in local_devices() if each.platform == "cpu"]
    return found[: allowed_cores().value]


def obstacle_of(arrays: Sequence[Array]) -> str:
    """Return why devices do not take the arrays of a call; "" if they do."""
    if len(cpu_devices()) < 2:
        return "this process has one CPU device"
    if not context().empty:
        return "there is a mesh, of which these devices may be a part"
    if any(isinstance(array, jax.Array) and array.committed for array in arrays):
        return "an array was put on a device on purpose"
    if any(issubdtype(aval_parts(array)[1], extended) for array in arrays):
        return "random keys are not arrays of the host"
    return ""


def obstacle_of_program(entry: CompiledCalls, traced: jax.stages.Traced) -> str:
    """Return why devices do not run the program of a part; "" if they do."""
    results = map(aval_parts, traced.jaxpr.out_avals)
    if not all(is_hosted(dtype, weak) and dtype.itemsize for _, dtype, weak in results):
        return "a result is not an array of the host"
    if has_equinox_checks(traced.jaxpr):
        return "devices do not say which run-time check has failed"
    if entry.captures or entry.kept is not None:
        return "its program is not one of its arguments alone"
    return ""


@dataclass(frozen=True)
class DeviceParts:
    """Compiled program that runs all parts of a call at once, one on each device.

    Args:
        devices: The devices.
        dims: Position of the mapped axis in each array; None where an array does not have it.
        compiled: The program.
        tree: The structure of its result.
    """

    devices: tuple[LocalDevice, ...]
    dims: tuple[int | None, ...]
    compiled: jax.stages.Compiled
    tree: PyTreeDef

    @classmethod
    def of(
        cls,
        traced: jax.stages.Traced,
        division: Division,
    ) -> DeviceParts:
        """Compile the program of one part for all.

        Args:
            traced: The program of a part, which computes and does nothing else.
            division: The parts.
        """
        devices = tuple(cpu_devices()[: len(division.parts)])
        mesh = _mesh(devices)
        closed = traced.jaxpr
        program = jax.shard_map(
            partial(_evaluate, closed),
            mesh=mesh,
            in_specs=tuple(map(_spec, division.dims)),
            out_specs=PartitionSpec(_AXIS),
            check_vma=False,
        )
        avals: list[jax.ShapeDtypeStruct] = []
        for aval, dim in zip(closed.in_avals, division.dims, strict=True):
            shape, dtype, _ = aval_parts(aval)
            place = NamedSharding(mesh, _spec(dim))
            shape = _joined(shape, dim, len(devices))
            avals.append(jax.ShapeDtypeStruct(shape, dtype, sharding=place))
        compiled = jax.jit(program).lower(*avals).compile()
        tree = jax.tree.structure(traced.out_info)
        return cls(devices, division.dims, compiled, tree)

    def run(
        self,
        parts: Sequence[Sequence[Array]],
        results: Sequence[PartialResult],
    ) -> object:
        """Run a call.

        Args:
            parts: The arrays of each part.
            results: The arrays of the whole result.
        """
        arrays = [
            self._join(of_parts, dim)
            for of_parts, dim in zip(zip(*parts, strict=True), self.dims, strict=True)
        ]
        for result, array in zip(results, self.compiled(*arrays), strict=True):
            shards = {shard.device: shard.data for shard in array.addressable_shards}
            for number, device in enumerate(self.devices):
                result.add(number, np.asarray(shards[device]))
        return tree_unflatten(self.tree, [device_put(each.whole()) for each in results])

    @cached_property
    def _places(self) -> dict[int | None, NamedSharding]:
        mesh = _mesh(self.devices)
        return {dim: NamedSharding(mesh, _spec(dim)) for dim in self.dims}

    def _join(self, parts: Sequence[Array], dim: int | None) -> jax.Array:
        """Put each part on its device, and return them as one array."""
        placed: list[jax.Array] = device_put([*parts], [*self.devices])
        shape = _joined(placed[0].shape, dim, len(placed))
        return jax.make_array_from_single_device_arrays(shape, self._places[dim], placed)


def _mesh(devices: Sequence[LocalDevice]) -> Mesh:
    return Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))


def _spec(dim: int | None) -> PartitionSpec:
    return PartitionSpec() if dim is None else PartitionSpec(*[None] * dim, _AXIS)


def _joined(
    shape: Sequence[int],
    dim: int | None,
    count: int,
) -> tuple[int, ...]:
    return tuple(size * count if axis == dim else size for axis, size in enumerate(shape))


def _evaluate(closed: ClosedJaxpr, *arrays: Array) -> list[Array]:
    return evaluate_jaxpr(closed.jaxpr, closed.consts, arrays)
