"""Match of the arrays of a call against an exported program: shapes, in which some sizes may be
symbolic expressions, dtypes and weak types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from ..._extent import Unreadable, read_dim
from ..._view.layout import aval_parts
from ..._view.named_axes import in_names
from ..header import (
    ArrayEntry,
    PaddingEntry,
    ProgramEntry,
    Symbol,
)
from ..values import Data


class GivenArray(TypedDict):
    """Shape, dtype and weak type of an array of a call."""

    shape: tuple[int, ...]
    dtype: str
    weak: bool


def fits(
    program: ProgramEntry,
    arrays: Sequence[object],
    bound: Collection[int],
) -> bool:
    """Return whether the arrays of a call match a program. Dtypes of bound arrays always do, and
    their sizes where no axis of theirs is padded.

    Args:
        program: Its entry in the header.
        arrays: Arrays of the call.
        bound: Numbers of the arrays that the program is bound to.
    """
    pairs = [
        (aval, *aval_parts(array)) for aval, array in zip(program["arrays"], arrays, strict=True)
    ]
    if any(
        str(dtype) != aval["dtype"] or weak != aval["weak"] or len(shape) != len(aval["shape"])
        for i, (aval, shape, dtype, weak) in enumerate(pairs)
        if i not in bound
    ):
        return False

    # Solve for the symbols from axes that are a bare symbol, then evaluate the other expressions.
    symbols = program["symbols"]
    axes = [
        (size, told)
        for aval, shape, _, _ in pairs
        for size, told in zip(shape, aval["shape"], strict=True)
    ]
    known = {told: size for size, told in axes if isinstance(told, str) and told in symbols}
    for symbol, (_, low, high) in symbols.items():
        if not low <= known.get(symbol, low) <= high:
            return False
    return all(size == _at(told, known) for size, told in axes)


def sizes_of(told: ProgramEntry, arrays: Sequence[object]) -> dict[str, int]:
    """The sizes of the axes of a call that fits a program."""
    sizes = {name: size for name, size in told["sizes"].items() if isinstance(size, int)}
    for entry, array in zip(told["arrays"], arrays, strict=True):
        for size, own in zip(entry["shape"], aval_parts(array)[0], strict=True):
            if isinstance(size, str) and size in told["symbols"]:
                sizes[told["symbols"][size][0]] = own
    return sizes


def takes(
    told: ProgramEntry,
    arrays: Sequence[object],
    bound: Collection[int],
) -> bool:
    """Return whether a program takes the arrays of a call; that of a bucket may leave out sizes."""
    return fits(told, arrays, bound) and not lacks_numbers(told, arrays)


def lacks_numbers(told: ProgramEntry, arrays: Sequence[object]) -> bool:
    """Return whether a file does not have what Python computes from the sizes of a call that fits a
    program.
    """
    padding = told.get("padding")
    return padding is not None and numbers_at(padding, sizes_of(told, arrays)) is None


def numbers_at(
    padding: PaddingEntry,
    sizes: Mapping[str, int],
) -> Sequence[Data] | None:
    """The numbers that Python computes from sizes; None if the file does not have them."""
    numbers = padding["numbers"]
    if numbers is None:
        return []
    own = [sizes[name] for name in padding["axes"]]
    return next((values for at, values in numbers if at == own), None)


def _at(told: int | str, sizes: Mapping[str, int]) -> object:
    if not isinstance(told, str):
        return told
    try:
        return read_dim(told).at(sizes)
    except Unreadable:
        return None


def one_line(aval: ArrayEntry, symbols: Mapping[str, Symbol]) -> str:
    """Format an array as `x: float32[100]`, or `x: float32[n]` for a size of a range."""
    names = [name for name, _, _ in symbols.values()]
    shape = ",".join(in_names(str(size), names) for size in aval["shape"])
    return f"{aval['path']}: {aval['dtype']}[{shape}]{' (weak)' if aval['weak'] else ''}"


def nearest(
    programs: Sequence[ProgramEntry], arrays: Sequence[object]
) -> tuple[list[str], list[str], str]:
    """Return the arrays of a call that the nearest program does not take, the arrays that it takes
    instead, and its range of sizes.

    If every array matches a program for a range on its own, the arrays returned are those with a
    size outside of the range, or with sizes that contradict each other.
    """
    given: list[GivenArray] = [
        {"shape": shape, "dtype": str(dtype), "weak": weak}
        for shape, dtype, weak in map(aval_parts, arrays)
    ]
    differing = [
        [i for i, aval in enumerate(program["arrays"]) if not _matches_entry(aval, given[i])]
        for program in programs
    ]

    # Nearest: the fewest arrays that differ, then the smallest difference of known sizes.
    closest = min(
        range(len(programs)),
        key=lambda number: (len(differing[number]), _distance(programs[number], given)),
    )
    program = programs[closest]
    at = differing[closest] or _mismatched_arrays(program, given) or range(len(arrays))
    told = [one_line({**given[i], "path": program["arrays"][i]["path"]}, {}) for i in at]
    ranges = " and ".join(
        f"{name} from {low} to {high}" for name, low, high in program["symbols"].values()
    )
    return told, [one_line(program["arrays"][i], program["symbols"]) for i in at], ranges


def _distance(program: ProgramEntry, given: Sequence[GivenArray]) -> int:
    """Sum of the differences between the sizes of a program and those of a call; of a range, to its
    nearer end.
    """
    ends = {symbol: (low, high) for symbol, (_, low, high) in program["symbols"].items()}
    shapes = [
        (aval["shape"], array["shape"])
        for aval, array in zip(program["arrays"], given, strict=True)
    ]
    distance = 0
    for told, size in (pair for shape in shapes for pair in zip(*shape, strict=False)):
        # An expression of a symbol has no ends of its own.
        low, high = (told, told) if isinstance(told, int) else ends.get(told, (size, size))
        distance += max(low - size, size - high, 0)
    return distance


def _mismatched_arrays(program: ProgramEntry, given: Sequence[GivenArray]) -> list[int]:
    """Return the arrays with a size that is outside of its symbol's range, contradicts the same
    symbol in another array, or differs from the value of its expression.
    """
    symbols = program["symbols"]
    shapes = [
        (aval["shape"], array["shape"])
        for aval, array in zip(program["arrays"], given, strict=True)
    ]
    sizes: dict[str, set[int]] = {}
    for told_sizes, given_sizes in shapes:
        for told, size in zip(told_sizes, given_sizes, strict=True):
            if isinstance(told, str) and told in symbols:
                sizes.setdefault(told, set()).add(size)
    within = {name: range(low, high + 1) for name, (_, low, high) in symbols.items()}
    bad: set[int | str] = set()
    for name, values in sizes.items():
        if len(values) > 1 or not all(size in within[name] for size in values):
            bad.add(name)
    known = {name: max(values) for name, values in sizes.items()}

    def fits_in(told: int | str, size: int) -> bool:
        return told not in bad and _at(told, known) == size

    return [
        i
        for i, shape in enumerate(shapes)
        if not all(fits_in(told, size) for told, size in zip(*shape, strict=True))
    ]


def _matches_entry(told: ArrayEntry, given: GivenArray) -> bool:
    same = (
        told["dtype"] == given["dtype"]
        and told["weak"] == given["weak"]
        and len(told["shape"]) == len(given["shape"])
    )
    return same and all(
        isinstance(a, str) or a == b for a, b in zip(told["shape"], given["shape"], strict=True)
    )
