"""How long a step takes at best: by the speed of a device, of its memory and of its links. A model,
not a measurement.

A step takes no less than its operations at peak speed, its bytes at the bandwidth of the memory
(Williams, Waterman and Patterson, Communications of the ACM 52, 2009), and its collectives. A
collective of n devices takes the latency of its messages and the time of its bytes, after the
algorithms of least cost in Thakur, Rabenseifner and Gropp, International Journal of High
Performance Computing Applications 19, 2005: an all-reduce sends 2(n-1)/n of its bytes in 2 log2(n)
steps, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._jax.jaxprs import called, opened, programs
from .._saving import of_equation
from .device import Device


@dataclass(frozen=True)
class Links:
    """What the devices of a collective have between them.

    Args:
        devices: How many take part in one.
        network: Whether they are of several nodes.
        bandwidth: Bytes/s that each sends.
        latency: Of one message, in seconds.
    """

    devices: int
    network: bool
    bandwidth: float
    latency: float


def links(mesh: Mapping[str, int], along: Sequence[str], device: Device) -> Links:
    """The links along axes of a mesh whose devices are counted row by row: the last axis lies
    within a node as far as that is large.

    Of a collective between nodes each member in a node drives its own port; it goes no faster than
    the fast links.
    """
    names = list(mesh)
    order = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    axes = [names.index(name) for name in along]
    rows: Any = np.moveaxis(order, axes, range(-len(axes), 0)).reshape(
        -1, math.prod(mesh[name] for name in along)
    )
    nodes = [len(set(row)) for row in (rows // device.group).tolist()]
    count, most = rows.shape[1], max(nodes)
    if most == 1:
        return Links(count, network=False, bandwidth=device.link, latency=device.link_latency)
    ports = count / most
    return Links(
        count,
        network=True,
        bandwidth=min(device.link, ports * device.network),
        latency=device.network_latency,
    )


def sends(kind: str, size: int, devices: int) -> tuple[float, int]:
    """The bytes that each device sends in a collective, and in how many messages one after the
    other.

    Args:
        kind: What XLA calls it.
        size: Bytes of its result on one device.
        devices: How many take part.
    """
    n, steps = devices, math.ceil(math.log2(devices))
    by_kind: dict[str, tuple[float, int]] = {
        "all-reduce": (2 * (n - 1) / n * size, 2 * steps),
        "all-gather": ((n - 1) / n * size, steps),
        "reduce-scatter": ((n - 1) * size, steps),  # its result is an n-th of what it reduces
        "all-to-all": ((n - 1) / n * size, steps),
        "collective-permute": (size, 1),
        "collective-broadcast": (size, steps),
    }
    return by_kind[kind] if n > 1 else (0.0, 0)


def seconds_of(kind: str, size: int, between: Links) -> float:
    """How long a collective takes at best; see `sends`."""
    sent, messages = sends(kind, size, between.devices)
    return sent / between.bandwidth + messages * between.latency


def products_by_type(jaxpr: Any) -> dict[str, int]:
    """Operations of the products in a program, by the type in which they are multiplied, all
    devices together.

    The compiler for CPUs widens products of 16 bits, so that only the program itself tells.
    """
    counts: dict[str, int] = {}
    for eqn in opened(jaxpr)[0].eqns:
        program = called(eqn)
        inner = programs(eqn.params) if program is None else [program]
        if inner:
            turns = int(eqn.params["length"]) if eqn.primitive.name == "scan" else 1
            for program in inner:
                for kind, count in products_by_type(program).items():
                    counts[kind] = counts.get(kind, 0) + turns * count
        elif eqn.primitive.name in ("dot_general", "conv_general_dilated"):
            kind = _kind_of(eqn)
            counts[kind] = counts.get(kind, 0) + of_equation(eqn)
    return counts


def _kind_of(eqn: Any) -> str:
    """The type that a product is computed in, as `Device.peak` calls it."""
    kinds = [np.dtype(var.aval.dtype) for var in eqn.invars[:2]]
    bits = max(8 * kind.itemsize // (2 if kind.kind == "c" else 1) for kind in kinds)
    name = max(kinds, key=lambda kind: kind.itemsize).name
    if bits == _BYTE:
        return "fp8" if "float8" in name else "int8"
    if bits == 2 * _BYTE:
        return "bf16" if name == "bfloat16" else "fp16"
    highest = "HIGHEST" in str(eqn.params["precision"])
    return "f64" if bits > 4 * _BYTE else "f32" if highest else "tf32"


_BYTE = 8
