"""Roofline model: lower bounds of a step's seconds by the speed of device, memory and links.

A step takes no less than its operations at peak speed, its bytes at the bandwidth of the memory
(Williams, Waterman and Patterson, Communications of the ACM 52, 2009), and its collectives. A
collective of n devices takes the latency of its messages and the time of its bytes, after the
algorithms of least cost in Thakur, Rabenseifner and Gropp, International Journal of High
Performance Computing Applications 19, 2005: an all-reduce sends 2(n-1)/n of its bytes in 2 log2(n)
steps, and so on.

The collectives are those of a partitioned program, in the types and forms that devices other than
CPUs have. XLA's compiler for CPUs widens numbers of 16 bits before it compiles, collectives too,
and has no reduce-scatter: there it stays an all-reduce, and each device then cuts out its part.
Compilers for GPUs and TPUs make a reduce-scatter of such a pair, which sends half. So the number of
runs of a collective is read from the compiled program, and its kind and bytes from the program
after partitioning. `lowering.py` adds up the seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .._jax.programs.jaxprs import called_jaxpr, open_jaxpr, programs
from .._jax.typed import AnyJaxpr, JaxprEqn
from .._jax.xla.hlo import HloCollective, bits, collectives
from .._jax.xla.hlo_work import ProgramCost
from .._remat import of_equation
from .device import Device


@dataclass(frozen=True)
class Links:
    """Links between the devices of a collective.

    Args:
        devices: Number of devices in one collective.
        network: True if they are in several nodes.
        bandwidth: Bytes/s that each sends.
        latency: Latency of one message, in seconds.
    """

    devices: int
    network: bool
    bandwidth: float
    latency: float


def links(
    mesh: Mapping[str, int],
    along: Sequence[str],
    device: Device,
) -> Links:
    """Return the links along axes of a mesh.

    Devices are counted row by row: the last axis is within a node as far as that is large. In a
    collective between nodes each member in a node drives its own port, up to the speed of the fast
    links.
    """
    names = list(mesh)
    order = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    axes = [names.index(name) for name in along]
    # Device numbers with the given axes last: each row is one group of a collective.
    rows = np.moveaxis(order, axes, range(-len(axes), 0)).reshape(
        -1, math.prod(mesh[name] for name in along)
    )

    # Nodes that each group spans; the group with the most is the slowest.
    nodes = [len(set(row)) for row in (rows // device.group).tolist()]
    count, most = rows.shape[1], max(nodes)
    if most == 1:
        return Links(count, network=False, bandwidth=device.link, latency=device.link_latency)

    # Members in the same node, each with a port of its own.
    ports = count / most
    return Links(
        count,
        network=True,
        bandwidth=min(device.link, ports * device.network),
        latency=device.network_latency,
    )


def sends(kind: str, size: int, devices: int) -> tuple[float, int]:
    """Return the bytes that each device sends in a collective, and the consecutive messages.

    Args:
        kind: XLA's name.
        size: Bytes of its result on one device.
        devices: Number of devices in it.
    """
    n, steps = devices, math.ceil(math.log2(devices))
    by_kind: dict[str, tuple[float, int]] = {
        "all-reduce": (2 * (n - 1) / n * size, 2 * steps),
        "all-gather": ((n - 1) / n * size, steps),
        # (n-1)/n of its operand, which has n times the bytes of its result.
        "reduce-scatter": ((n - 1) * size, steps),
        "all-to-all": ((n - 1) / n * size, steps),
        "collective-permute": (size, 1),
        "collective-broadcast": (size, steps),
    }
    return by_kind[kind] if n > 1 else (0.0, 0)


def seconds_of(kind: str, size: int, between: Links) -> float:
    """Return the lower bound of a collective's seconds; see `sends`."""
    sent, messages = sends(kind, size, between.devices)
    return sent / between.bandwidth + messages * between.latency


def products_by_type(jaxpr: AnyJaxpr) -> dict[str, int]:
    """Return the operations of products in a jaxpr by the type of their operands, over all devices.

    They are counted in the jaxpr, since the compiler for CPUs widens products of 16 bits.
    """
    counts: dict[str, int] = {}
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        program = called_jaxpr(eqn)
        # Calls have one sub-jaxpr; loops and branches may have several, all of which count.
        inner = programs(eqn.params) if program is None else [program]
        if inner:
            # The length of a scan is known; a while loop counts as one iteration.
            turns = int(eqn.params["length"]) if eqn.primitive.name == "scan" else 1
            for program in inner:
                for kind, count in products_by_type(program).items():
                    counts[kind] = counts.get(kind, 0) + turns * count
        elif eqn.primitive.name in ("dot_general", "conv_general_dilated"):
            kind = _kind_of(eqn)
            counts[kind] = counts.get(kind, 0) + of_equation(eqn)
    return counts


def _kind_of(eqn: JaxprEqn) -> str:
    """Return the type in which a product is computed, as a key of `Device.peak`."""
    kinds = [np.dtype(var.aval.dtype) for var in eqn.invars[:2]]
    # The wider of the two operands decides, and a complex number is two real ones.
    bits = max(8 * kind.itemsize // (2 if kind.kind == "c" else 1) for kind in kinds)
    name = max(kinds, key=lambda kind: kind.itemsize).name
    if bits == _BYTE:
        return "fp8" if "float8" in name else "int8"
    if bits == 2 * _BYTE:
        return "bf16" if name == "bfloat16" else "fp16"
    highest = "HIGHEST" in str(eqn.params["precision"])
    return "f64" if bits > 4 * _BYTE else "f32" if highest else "tf32"


_BYTE = 8


@dataclass(frozen=True)
class Transfer:
    """Collective of a compiled program.

    Args:
        kind: Its kind on devices other than CPUs.
        bytes: Bytes of its result, on one device.
        along: Axes of the mesh between whose devices it runs.
        computation: Computation of the compiled program that contains it.
    """

    kind: str
    bytes: int
    along: tuple[str, ...]
    computation: str


def transfers_of(
    text: str,
    divided: str,
    mesh: Mapping[str, int],
) -> list[Transfer]:
    """Return the collectives of a compiled program, as they are on other devices.

    Args:
        text: The compiled program.
        divided: The program after partitioning.
        mesh: Number of devices along each axis.
    """
    before = _by_size(divided, mesh)
    transfers: list[Transfer] = []
    for collective in collectives(text, mesh):
        sizes: dict[str, int] = {}
        for dtype, shape in collective.arrays:
            # Match the two programs by kind, axes and elements, in their order. The last match of a
            # key is not used up, as the compiled program may have more of them.
            known = before.get((collective.kind, collective.along, math.prod(shape)), [])
            # Without a match the compiled form counts; a widened type has half of its bytes.
            own = (
                collective.kind,
                bits(dtype) * math.prod(shape) // (16 if collective.widened else 8),
            )
            kind, size = own if not known else known.pop(0) if len(known) > 1 else known[0]
            sizes[kind] = sizes.get(kind, 0) + size
        transfers += [
            Transfer(kind, size, collective.along, collective.computation)
            for kind, size in sizes.items()
        ]
    return transfers


def _by_size(
    divided: str, mesh: Mapping[str, int]
) -> dict[tuple[str, tuple[str, ...], int], list[tuple[str, int]]]:
    """Return kinds and bytes of the collectives in the partitioned program.

    The key is the form of a collective in the compiled program: kind, axes and elements.
    """
    if not divided:
        return {}
    cuts = ProgramCost(divided).cuts()
    kinds: dict[tuple[str, tuple[str, ...], int], list[tuple[str, int]]] = {}
    for collective in collectives(divided, mesh):
        for dtype, shape in collective.arrays:
            count = math.prod(shape)
            kind, kept = _reduced_form(
                collective, count, cuts, [mesh[axis] for axis in collective.along]
            )
            kinds.setdefault((collective.kind, collective.along, count), []).append(
                (kind, bits(dtype) * kept // 8)
            )
    return kinds


def _reduced_form(
    collective: HloCollective,
    count: int,
    cuts: Mapping[str, int],
    sizes: Sequence[int],
) -> tuple[str, int]:
    """Return the kind of a collective on other devices, and the elements that each device gets."""
    # The device cuts out a part, and the parts of all devices are the whole: a reduce-scatter.
    if collective.kind == "all-reduce" and cuts.get(collective.name, 0) * math.prod(sizes) == count:
        return "reduce-scatter", cuts[collective.name]
    return collective.kind, count
