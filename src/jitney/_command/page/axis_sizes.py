"""Sizes that each axis had, against the buckets that hold them.

For a decorated function the sizes are those of its calls if it pads, else those of its traces. For
another function an axis is a position in the arrays that JAX compiled it for; positions that change
together are one axis, and the buckets are powers of two, as `pad="pow2"` would have them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ..._text.json import Record

_WIDE, _HIGH = 1000, 34
_LISTED = 8
_STRIPS = 25


@dataclass(frozen=True)
class AxisSizes:
    """Sizes of one axis of one function.

    Args:
        function: Name and place of the function.
        axis: Name of the axis, or its position.
        times: Number of calls or programs, by size.
        what: "calls", "traces" or "programs".
        buckets: Padded size, actual or possible, by size; no entry for sizes that run unpadded.
        decorated: True if the function was padded; else the buckets are possible ones.
    """

    function: str
    axis: str
    times: Mapping[int, int]
    what: str
    buckets: Mapping[int, int]
    decorated: bool

    @property
    def waste(self) -> float | None:
        """Padding as a share of the true sizes, over all calls; None without buckets."""
        if not self.buckets:
            return None
        asked = sum(size * n for size, n in self.times.items())
        computed = sum(self.buckets.get(size, size) * n for size, n in self.times.items())
        return computed / max(1, asked) - 1


def axis_sizes(told: Record) -> list[AxisSizes]:
    """Return all axes with sizes: decorated functions first, then others whose sizes changed."""
    found = [each for function in told["decorated"] for each in _decorated_sizes(function)]
    return [
        *found,
        *_of_programs(told["programs"], {function["name"] for function in told["decorated"]}),
    ]


def _decorated_sizes(function: Record) -> list[AxisSizes]:
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


def _of_programs(programs: Sequence[Record], decorated: set[str]) -> list[AxisSizes]:
    groups = defaultdict(list)
    for each in programs:
        shapes = _shapes(each["shapes"])
        if each["line"] is not None and shapes is not None and each["function"] not in decorated:
            # Programs are compared only if their arrays have equal dtypes and ranks.
            kinds = tuple((dtype, len(shape)) for dtype, shape in shapes)
            groups[each["function"], each["line"], kinds].append(
                tuple(shape for _, shape in shapes)
            )

    found: list[AxisSizes] = []
    for (function, line, _), several in groups.items():
        # Sizes 0 and 1 run unpadded, so they have no bucket.
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
    """Return the sizes of each position that varies; positions that vary together share a key."""
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
    """Parse `float32[3,4]` to dtypes and shapes; None if one is unknown or has a symbol in it."""
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


def draw(told: Mapping[str, object]) -> str:
    """Draw a strip for each axis, by size: buckets as grounds, sizes as marks."""
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

    # Logarithmic scale, with a quarter of an octave on both sides.
    start, end = math.log2(max(1, low)) - 0.25, math.log2(max(1, high)) + 0.25

    def x(size: float) -> float:
        return _WIDE * (math.log2(max(1.0, size)) - start) / (end - start)

    grounds, marks = "", ""
    for i, bucket in enumerate(sorted(set(each.buckets.values()))):
        # A ground reaches from the smallest size seen in the bucket to the bucket's own size.
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
