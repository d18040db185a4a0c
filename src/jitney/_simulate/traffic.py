"""What the devices of a program send each other, in the types and forms that it has on other
devices than CPUs.

XLA's compiler for CPUs widens numbers of 16 bits before it compiles, collectives too, and knows no
reduce-scatter: that remains an all-reduce, of which each device then cuts its part. Compilers for
GPUs and TPUs make a reduce-scatter of such a pair, which sends half. So how often a collective runs
is read in the compiled program, and what it sends in the program as XLA had divided it among the
devices. What that takes of a link is in `roofline.py` (`sends`, `seconds_of`), and it is added up
in `lowering.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._jax.hlo import Operation, bits, collectives
from .._jax.hlo_work import Work


@dataclass(frozen=True)
class Sent:
    """One collective."""

    kind: str
    bytes: int  # of its result, on one device
    along: tuple[str, ...]
    computation: str  # of the compiled program that it stands in


def sent(text: str, divided: str, mesh: Mapping[str, int]) -> list[Sent]:
    """The collectives of a compiled program, and of what it was when it had been divided."""
    before = _by_size(divided, mesh)
    transfers: list[Sent] = []
    for collective in collectives(text, mesh):
        sizes: dict[str, int] = {}
        for dtype, shape in collective.arrays:
            known = before.get((collective.kind, collective.along, math.prod(shape)), [])
            own = (
                collective.kind,
                bits(dtype) * math.prod(shape) // (16 if collective.widened else 8),
            )
            kind, size = own if not known else known.pop(0) if len(known) > 1 else known[0]
            sizes[kind] = sizes.get(kind, 0) + size
        transfers += [
            Sent(kind, size, collective.along, collective.computation)
            for kind, size in sizes.items()
        ]
    return transfers


def _by_size(
    divided: str, mesh: Mapping[str, int]
) -> dict[tuple[str, tuple[str, ...], int], list[tuple[str, int]]]:
    """Kinds and bytes, by what a collective looks like once it is compiled: kind, axes and
    elements.
    """
    if not divided:
        return {}
    cuts = Work(divided).cuts()
    kinds: dict[tuple[str, tuple[str, ...], int], list[tuple[str, int]]] = {}
    for collective in collectives(divided, mesh):
        for dtype, shape in collective.arrays:
            count = math.prod(shape)
            kind, kept = _kept(collective, count, cuts, [mesh[axis] for axis in collective.along])
            kinds.setdefault((collective.kind, collective.along, count), []).append(
                (kind, bits(dtype) * kept // 8)
            )
    return kinds


def _kept(
    collective: Operation, count: int, cuts: Mapping[str, int], sizes: Sequence[int]
) -> tuple[str, int]:
    """What a collective is elsewhere, and how many elements each device gets."""
    if collective.kind == "all-reduce" and cuts.get(collective.name, 0) * math.prod(sizes) == count:
        return "reduce-scatter", cuts[collective.name]
    return collective.kind, count
