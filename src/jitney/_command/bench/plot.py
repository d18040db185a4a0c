"""Self-contained SVG of a measurement: time and memory against size, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ..._jax.xla.memory import text as bytes_text
from ..._text.svg import FRAME, A, B, C, D, picture, words
from .growth import Growth
from .measuring import SizeRun

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 280, 84, 14, 46, 42
_SHOWN: tuple[
    tuple[str, str, tuple[tuple[str, str, Callable[[SizeRun], float | None]], ...]], ...
] = (
    (
        "time",
        "s",
        (
            ("warm call", A, lambda run: run.quartiles[1]),
            ("compile", B, lambda run: run.making if run.programs else None),
        ),
    ),
    (
        "memory",
        "B",
        (
            ("total", A, lambda run: run.memory and run.memory.total),
            ("arguments", B, lambda run: run.memory and run.memory.arguments),
            ("outputs", C, lambda run: run.memory and run.memory.outputs),
            ("temporaries", D, lambda run: run.memory and run.memory.temporaries),
        ),
    ),
)
_TICKS = 6
# Letters of an axis name that fit into the legend.
_SHORT = 7


@dataclass(frozen=True)
class _Scale:
    """Logarithmic map from a figure to a coordinate."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = math.log(self.low), math.log(self.high)
        part = (math.log(value) - low) / (high - low)
        return self.start + part * (self.end - self.start)

    def ticks(self, base: int) -> list[float]:
        """Return powers of `base`, or of a power of it, that leave few enough ticks to read."""
        # Take the finest step with few enough ticks. 1e-9 absorbs the rounding of logarithms, so
        # that a bound which is a power itself gets its tick.
        for step in (base, base**2, base**3, base**6, base**10, base**20):
            first = math.ceil(math.log(self.low, step) - 1e-9)
            found = [
                float(step) ** i
                for i in range(first, math.floor(math.log(self.high, step) + 1e-9) + 1)
            ]
            if len(found) <= _TICKS:
                return found
        return []


def svg(
    title: str,
    runs: Sequence[SizeRun],
    growths: Sequence[Growth],
) -> str:
    """Draw time and memory along the first axis with several sizes.

    Each combination of the other axes' sizes has a line of its own.
    """
    axis = next(
        (axis for axis in runs[0].sizes if len({run.sizes[axis] for run in runs}) > 1),
        next(iter(runs[0].sizes), ""),
    )
    parts = [
        _panel(i, what, unit, shown, runs, axis, growths)
        for i, (what, unit, shown) in enumerate(_SHOWN)
    ]
    high = _HIGH * len(_SHOWN) + 30
    return picture(
        "bench",
        title,
        _WIDE,
        high,
        [words(_LEFT, 20, title, "name"), *parts],
    )


def _panel(
    i: int,
    what: str,
    unit: str,
    shown: Sequence[tuple[str, str, Callable[[SizeRun], float | None]]],
    runs: Sequence[SizeRun],
    axis: str,
    growths: Sequence[Growth],
) -> str:
    values = [value for _, _, figure in shown for run in runs if (value := figure(run))]
    top = 30 + i * _HIGH
    if not values or not axis:
        return (
            f'<text class="soft" x="{_LEFT}" y="{top + _TOP}">{what}:'
            f" {'unknown' if not values else 'no axis has a size'}</text>"
        )

    sizes = [run.sizes[axis] for run in runs]
    # A single size gets an axis from half to twice of it.
    wide = min(sizes) < max(sizes)
    x = _Scale(
        min(sizes) if wide else min(sizes) / 2,
        max(sizes) if wide else max(sizes) * 2,
        _LEFT + 10,
        _WIDE - _RIGHT - 10,
    )
    # A margin by a factor, which is a constant distance on a logarithmic axis.
    y = _Scale(
        min(values) / 1.6,
        max(values) * 1.6,
        top + _HIGH - _BOTTOM,
        top + _TOP,
    )

    return "".join(
        [
            _legend(top, shown, growths, axis, what),
            *(
                f'<path d="M{_LEFT} {y(at):.1f}H{_WIDE - _RIGHT}" {FRAME}/><text'
                f' class="soft" x="{_LEFT - 8}" y="{y(at) + 4:.1f}"'
                f' text-anchor="end">{_figure(at, unit)}</text>'
                for at in y.ticks(2 if unit == "B" or max(values) < 20 * min(values) else 10)
            ),
            *(
                f'<path d="M{x(at):.1f} {y.start:.1f}v5" {FRAME}/><text class="soft"'
                f' x="{x(at):.1f}" y="{y.start + 19:.1f}" text-anchor="middle">{_count(at)}</text>'
                for at in x.ticks(10 if x.high >= 20 * x.low else 2)
            ),
            (f'<path d="M{_LEFT} {y.end}V{y.start:.1f}H{_WIDE - _RIGHT}" fill="none" {FRAME}/>'),
            (
                f'<text class="soft" x="{_WIDE - _RIGHT}" y="{y.start + 34:.1f}"'
                f' text-anchor="end">{escape(axis)}</text>'
            ),
            *(
                _line(name, colour, figure, runs, axis, x, y, unit)
                for name, colour, figure in shown
            ),
        ]
    )


def _legend(
    top: int,
    shown: Sequence[tuple[str, str, object]],
    growths: Sequence[Growth],
    axis: str,
    what: str,
) -> str:
    told = {(growth.of, growth.axis): growth for growth in growths}
    at, parts = _LEFT, ""
    for name, colour, _ in shown:
        growth = told.get(("memory" if name == "total" else name, axis))
        label = (
            f"{name} ~ {axis if len(axis) <= _SHORT else '...'}^{growth.exponent.value:.2f}"
            if growth
            else name
        )
        parts += (
            f'<circle cx="{at + 5}" cy="{top + 22}" r="5" fill="{colour}"/><text'
            f' x="{at + 15}" y="{top + 26}">{escape(label)}</text>'
        )
        at += 30 + 7 * len(label)
    return f"{parts}<title>{what}</title>"


def _line(
    name: str,
    colour: str,
    figure: Callable[[SizeRun], float | None],
    runs: Sequence[SizeRun],
    axis: str,
    x: _Scale,
    y: _Scale,
    unit: str,
) -> str:
    """Draw a line for each combination of the other axes; warm calls have bars of quartiles."""
    groups: dict[tuple[tuple[str, int], ...], list[SizeRun]] = {}
    for run in runs:
        groups.setdefault(
            tuple((other, size) for other, size in run.sizes.items() if other != axis), []
        ).append(run)

    parts: list[str] = []
    for others, several in groups.items():
        points = [
            (run, value)
            for run in sorted(several, key=lambda run: run.sizes[axis])
            if (value := figure(run))
        ]
        with_others = "".join(f", {other}={size}" for other, size in others)
        line = " ".join(f"{x(run.sizes[axis]):.1f},{y(value):.1f}" for run, value in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        for run, value in points:
            place = x(run.sizes[axis])
            if name == "warm call":
                low, _, high = run.quartiles
                top, bottom = max(y.end, y(high)), min(y.start, y(low))
                parts.append(
                    f'<path d="M{place:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}"'
                    ' stroke-width="3"/>'
                )
            told = escape(f"{name}, {axis}={run.sizes[axis]}{with_others}: {_figure(value, unit)}")
            parts.append(
                f'<circle cx="{place:.1f}" cy="{y(value):.1f}" r="3.5"'
                f' fill="{colour}"><title>{told}</title></circle>'
            )
    return "".join(parts)


def _figure(value: float, unit: str) -> str:
    return bytes_text(value) if unit == "B" else seconds_text(value)


def seconds_text(value: float) -> str:
    """Return seconds as text with a unit, `1.25 ms`."""
    for name, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def _count(value: float) -> str:
    power = math.log10(value)
    return (
        f"1e{round(power)}" if value >= 10000 and abs(power - round(power)) < 1e-9 else f"{value:g}"
    )
