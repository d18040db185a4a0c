"""Self-contained SVG pictures as text: one set of colours in light and dark, and words that stay
within a width.

This module is the counterpart of `_console.py`, which serves terminals, for notebooks, pages and
files.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

_LIGHT = (
    "--ground: #fff; --text: #1c1e21; --soft: #5c636b; --line: #d9dde2; --a: #2f7fd8; --b: #d9742b;"
    " --c: #1a9a8a; --d: #8a63d2;"
)
_DARK = (
    "--ground: #16181b; --text: #e6e8ea; --soft: #9aa2ab; --line: #363b41; --a: #5ca2f0; --b:"
    " #f0934f; --c: #3dbdac; --d: #a98bea;"
)
# Width in pixels of a typical letter at 12 pixels, and of any letter at 11 in the monospaced font.
_LETTER = 6.3


class Picture(str):
    """Text of an SVG, displayed as the picture in a notebook."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(self)


def style(scope: str) -> str:
    """CSS of the colours and fonts for elements of one class, so that the rest of a page is not
    affected.
    """
    return (
        f".{scope} {{ {_LIGHT} }} @media (prefers-color-scheme: dark) {{ .{scope} {{ {_DARK} }} }}"
        f" .{scope} text {{ fill: var(--text); font: 12px system-ui, sans-serif; }} .{scope} .soft"
        f" {{ fill: var(--soft); }} .{scope} .code {{ fill: var(--soft); font: 10.5px ui-monospace,"
        f" monospace; }} .{scope} .name {{ font-weight: 600; }}"
    )


def picture(
    scope: str,
    label: str,
    wide: float,
    high: float,
    parts: Sequence[str],
    widest: float | None = None,
) -> Picture:
    """Assemble a picture that fills the available width, up to a maximum."""
    return Picture(
        f'<svg class="{scope}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}"'
        f' role="img" aria-label="{escape(label)}"'
        f' style="max-width:{widest or wide:g}px;width:100%"><style>{style(scope)}</style><rect'
        f' width="{wide:g}" height="{high:g}" fill="var(--ground)"/>{"".join(parts)}</svg>'
    )


def words(
    x: float,
    y: float,
    what: str,
    kind: str = "",
    anchor: str = "start",
) -> str:
    """Element for one line of text; `kind` is `soft`, `code` or `name`."""
    of = f' class="{kind}"' if kind else ""
    at = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{of}{at} x="{x:g}" y="{y:g}">{escape(what)}</text>'


def wrap_text(what: str, wide: float, most: int = 3) -> list[str]:
    """Wrap a text into lines of a width in pixels. A text of more than `most` lines ends in
    dots.
    """
    return textwrap.wrap(
        what,
        max(8, int(wide / _LETTER)),
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )


def box(
    x: float,
    y: float,
    wide: float,
    high: float,
    fill: str = "none",
    line: str = "var(--line)",
    more: str = "",
) -> str:
    """Element for a rectangle with rounded corners."""
    size = f'width="{wide:.1f}" height="{high:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="3" fill="{fill}" stroke="{line}"{more}/>'
