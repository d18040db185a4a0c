"""Widest chunk of an axis that fits into memory, by compiled byte counts instead of estimates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ..._errors import OptionError, Where
from ..._extent import AUTO, parsed_bytes
from ..._host.limits import host_memory

# the first two widths to be compiled are these fractions of the widest
_NARROW, _WIDE = 32, 4
# number of secant steps; after these the width is halved each time
_LINES = 2


@dataclass(frozen=True)
class Fit:
    """A width that fits.

    Args:
        width: Number of elements of the axis.
        estimate: Bytes by linear extrapolation from two other widths; None if the whole axis fits.
        measured: Bytes of temporaries and arguments, counted by the compiler.
        budget: Bytes that they may take.
    """

    width: int
    estimate: int | None
    measured: int
    budget: int

    def __str__(self) -> str:
        counted = f"{text(self.measured)} by the compiler, of {text(self.budget)}"
        if self.estimate is None or text(self.estimate) == text(self.measured):
            return counted
        return f"{counted}; extrapolated from two widths: {text(self.estimate)}"


@dataclass(frozen=True)
class Misfit:
    """No width fits, not even one element.

    Args:
        least: A budget, in bytes, that would do.
    """

    least: int


def compiled_bytes(
    fn: Callable[..., object],
    avals: Sequence[object],
    shardings: Sequence[object] | None = None,
) -> int:
    """Return the bytes that a program takes on one device in addition to its results: temporaries
    and arguments, as the compiler counts them.
    """
    jitted = jax.jit(fn) if shardings is None else jax.jit(fn, in_shardings=tuple(shardings))
    return counted_bytes(jitted.lower(*avals).compile())


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes that a compiled program takes on one device, as the compiler counts them."""

    temporaries: int
    arguments: int


def memory_usage(compiled: jax.stages.Compiled) -> MemoryUsage:
    usage: Any = compiled.memory_analysis()
    return MemoryUsage(int(usage.temp_size_in_bytes), int(usage.argument_size_in_bytes))


def counted_bytes(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of temporaries and arguments of a compiled program."""
    usage = memory_usage(compiled)
    return usage.temporaries + usage.arguments


def fit(measure: Callable[[int], int], most: int, budget: int) -> Fit | Misfit:
    """Find a width close to the widest that fits, by the secant method: a line through two widths
    predicts the next one, until the compiler confirms that it fits.

    Args:
        measure: Bytes at a width.
        most: The widest possible width.
        budget: Bytes.
    """
    narrow, wide = max(1, most // _NARROW), max(1, most // _WIDE)
    seen = {width: measure(width) for width in (narrow, wide)}
    below, above = (narrow, seen[narrow]), (wide, seen[wide])

    # Bytes need not be linear in the width, so each width that does not fit becomes an upper limit.
    limit = most
    for tried in itertools.count():
        width = _by_line(
            below,
            above,
            budget,
            limit if tried < _LINES else max(1, limit // 2),
        )
        estimate = _on_line(below, above, width)
        if width not in seen:
            seen[width] = measure(width)
        if seen[width] <= budget:
            return Fit(width, estimate, seen[width], budget)
        if width == 1:
            break

        # The next line goes through the new point and the narrower of the two others.
        limit = width - 1
        below, above = (
            ((width, seen[width]), below) if width < below[0] else (below, (width, seen[width]))
        )

    # Nor need they grow with it: where the line leads past a width that fits, that one is taken.
    fitting = [width for width, taken in seen.items() if taken <= budget]
    if not fitting:
        # These widths are tried with each budget, so this one is enough.
        return Misfit(min(seen[width] for width in (1, narrow, wide)))
    widest = max(fitting)
    return Fit(widest, None, seen[widest], budget)


def _by_line(
    a: tuple[int, int],
    b: tuple[int, int],
    budget: int,
    limit: int,
) -> int:
    """Return the width at which the line through two points meets the budget, up to the limit."""
    slope = _slope(a, b)
    width = limit
    if slope > 0:
        width = int(min(limit, a[0] + (budget - a[1]) / slope))
    # Round down to a multiple of `_ROUND`, unless the width is an end point or short.
    return max(1, width if width in (limit, b[0]) or width < _ROUND else width - width % _ROUND)


def _on_line(a: tuple[int, int], b: tuple[int, int], width: int) -> int:
    return int(a[1] + _slope(a, b) * (width - a[0]))


def _slope(a: tuple[int, int], b: tuple[int, int]) -> float:
    """Return the bytes of an element, from two widths; 0 if they are the same."""
    if a[0] == b[0]:
        return 0.0
    return (b[1] - a[1]) / (b[0] - a[0])


# widths above this are multiples of it
_ROUND = 128


class Most:
    """Upper limit of `memory="auto"`, set by `jitney.configure`."""

    bytes: int | None = None


MOST = Most()


def free_bytes() -> int:
    """Return the budget of `memory="auto"`: all free memory of a device, or half of the host's, but
    no more than `jitney.configure(memory=...)` allows.
    """
    stats = jax.local_devices()[0].memory_stats()

    # CPU devices have no `memory_stats`.
    of_device = bool(stats) and "bytes_limit" in stats
    free = (
        int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
        if of_device
        else host_memory()[1] // 2
    )
    return free if MOST.bytes is None else min(free, MOST.bytes)


def budget_of(where: Where | str, memory: object) -> int:
    """Convert the option `memory=` of a function to bytes.

    Raises:
        OptionError: It is not a size.
    """
    size = parsed_bytes(memory)
    if size is None:
        raise OptionError(
            where,
            f"memory={memory!r} is not a size.",
            'It is a number of bytes, a text with a unit, or "auto".',
            'write memory="2GiB".',
            code="J220",
        )
    return free_bytes() if size == AUTO else int(size)


def text(count: float) -> str:
    """Format a number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < _STEP:
            return f"{count:.4g} {unit}"
        count /= _STEP
    return f"{count:.4g} GiB"


_STEP = 1024
