"""The sizes that each axis had, against the buckets that hold them.

Of a decorated function they are those that it was called with, where it pads, and else those that
it was traced for. Of another function an axis is a position in an array that JAX compiled it for;
what changes together is one axis, and its buckets are those of powers of two, which nobody has
asked for yet.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_WIDE, _HIGH = 1000, 34
_LISTED = 8
_STRIPS = 25


@dataclass(frozen=True)
class AxisSizes:
    """Of one axis of one function.

    Args:
        function: Which.
        axis: Its name, or where it stands.
        times: By size, how many calls or programs had it.
        what: "calls", "traces" or "programs".
        buckets: By size, the size that it was padded to, or would be; none where it runs as it is.
        decorated: Whether it was padded; else the buckets are what could be.
    """

    function: str
    axis: str
    times: Mapping[int, int]
    what: str
    buckets: Mapping[int, int]
    decorated: bool

    @property
    def waste(self) -> float | None:
        """By how much all of it was padded, as a part of what was asked for; None without
        buckets.
        """
        if not self.buckets:
            return None
        asked = sum(size * n for size, n in self.times.items())
        return (
            sum(self.buckets.get(size, size) * n for size, n in self.times.items()) / max(1, asked)
            - 1
        )


def axis_sizes(told: Mapping[str, Any]) -> list[AxisSizes]:
    """All that is known of sizes: decorated functions first, then the others whose sizes
    changed.
    """
    found = [each for function in told["decorated"] for each in _of_decorated(function)]
    return [
        *found,
        *_of_programs(told["programs"], {function["name"] for function in told["decorated"]}),
    ]


def _of_decorated(function: Mapping[str, Any]) -> list[AxisSizes]:
    return [
        AxisSizes(
            function["function"],
            axis,
            {size: n for size, n, _ in rows},
            function["counted"][axis],
            {size: bucket for size, _, bucket in rows if bucket is not None},
            decorated=True,
        )
        for axis, rows in function["sizes"].items()
        if len(rows) > 1 or rows[0][2] is not None
    ]


def _of_programs(programs: Sequence[Mapping[str, Any]], decorated: set[str]) -> list[AxisSizes]:
    groups: dict[Any, list[tuple[tuple[int, ...], ...]]] = defaultdict(list)
    for each in programs:
        shapes = _shapes(each["shapes"])
        if each["line"] is not None and shapes is not None and each["function"] not in decorated:
            kinds = tuple((dtype, len(shape)) for dtype, shape in shapes)
            groups[each["function"], each["line"], kinds].append(
                tuple(shape for _, shape in shapes)
            )
    found: list[AxisSizes] = []
    for (function, line, _), several in groups.items():
        for places, sizes in _changing(several).items():
            buckets = {size: 1 << (size - 1).bit_length() for size in sizes if size > 1}
            found.append(
                AxisSizes(
                    f"{function}, {line}",
                    places,
                    Counter(sizes),
                    "programs",
                    buckets,
                    decorated=False,
                )
            )
    return found


def _changing(several: Sequence[tuple[tuple[int, ...], ...]]) -> dict[str, tuple[int, ...]]:
    """Positions whose size is not the same in all programs, those that change together as one."""
    places: dict[tuple[int, ...], list[str]] = {}
    for i, shape in enumerate(several[0]):
        for d in range(len(shape)):
            sizes = tuple(shapes[i][d] for shapes in several)
            if len(set(sizes)) > 1:
                places.setdefault(sizes, []).append(f"array {i} axis {d}")
    return {
        " and ".join(named) if len(named) <= 3 else f"{named[0]} and {len(named) - 1} more": sizes
        for sizes, named in places.items()
    }


def _shapes(texts: Sequence[str] | None) -> list[tuple[str, tuple[int, ...]]] | None:
    """Dtypes and shapes of `float32[3,4]`; None where one is unknown or has a symbol in it."""
    read = [
        re.fullmatch(r"([\w<>:]+)\[([\d,]*)\](?:, weak_type=True)?", text.strip())
        for text in texts or ("?",)
    ]
    found = [
        (match[1], tuple(int(size) for size in match[2].split(",") if size))
        for match in read
        if match
    ]
    return found if len(found) == len(read) else None


def drawn(told: Mapping[str, Any]) -> str:
    """A line for each axis, from its least to its largest size: buckets as grounds, sizes as
    marks.
    """
    found = axis_sizes(told)
    parts = [
        _strip(each)
        for each in sorted(found, key=lambda each: (not each.decorated, -len(each.times)))[:_STRIPS]
    ]
    more = (
        f"<p>And {len(found) - _STRIPS} more, of fewer sizes.</p>" if len(found) > _STRIPS else ""
    )
    rest = "".join(parts) + more or "<p>No axis had more than one size.</p>"
    return (
        '<h2>Axis sizes against buckets</h2><p class="soft">Marks are the sizes that were seen,'
        " each ground is a bucket: sizes on it share a program. Of functions that are not"
        f" decorated the buckets are powers of two, as <code>pad</code> would have them.</p>{rest}"
    )


def _strip(each: AxisSizes) -> str:
    sizes = sorted(each.times)
    low, high = min(sizes), max([*sizes, *each.buckets.values()])
    start, end = math.log2(max(1, low)) - 0.25, math.log2(max(1, high)) + 0.25

    def x(size: float) -> float:
        return _WIDE * (math.log2(max(1.0, size)) - start) / (end - start)

    grounds, marks = "", ""
    for i, bucket in enumerate(sorted(set(each.buckets.values()))):
        least = min(size for size, its in each.buckets.items() if its == bucket)
        a, b = x(least) - 6, x(bucket) + 6
        grounds += (
            f'<rect x="{a:.1f}" y="4" width="{b - a:.1f}" height="{_HIGH - 8}" rx="4"'
            f' fill="var(--p2)" opacity="{0.5 if i % 2 else 0.3}">'
        )
        grounds += f"<title>the bucket of {bucket}</title></rect>"
    for size in sizes:
        told = f"{size}: {each.times[size]} {each.what}" + (
            f", bucket {each.buckets[size]}" if size in each.buckets else ""
        )
        marks += (
            f'<rect x="{x(size) - 2:.1f}" y="8" width="4" height="{_HIGH - 16}"'
            f' fill="var(--p1)"><title>{told}</title></rect>'
        )
    listed = (
        ", ".join(map(str, sizes))
        if len(sizes) <= _LISTED
        else f"{len(sizes)} sizes from {sizes[0]} to {sizes[-1]}"
    )
    return (
        f'<div class="strip"><p><code>{escape(each.function)}</code> <b>{escape(each.axis)}</b>:'
        f' {listed}; {_share(each)}</p><svg role="img" aria-label="sizes of {escape(each.axis)}"'
        f' viewBox="0 0 {_WIDE} {_HIGH}" height="{_HIGH}"'
        f' preserveAspectRatio="none">{grounds}{marks}</svg></div>'
    )


def _share(each: AxisSizes) -> str:
    count = len(set(each.buckets.values())) + len(
        {size for size in each.times if size not in each.buckets}
    )
    programs = f"{count} program{'s' if count > 1 else ''}"
    if each.waste is None:
        return f"not padded, {programs}"
    would = "padded" if each.decorated else "powers of two would pad"
    return (
        f"{would} by {each.waste:.0%}, {programs}"
        if each.decorated
        else f"{would} by {each.waste:.0%}, and {programs} would do"
    )
