"""Parsing of the sizes `points=1e3:1e6` and values `order=3`, before anything is imported."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ..._errors import OptionError
from ..._text.json import Data

WHERE = "python -m jitney bench"
# Sizes of a range that does not give their number.
_POINTS = 10
# Runs, over all combinations of sizes.
_MOST = 1000
_SIZES = (
    "--sizes is `axis=100,200,400`, or a range `axis=1e3:1e6`, with `:20` behind it for as many"
    " sizes; sizes are whole and above 0."
)


def read_sizes(typed: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of each axis, ascending.

    Raises:
        OptionError: A text cannot be parsed, or an axis is named twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in typed:
        axis, _, sizes = text.partition("=")
        if not axis.isidentifier() or not sizes:
            raise _wrong(text, "it names no axis, or no sizes")
        if axis in found:
            raise _wrong(text, f"the axis {axis!r} has sizes already")
        found[axis] = (
            _range(text, sizes.split(":"))
            if ":" in sizes
            else tuple(sorted({_size(text, each) for each in sizes.split(",")}))
        )
    if math.prod(map(len, found.values())) > _MOST:
        what = (
            f"--sizes {' '.join(typed)} asks for more than {_MOST} runs, each size with each other."
        )
        raise OptionError(
            WHERE,
            what,
            "Each of them is compiled.",
            "give fewer sizes: `axis=1e3:1e6:5`.",
            code="J205",
        )
    return found


def read_values(typed: Sequence[str]) -> Data:
    """Return values by parameter: Python literals, and plain text for anything else.

    Raises:
        OptionError: A name is missing, or is given twice.
    """
    found: Data = {}
    for text in typed:
        name, equals, value = text.partition("=")
        if not name.isidentifier() or not equals or name in found:
            what = f"--set {text!r} is not understood, or is there twice."
            raise OptionError(
                WHERE, what, "It gives one parameter a value.", "write --set order=3.", code="J205"
            )
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def combinations(sizes: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Yield each size of an axis with each of the others."""
    for each in itertools.product(*sizes.values()):
        yield dict(zip(sizes, each, strict=True))


def _range(text: str, parts: Sequence[str]) -> tuple[int, ...]:
    """Return the sizes of a range: powers of two if both ends are, else evenly spaced logs."""
    if len(parts) not in (2, 3):
        raise _wrong(text, "a range has two ends")
    low, high = _size(text, parts[0]), _size(text, parts[1])
    if low >= high:
        raise _wrong(text, "a range goes upwards")
    # A number is a power of two if it has no bit in common with its predecessor.
    if len(parts) == 2 and not low & (low - 1) and not high & (high - 1):
        return tuple(1 << i for i in range(low.bit_length() - 1, high.bit_length()))
    count = _size(text, parts[2]) if len(parts) == 3 else _POINTS
    if count == 1 or count > _MOST:
        raise _wrong(text, f"a range has 2 to {_MOST} sizes")
    growth = high / low
    sizes = {round(low * growth ** (i / (count - 1))) for i in range(count)}
    return tuple(sorted(sizes))


def _size(text: str, part: str) -> int:
    try:
        number = float(part)
    except ValueError:
        raise _wrong(text, f"{part!r} is not a size") from None
    if not 1 <= number < 2**53 or number != int(number):
        raise _wrong(text, f"{part!r} is not a size")
    return int(number)


def _wrong(text: str, what: str) -> OptionError:
    return OptionError(
        WHERE,
        f"--sizes {text!r} is not understood: {what}.",
        _SIZES,
        "correct it: --sizes points=1e3:1e6.",
        code="J205",
    )
