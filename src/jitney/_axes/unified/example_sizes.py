"""Sizes at which a function is traced where no trace with symbolic sizes goes through.

The size of the call is one of them, beside two others of its range, or near it, that are unlike all
sizes of the call: first of both parities in turn, so that n // 2 is no expression of n alone, and
what differs for odd sizes is none that grows with n; then once of the call's own residue by 12, 4
or 2, for code that asks for it.

    n if n % 2 else n // 2      3, 5, 7  at sizes 3, 5 and 14: min(n, 7), which no other size has
                                2, 5, 7  at sizes 4, 5 and 14: nothing; it asks for the parity
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from ..interpreter import Ranges
from .fitted_dims import Sample

_STEPS = (1, 12, 4, 2)
_REACH = 48
_MOST = 2
# Among fewer sizes than these, no two are taken for parities in turn: those far apart tell more.
_FEW = 8
# Sizes at the low and the high end of a range that are left out if others do: code asks for a power
# of two, for its neighbour, and for two.
_ENDS = ((1, 2), (1, 1), (0, 0))


def example_sizes(
    known: Mapping[str, int],
    ranges: Ranges,
    taken: Collection[int],
) -> Iterator[list[Sample]]:
    """Yield sets of sizes, each to be tried if no program could be made from those before.

    Args:
        known: Symbol -> the size of the call.
        ranges: Symbol -> the least and the largest size it stands for.
        taken: Other sizes of the call.
    """
    tried: list[list[Sample]] = []
    for step in _STEPS:
        used = set(taken)
        others: dict[str, tuple[int, int]] = {}
        for name, size in known.items():
            pair = _two_others(
                size,
                ranges[name],
                used,
                step,
            )
            if pair is None:
                break
            others[name] = pair
            used.update(pair)
        if len(others) < len(known):
            continue

        # Each symbol alone, so that it is seen which one a number depends on; then all of them.
        samples: list[Sample] = [dict(known)]
        if len(known) > 1:
            samples += [{**known, name: pair[0]} for name, pair in others.items()]
        samples += [{name: pair[i] for name, pair in others.items()} for i in (0, 1)]
        if samples not in tried:
            tried.append(samples)
            yield samples
        if len(tried) == _MOST:
            return


def _two_others(
    size: int,
    bounds: tuple[int, int],
    used: Collection[int],
    step: int,
) -> tuple[int, int] | None:
    """Two sizes at multiples of the step from a size; None if there are none."""
    if size < 2:
        return None
    low, high = bounds
    near = range(
        size - _REACH * step,
        size + _REACH * step + 1,
        step,
    )
    free = [other for other in near if other > 1 and other != size and other not in used]

    for below, above in _ENDS:
        inside = [other for other in free if low + below <= other <= high - above]
        if len(inside) < 2:
            continue
        first, last = _apart(size, inside)
        if step == 1 and len(inside) >= _FEW:
            return _in_turn(size, (first, last), inside)
        if step == 1 and len({each % 2 for each in (size, first, last)}) == 1:
            mixed = [other for other in inside if other % 2 != size % 2]
            first = min(mixed, key=lambda other: abs(other - first))
        return first, last

    # Few sizes in the range: the nearest, of the same power of two if there are such.
    def distance(other: int) -> tuple[bool, int]:
        return (other - 1).bit_length() != (size - 1).bit_length(), abs(other - size)

    outside = sorted(free, key=distance)
    return (outside[0], outside[1]) if len(outside) > 1 else None


def _apart(
    size: int,
    inside: Sequence[int],
) -> tuple[int, int]:
    """The first and the last of these sizes; for one that is near the size, one in the middle."""
    first, last = inside[0], inside[-1]
    if 0 < size - last < 3:
        last = min(inside[1:], key=lambda other: abs(2 * other - first - size))
    elif first == size + 1:
        first = min(inside[:-1], key=lambda other: abs(2 * other - last - size))
    return first, last


def _in_turn(
    size: int,
    pair: tuple[int, int],
    inside: Sequence[int],
) -> tuple[int, int]:
    """The two of these sizes next to a pair that, with the size, are odd and even in turn."""
    near = [sorted(inside, key=lambda other: abs(other - each))[:5] for each in pair]
    pairs = ((one, two) for one, two in product(*near) if one != two)
    found = [(one, two) for one, two in pairs if _alternate(size, one, two)]
    first, last = pair

    def distance(each: tuple[int, int]) -> int:
        return abs(each[0] - first) + abs(each[1] - last)

    return min(found, key=distance, default=pair)


def _alternate(*sizes: int) -> bool:
    low, middle, high = sorted(sizes)
    return low % 2 != middle % 2 != high % 2
