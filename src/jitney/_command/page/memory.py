"""Bytes of each program of a run.

For decorated functions they are those that XLA plans. For other functions only the arguments are
known, from their shapes, since JAX does not report which program it keeps for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from ..._text.json import Data, Record

_PARTS = (("arguments", "var(--p1)"), ("outputs", "var(--p2)"), ("temporaries", "var(--p3)"))
_BARS = 25
_BITS = re.compile(r"[a-z_]+(\d+)")


def memory(told: Record) -> list[Data]:
    """Return a row for each program: function, sizes, and bytes or None."""
    rows = [
        {
            "function": function["function"],
            "sizes": made["sizes"],
            **{name: made[name] for name, _ in _PARTS},
        }
        for function in told["decorated"]
        for made in function["programs"]
    ]
    decorated = {function["name"] for function in told["decorated"]}
    for each in told["programs"]:
        if each["function"] not in decorated:
            row = {
                "function": f"{each['function']}, {each['line'] or 'a library'}",
                "sizes": ", ".join(each["shapes"] or ()) or "unknown",
                "arguments": bytes_of(each["shapes"]),
                "outputs": None,
                "temporaries": None,
            }
            # The same program may have been compiled several times.
            rows += [] if row in rows else [row]
    return sorted(rows, key=lambda row: -sum(row[name] or 0 for name, _ in _PARTS))


def bytes_of(shapes: Sequence[str] | None) -> int | None:
    """Return the bytes of arrays `float32[3,4]`, ...; None if one of them is unknown."""
    whole = 0
    if shapes is None:
        return None
    for text in shapes:
        match = re.fullmatch(r"([\w<>:]+)\[([\d,]*)\](?:, weak_type=True)?", text.strip())
        size = None if match is None else _item(match[1])
        if match is None or size is None:
            return None
        whole += size * math.prod(int(part) for part in match[2].split(",") if part)
    return whole


def _item(dtype: str) -> int | None:
    """Return the bytes of an element by the name of its dtype; None if unknown."""
    # Types below one byte, such as int4, give 0 bytes and count as unknown.
    bits = 8 if dtype == "bool" else int(match[1]) if (match := _BITS.match(dtype)) else 0
    return bits // 8 or None


def draw(rows: Sequence[Record]) -> str:
    """Draw a bar for each program, as long as its bytes."""
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{name}</span>' for name, colour in _PARTS
    )

    known = [row for row in rows if row["temporaries"] is not None][:_BARS]
    most = max((sum(row[name] for name, _ in _PARTS) for row in known), default=0) or 1
    lines = "".join(
        f'<div class="bar"><b><code>{escape(row["function"])}</code> <span'
        f' class="soft">{escape(row["sizes"])}</span></b><div>'
        + "".join(
            f'<span style="width:{100 * row[name] / most:.2f}%;background:{colour}"></span>'
            for name, colour in _PARTS
        )
        + f"</div><em>{_text(sum(row[name] for name, _ in _PARTS))}</em></div>"
        for row in known
    )
    bars = f'<div class="legend">{legend}</div>{lines}' if lines else ""
    return (
        '<h2>Memory by program</h2><p class="soft">As XLA plans it, of decorated functions. Of'
        f" others only the arguments are known, by their shapes; the table has them.</p>{bars}"
    )


def _text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
