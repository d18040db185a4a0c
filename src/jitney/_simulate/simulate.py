"""`jitney.simulation.simulate`: memory, work and communication of a program on devices that
are not there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax

from .._errors import MeshError, OptionError
from .._interface.derivatives.derivative import Derivative, program_of
from .._jax.mesh import Mesh, current
from .._owners import public
from .._program.entry import Specialization
from .._signature.options import Wrt
from .._stages.sharding import no_mesh
from .._view.layout import aval_parts
from .device import Device, device_of
from .figures import Simulation, Sizes, Sweep
from .lowering import Case
from .other_process import MOST, CompileFailure, compile_elsewhere

if TYPE_CHECKING:
    from .._interface.program import Program


@overload
def simulate(
    f: Program[..., object] | Derivative[..., object],
    /,
    *examples: object,
    mesh: Sizes | Mesh | None = None,
    device: str | Device,
    sizes: Sizes | None = None,
    wrt: Wrt = None,
    **keywords: object,
) -> Simulation: ...
@overload
def simulate(
    f: Program[..., object] | Derivative[..., object],
    /,
    *examples: object,
    mesh: Sequence[Sizes | Mesh],
    device: str | Device,
    sizes: Sizes | None = None,
    wrt: Wrt = None,
    **keywords: object,
) -> Sweep: ...
@public
def simulate(
    f: Program[..., object] | Derivative[..., object],
    /,
    *examples: object,
    mesh: Sizes | Mesh | Sequence[Sizes | Mesh] | None = None,
    device: str | Device,
    sizes: Sizes | None = None,
    wrt: Wrt = None,
    **keywords: object,
) -> Simulation | Sweep:
    """Estimate memory, operations, communication and time of a step on absent devices.

        jitney.simulation.simulate(
            loss.grad, model, sizes={"batch": 65536}, mesh={"data": 256, "model": 8},
            device="h200", wrt="model",
        )

    The program is partitioned for the devices and compiled for them, by another process with as
    many virtual devices; nothing runs, and no array of these sizes exists. Bytes of arguments and
    results, operations and collectives are counted in that program, with every iteration of a loop.
    Times are a model (a roofline): see `Simulation.times`, `step` and `notes`.

    Args:
        f: A program, or a derivative of one.
        examples: Examples as for `Program.compile`; `eqx.filter_eval_shape` creates modules without
            numbers.
        mesh: Number of devices along each axis, or a mesh, outermost first: the last axis is within
            a node, as far as that is large. Several give a table. The default is the mesh of the
            decoration or the context, or one device for a function without `shard`.
        device: A name ("h100", "h200", "a100", "b200", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e",
            "cpu"), or a `jitney.simulation.Device`.
        sizes: Axis sizes, as for `Program.compile`.
        wrt: Arguments to differentiate, for a derivative.
        keywords: Examples by name.

    Raises:
        OptionError: The device is not known, the function is not sharded and there are several
            devices, it has `memory` beside `shard`, or it calls back into Python.
        MeshError: The mesh is not valid or has more than 2,048 devices, an axis does not divide, or
            the program cannot be compiled for it.
        ContractError: A size is missing.
    """
    start = time.perf_counter()

    program = program_of("jitney.simulation.simulate()", f, wrt)
    entry, arrays = program.abstract(examples, keywords, sizes)
    chosen = device_of(entry.core.where, device)
    # An empty list is taken as a single mesh, which `_mesh_of` refuses.
    several = mesh if isinstance(mesh, (tuple, list)) and mesh else [mesh]
    meshes = [_mesh_of(entry, given) for given in several]
    arrays = [
        jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
        for shape, dtype, weak in map(aval_parts, arrays)
    ]

    # All meshes are compiled by one process, which has the devices of the largest.
    cases = [Case(entry, arrays, axes) for axes in meshes]
    answers = compile_elsewhere([(case.exported, dict(case.mesh), case.donated) for case in cases])
    if isinstance(answers, CompileFailure):
        count = max(map(_count, meshes))
        raise MeshError(
            entry.core.where,
            f"it could not be compiled for {count} virtual devices: {answers.text}",
            "What a program takes is counted in the compiled program.",
            "try fewer, or look at `f.lower(...)`.",
            code="J252",
        )

    taken = time.perf_counter() - start
    simulations = tuple(
        case.simulation(answer, chosen, taken) for case, answer in zip(cases, answers, strict=True)
    )
    return Sweep(simulations) if isinstance(mesh, (tuple, list)) else simulations[0]


def _count(mesh: Sizes) -> int:
    return math.prod(mesh.values())


def _mesh_of(entry: Specialization, mesh: Any) -> dict[str, int]:
    """Return the sizes of a mesh.

    Raises:
        MeshError: They are not positive whole numbers by axis, or there are too many devices.
        OptionError: There are several devices, and the function is not sharded.
    """
    where, sharded = entry.core.where, entry.core.options.shard is not None
    if mesh is None:
        there = current(entry.core.options.mesh) if sharded else None
        if sharded and there is None:
            raise no_mesh(where)
        mesh = {"device": 1} if there is None else there

    # A mesh object of jitney or JAX.
    if hasattr(mesh, "shape"):
        mesh = dict(mesh.shape)
    sizes = list(mesh.values()) if isinstance(mesh, Mapping) else []
    if not sizes or any(
        not isinstance(size, int) or isinstance(size, bool) or size < 1 for size in sizes
    ):
        raise MeshError(
            where,
            f"mesh={mesh!r} is not a layout.",
            "It is a dict from axis to number of devices.",
            'write mesh={"data": 256}.',
            code="J253",
        )

    if math.prod(sizes) > MOST:
        raise MeshError(
            where,
            f"the mesh has {math.prod(sizes)} devices.",
            f"A process has at most {MOST} virtual devices to compile for.",
            "simulate smaller meshes, mesh=[...], and see what the figures do along each axis.",
            code="J252",
        )
    if not sharded and math.prod(sizes) > 1:
        raise OptionError(
            where,
            f"it is not sharded, and the mesh has {math.prod(sizes)} devices.",
            "Without `shard` each device would do all of it.",
            'decorate it with @jitney.optimize(shard={"batch": "data"}), or leave `mesh` out for'
            " one device.",
            code="J208",
        )
    return dict(mesh)
