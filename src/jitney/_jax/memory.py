"""How much of an axis fits into memory: measured on what the compiler makes of it, not guessed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .._errors import OptionError, Where
from .._extent import AUTO, parsed_bytes
from .._limits import host_memory

_jax: Any = jax
_NARROW, _WIDE = 32, 4  # the widths through which the line goes are these parts of the widest
_LINES = 2  # so often a line says how wide; from then on the width is halved


@dataclass(frozen=True)
class Fit:
    """A width that fits.

    Args:
        width: How many elements of the axis.
        estimate: Bytes, by the line through two other widths; None if the whole axis fits.
        measured: Bytes of its temporaries and arguments, by the compiler.
        budget: How many they may be.
    """

    width: int
    estimate: int | None
    measured: int
    budget: int

    def __str__(self) -> str:
        counted = f"{text(self.measured)} by the compiler, of {text(self.budget)}"
        if self.estimate is None or text(self.estimate) == text(self.measured):
            return counted
        return f"{counted}; the line through two widths had said {text(self.estimate)}"


class Misfit(Exception):
    """Nothing fits.

    Args:
        least: The smallest budget that would do, of those measured.
    """

    def __init__(self, least: int):
        super().__init__(least)
        self.least = least


def compiled_bytes(
    fn: Callable[..., Any], avals: Sequence[Any], shardings: Sequence[Any] | None = None
) -> int:
    """What a program takes besides its results: temporaries and arguments, as the compiler counts
    them, on one device.
    """
    jitted = _jax.jit(fn) if shardings is None else _jax.jit(fn, in_shardings=tuple(shardings))
    return counted_bytes(jitted.lower(*avals).compile())


def counted_bytes(compiled: Any) -> int:
    """The temporaries and arguments of a compiled program."""
    usage = compiled.memory_analysis()
    return int(usage.temp_size_in_bytes) + int(usage.argument_size_in_bytes)


def fit(measure: Callable[[int], int], most: int, budget: int) -> Fit:
    """The widest chunk that fits, nearly: a line through two widths says which, and is put right
    where the compiler disagrees.

    Args:
        measure: Bytes at a width.
        most: The widest that is asked for.
        budget: Bytes.

    Raises:
        Misfit: Not one element fits.
    """
    narrow, wide = max(1, most // _NARROW), max(1, most // _WIDE)
    seen = {width: measure(width) for width in (narrow, wide)}
    below, above = (narrow, seen[narrow]), (wide, seen[wide])
    limit = most
    for tried in itertools.count():
        width = _by_line(below, above, budget, limit if tried < _LINES else max(1, limit // 2))
        estimate = _on_line(below, above, width)
        if width not in seen:
            seen[width] = measure(width)
        if seen[width] <= budget:
            return Fit(width, estimate, seen[width], budget)
        if width == 1:
            break
        limit = width - 1
        below, above = (
            ((width, seen[width]), below) if width < below[0] else (below, (width, seen[width]))
        )
    raise Misfit(min(seen.values()))


def _by_line(a: tuple[int, int], b: tuple[int, int], budget: int, limit: int) -> int:
    """The width at which the line through two others meets the budget, and no more than the
    limit.
    """
    slope = (b[1] - a[1]) / (b[0] - a[0]) if b[0] != a[0] else 0.0
    width = int(min(limit, a[0] + (budget - a[1]) / slope)) if slope > 0 else limit
    return max(1, width if width in (limit, b[0]) or width < _ROUND else width - width % _ROUND)


def _on_line(a: tuple[int, int], b: tuple[int, int], width: int) -> int:
    return int(a[1] + (b[1] - a[1]) / (b[0] - a[0]) * (width - a[0])) if b[0] != a[0] else a[1]


_ROUND = 128  # widths are multiples of this where they are longer


class Most:
    """What `memory="auto"` takes at most, if `jitney.configure` has said so."""

    bytes: int | None = None


MOST = Most()


def free_bytes() -> int:
    """What `memory="auto"` is: of a device all that is free, of the host a half; and no more than
    `jitney.configure(memory=...)` says.
    """
    stats: Any = _jax.local_devices()[0].memory_stats()
    of_device = bool(stats) and "bytes_limit" in stats
    free = (
        int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
        if of_device
        else host_memory()[1] // 2
    )
    return free if MOST.bytes is None else min(free, MOST.bytes)


def budget_of(where: Where | str, memory: Any) -> int:
    """What `memory=` of a function comes to, in bytes.

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
    """A number of bytes, to be read."""
    for unit in ("B", "KiB", "MiB"):
        if count < _STEP:
            return f"{count:.4g} {unit}"
        count /= _STEP
    return f"{count:.4g} GiB"


_STEP = 1024
