"""Sketches of stages at work on an axis: cells of a bucket, chunks of passes, parts on devices.

Each is a list of SVG elements of a given width, and the height that it came out with; `drawing.py`
sets them into the drawing of a call.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import _axes
from .._errors import shortlist
from .._jax.programs.primitives import public_name
from .._stages.chunking.cut import Cut
from .._stages.fill import PaddedAxis
from .._stages.sharding import Place
from .._text.svg import AREA, COLOURS, A, area, box, words, wrap_text
from .._view.view import View

Sketch = tuple[list[str], float]
_HIGH = 16
# Cells of a bucket up to which each is drawn.
_CELLS = 32
# Chunks of a pass up to which each is drawn.
_CHUNKS = 9
_DEVICES = 8
_ARRAYS = 4
_LABEL = 84


def bucket(axis: PaddedAxis, x: float, y: float, wide: float) -> Sketch:
    """Draw the cells of one padded axis: the valid ones, and the masked padding."""
    valid = wide * axis.size / axis.high
    cells = min(axis.high, _CELLS)
    cuts = "".join(f"M{x + wide * i / cells:.1f} {y:g}v{_HIGH}" for i in range(1, cells))
    parts = [
        box(x, y, valid, _HIGH, A, "none", f' fill-opacity="{AREA}"'),
        box(x, y, wide, _HIGH, "none", A, ' stroke-dasharray="3 2"'),
        f'<path d="{cuts}" stroke="{A}"/>',
    ]

    filled = (
        f"; {axis.high - axis.size} filled in, which reach no result"
        if axis.high > axis.size
        else ""
    )
    told = wrap_text(
        f"{axis.name}: {axis.size} of {axis.high} are valid{filled}. Sizes {axis.low} to"
        f" {axis.high} share the program.",
        wide,
    )
    parts += [words(x, y + _HIGH + 15 + 15 * i, line, "soft") for i, line in enumerate(told)]
    return parts, _HIGH + 4 + 15 * len(told)


def chunks(
    cut: Cut,
    x: float,
    y: float,
    wide: float,
) -> Sketch:
    """Draw a row for each pass over the data, with its chunks in order; nothing if all of it
    fits.
    """
    rows = [(False, "`jax.vmap` of the body")] if cut.is_mapped else []
    if cut.passes is not None:
        for number, each in enumerate(cut.passes.passes):
            rows.append((each.back, _does(cut.passes, number)))
    if not rows:
        return [], 0.0
    # Each device cuts its own part of a sharded axis into chunks.
    part = cut.size if cut.devices is None else cut.size // cut.devices.parts
    count = -(-part // cut.width)
    # The first ones and the last; 0 stands for those between.
    shown = [*range(1, count + 1)]
    if count > _CHUNKS:
        shown = [*range(1, _CHUNKS - 1), 0, count]
    step = (wide - _LABEL) / len(shown)

    parts: list[str] = []
    top = y
    for number, (is_back, does) in enumerate(rows, 1):
        parts.append(words(x, top + 12, f"pass {number} {'<-' if is_back else '->'}", "soft"))
        for i, chunk in enumerate(shown):
            left = x + _LABEL + step * i
            if not chunk:
                parts.append(words(left + step / 2, top + 12, "...", "soft", "middle"))
                continue
            # The last chunk may be shorter than the others.
            share = min(1.0, (part - (chunk - 1) * cut.width) / cut.width)
            parts.append(
                area(
                    left + 1,
                    top,
                    (step - 2) * share,
                    _HIGH,
                    COLOURS[(number - 1) % len(COLOURS)],
                )
            )
            if share * step > 7 * len(str(chunk)):
                middle = left + 1 + (step - 2) * share / 2
                parts.append(words(middle, top + 12, str(chunk), "", "middle"))
        told = wrap_text(does, wide - _LABEL, 2)
        parts += [
            words(x + _LABEL, top + _HIGH + 13 + 14 * i, line, "soft")
            for i, line in enumerate(told)
        ]
        top += _HIGH + 8 + 14 * len(told)

    last = part - (count - 1) * cut.width
    of = f"{cut.axis}: {count:,} chunks of {cut.width:,}" + (
        f", the last of {last:,}" if last < cut.width and count > 1 else ""
    )
    told = wrap_text(
        of + (f", on each of {cut.devices.parts} devices" if cut.devices is not None else ""), wide
    )
    parts += [words(x, top + 12 + 15 * i, line, "soft") for i, line in enumerate(told)]
    return parts, top - y + 15 * len(told) + 2


def _does(passes: _axes.Passes, number: int) -> str:
    """Return what a pass carries from chunk to chunk, and its results, in words."""
    each = passes.passes[number]
    if each.counts:
        return "counts iterations, until no chunk takes more"
    carried = each.states(passes.streamed)
    operations = dict.fromkeys(public_name(node.op.name) for node in carried)
    names = shortlist([*operations])
    given = (
        f"gives {len(each.emits)} result{'s' if len(each.emits) > 1 else ''} chunk by chunk"
        if each.emits
        else ""
    )
    kept = "puts chunks together for what is done at once" if each.collects else ""
    return "; ".join(filter(None, [names and f"carries {names}", given, kept])) or "reads"


def shards(
    place: Place,
    view: View,
    x: float,
    y: float,
    wide: float,
) -> Sketch:
    """Draw a row for each sharded array, a column for each device, and the number of its part."""
    sizes: dict[str, int] = dict(place.mesh.shape)
    count = math.prod(sizes.values())
    shown = list(range(min(count, _DEVICES)))
    step = (wide - _LABEL) / len(shown)
    parts = [words(x, y + 11, "device", "soft")]
    middles = [x + _LABEL + step * (i + 0.5) for i in shown]
    for i, middle in zip(shown, middles, strict=True):
        parts.append(words(middle, y + 11, str(i), "soft", "middle"))

    arrays = zip(view.leaves, place.specs, strict=False)
    spread = [(leaf, spec) for leaf, spec in arrays if any(spec)]

    top = y + 17
    for leaf, spec in spread[:_ARRAYS]:
        along = tuple(name for axes in spec for name in axes)
        label = wrap_text(leaf.path, _LABEL - 4, 1)[0]
        parts.append(words(x, top + 12, label, "code"))
        for i, middle in zip(shown, middles, strict=True):
            number = _part(i, sizes, along)
            parts.append(
                area(
                    x + _LABEL + step * i + 1,
                    top,
                    step - 2,
                    _HIGH,
                    COLOURS[number % len(COLOURS)],
                )
            )
            parts.append(words(middle, top + 12, str(number), "", "middle"))
        top += _HIGH + 4

    more = "".join(
        [
            f"; {len(spread) - _ARRAYS} more arrays are spread" if len(spread) > _ARRAYS else "",
            f"; {count - _DEVICES} more devices" if count > _DEVICES else "",
            (
                f"; {len(place.specs) - len(spread)} whole on each"
                if len(place.specs) > len(spread)
                else ""
            ),
        ]
    )
    told = wrap_text(f"numbers and colours are parts of an array{more}", wide)
    parts += [words(x, top + 13 + 15 * i, line, "soft") for i, line in enumerate(told)]
    return parts, top - y + 15 * len(told)


def _part(device: int, sizes: dict[str, int], along: Sequence[str]) -> int:
    """Return the number of the part of an array that a device holds.

    It is the position of the device along the mesh axes that the array is sharded over.
    """
    at: dict[str, int] = {}
    # Devices are counted row by row: unravel the index, last axis first.
    for name, size in reversed(sizes.items()):
        device, at[name] = divmod(device, size)

    # Ravel the positions along the array's axes.
    number = 0
    for name in along:
        number = number * sizes[name] + at[name]
    return number
