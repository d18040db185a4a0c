"""Self-contained SVG pictures as text: colours that read on light and dark pages, and words that
stay within a width.

This module is the counterpart of `console.py`, which serves terminals, for notebooks, pages and
files.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape, unescape

# Strokes and fills, which read on white and on the dark grounds of editors alike: each has a
# contrast of three or more with both. No colour of a text has that, so texts take the page's.
A, B, C, D = COLOURS = ("#2f7fd8", "#d9742b", "#1a9a8a", "#8a63d2")
# The colour of a notebook's text, whatever its theme; elsewhere that of the page around.
INK = "var(--jp-content-font-color1, var(--vscode-editor-foreground, currentColor))"
# A file of its own has no page around, so it has a ground as well.
_LIGHT = "color: #1c1e21; background: #fff;"
_DARK = "color: #e6e8ea; background: #16181b;"
# Opacities of lines, of what is less important, and of areas that have a text on them.
LINE, SOFT, AREA = 0.6, 0.75, 0.3
# Attributes of a line in the colour of the text, but lighter.
FRAME = f'stroke="currentColor" stroke-opacity="{LINE}"'
# Width in pixels of a typical letter at 12 pixels, and of any letter at 11 in the monospaced font.
_LETTER = 6.3


class Picture(str):
    """Text of an SVG, displayed as the picture in a notebook. It may be written into a file as it
    is, which then follows the scheme of the reader's system.
    """

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        label = re.search(r'aria-label="([^"]*)"', self)
        of = f": {unescape(label[1])}" if label else ""
        return f"<picture{of}; {len(self):,} characters of SVG>"


def style(scope: str) -> str:
    """CSS of the colours and fonts for elements of one class, so that the rest of a page is not
    affected.
    """
    return (
        f".{scope} {{ color: {INK}; }} svg.{scope}:root {{ {_LIGHT} }}"
        f" @media (prefers-color-scheme: dark) {{ svg.{scope}:root {{ {_DARK} }} }}"
        f" .{scope} text {{ fill: currentColor; font: 12px system-ui, sans-serif; }}"
        f" .{scope} .soft, .{scope} .code {{ fill-opacity: {SOFT}; }}"
        f" .{scope} .code {{ font: 10.5px ui-monospace, monospace; }}"
        f" .{scope} .name {{ font-weight: 600; }}"
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
        f' style="max-width:{widest or wide:g}px;width:100%"><style>{style(scope)}</style>'
        f"{''.join(parts)}</svg>"
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
    line: str = "",
    more: str = "",
) -> str:
    """Element for a rectangle with rounded corners; without the colour of a line its outline is
    that of a frame.
    """
    size = f'width="{wide:.1f}" height="{high:.1f}"'
    drawn = f'stroke="{line}"' if line else FRAME
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="3" fill="{fill}" {drawn}{more}/>'


def area(
    x: float,
    y: float,
    wide: float,
    high: float,
    colour: str,
) -> str:
    """Element for a rectangle that may have a text on it."""
    return box(x, y, wide, high, colour, colour, f' fill-opacity="{AREA}"')
