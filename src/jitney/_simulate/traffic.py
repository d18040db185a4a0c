"""Collectives of a partitioned program, in the types and forms that devices other than CPUs have.

XLA's compiler for CPUs widens numbers of 16 bits before it compiles, collectives too, and has no
reduce-scatter: there it stays an all-reduce, and each device then cuts out its part. Compilers for
GPUs and TPUs make a reduce-scatter of such a pair, which sends half. So the number of runs of a
collective is read from the compiled program, and its kind and bytes from the program after
partitioning. `roofline.py` has the seconds (`sends`, `seconds_of`), and `lowering.py` adds them up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._jax.xla.hlo import HloCollective, bits, collectives
from .._jax.xla.hlo_work import ProgramCost


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
