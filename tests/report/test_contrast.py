"""Pictures and tables read on light and on dark pages: the ratios of contrast of the Web Content
Accessibility Guidelines, 4.5 for text and 3 for lines, computed from what is drawn.
"""

import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from examples.gallery._card import SCHEME
from jitney._command.bench.growth import growths
from jitney._command.bench.measuring import ProgramMemory, SizeRun
from jitney._command.bench.plot import svg
from jitney._text import console
from jitney._text import svg as drawing
from jitney._text.console import html_of
from tests._arrays import array

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
# Files of the pages; `call` and `chunks` are as the pictures that are drawn here.
FILES = ("shards", "sizes")
SVG = "{http://www.w3.org/2000/svg}"
BLACK, WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
Colour = tuple[float, ...]


def colour(text: str) -> Colour:
    """From `#1c1e21` or `#fff`."""
    digits = text.removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    return tuple(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))


def over(top: Colour, opacity: float, ground: Colour) -> Colour:
    """What is seen of a translucent colour on a ground."""
    return tuple(opacity * a + (1 - opacity) * b for a, b in zip(top, ground, strict=True))


def luminance(of: Colour) -> float:
    """Relative luminance, as the guidelines define it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in of]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: Colour, b: Colour) -> float:
    """From 1 for the same colour to 21 for black on white."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


# Colour of the text and of the ground: JupyterLab's and VS Code's themes, and a file of its own.
THEMES = {
    "JupyterLab light": (over(BLACK, 0.87, WHITE), WHITE),
    "JupyterLab dark": (WHITE, colour("#111111")),
    "VS Code light": (colour("#3b3b3b"), WHITE),
    "VS Code dark": (colour("#cccccc"), colour("#1f1f1f")),
    **{
        f"file, {name}": tuple(map(colour, re.findall(r"#\w+", css)))
        for name, css in (("light", drawing._LIGHT), ("dark", drawing._DARK))
    },
}


def test_the_ratio_is_that_of_the_guidelines():
    """Of black and white, and of the lightest grey that may be a text on white."""
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast(colour("#767676"), WHITE) == pytest.approx(4.54, abs=0.01)


def net(w: Float[Array, "m m"], x: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Layers, whose gradient saves or computes again."""
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return x


def pictures() -> dict[str, str]:
    """One of each kind: cells of a bucket, chunks, a frontier with a limit, a measurement."""
    w, x = array(np.ones((8, 8))), array(np.ones((100, 8)))
    loss = jitney.optimize(lambda w, x: jnp.sum(net(w, x)))
    runs = [
        SizeRun(
            {"n": n},
            1e-3,
            1e-3,
            1e-3,
            1,
            (1e-5 * n, 1e-5 * n, 2e-5 * n),
            ProgramMemory(n, 2 * n, 3 * n, 0),
        )
        for n in (10, 100, 1000)
    ]
    return {
        **{name: (PICTURES / f"{name}.svg").read_text() for name in FILES},
        "bucket": jitney.optimize(pad={"n": "pow2"})(net).plan(w, x).draw(),
        "chunks": jitney.optimize(chunk={"n": 30})(net).plan(w, x).draw(),
        "frontier": jitney.analysis.frontier(loss, w, x, wrt="w", memory="10KiB").svg(),
        "measurement": svg("a measurement", runs, growths(runs)),
    }


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """The pictures by name."""
    return pictures()


def paint(element: ElementTree.Element, what: str, ink: Colour) -> tuple[Colour, float] | None:
    """Colour and opacity of the fill or the stroke of an element, if it has one."""
    value = element.get(what, "none")
    opacity = float(element.get(f"{what}-opacity", "1"))
    return (
        None
        if value == "none"
        else (ink if value == "currentColor" else colour(value), opacity * _whole(element))
    )


def _whole(element: ElementTree.Element) -> float:
    return float(element.get("opacity", "1"))


def ground_of(text: ElementTree.Element, root: ElementTree.Element, ground: Colour) -> Colour:
    """The page, and on it the areas that a text stands on."""
    x, y = float(text.get("x", 0)), float(text.get("y", 0)) - 4
    for rect in root.iter(f"{SVG}rect"):
        left, top, wide, high = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
        fill = paint(rect, "fill", ground)
        if fill is not None and left <= x <= left + wide and top <= y <= top + high:
            ground = over(*fill, ground)
    return ground


KINDS = ("bucket", "chunks", "frontier", "measurement", *FILES)


@pytest.mark.rest
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_picture_can_be_read(drawn, kind, theme):
    """On the page, or on the area that it stands on."""
    ink, ground = THEMES[theme]
    root = ElementTree.fromstring(drawn[kind])
    poor = []
    for text in root.iter(f"{SVG}text"):
        soft = text.get("class") in ("soft", "code")
        below = ground_of(text, root, ground)
        seen = over(ink, drawing.SOFT if soft else 1.0, below)
        if contrast(seen, below) < 4.5:
            poor.append((text.text, contrast(seen, below)))
    assert poor == []


@pytest.mark.rest
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_of_a_picture_can_be_seen(drawn, kind, theme):
    """Outlines, lines and points; an area that is translucent has an outline."""
    ink, ground = THEMES[theme]
    poor = []
    for element, what in product(ElementTree.fromstring(drawn[kind]).iter(), ("fill", "stroke")):
        found = paint(element, what, ink)
        is_area = what == "fill" and element.get("fill-opacity") == str(drawing.AREA)
        if found is not None and not is_area:
            ratio = contrast(over(*found, ground), ground)
            poor += [(element.tag, what, ratio)] if ratio < 3 else []
    assert poor == []


@pytest.mark.parametrize("theme", THEMES)
def test_the_coloured_text_of_a_table_can_be_read(theme):
    """Half of it is the colour of the page's text."""
    ink, ground = THEMES[theme]
    mixed = re.findall(r"\.(\w+) { color: color-mix\(in srgb, currentColor (\d+)%, (#\w+)\)", CSS)
    assert len(mixed) == len(console._MIXED)
    for _, percent, text in mixed:
        assert contrast(over(ink, int(percent) / 100, colour(text)), ground) >= 4.5
    assert contrast(over(ink, drawing.SOFT, ground), ground) >= 4.5


CSS = html_of("")


@pytest.mark.rest
def test_a_picture_has_a_ground_of_its_own_only_as_a_file(drawn):
    """Inside of a page the root is the page's, so the rules of a file do not hold there."""
    for picture in drawn.values():
        rules = re.findall(r"([^{}]*) {([^{}]*)}", picture)
        assert all(":root" in where for where, what in rules if "background" in what)
        assert "@media (prefers-color-scheme: dark) { svg." in picture
        assert "var(--jp-content-font-color1, var(--vscode-editor-foreground" in picture


def test_a_picture_of_the_gallery_can_be_read(theme_of_a_file):
    """Text, and with it axes, are of the colour of the file's scheme; the other colours read on
    both grounds.
    """
    ink, ground = theme_of_a_file
    for file in sorted((PICTURES / "gallery").glob("*.svg")):
        root = ElementTree.fromstring(file.read_text())
        rules = "".join(each.text or "" for each in root.iter(f"{SVG}style"))
        assert rules.endswith(f" {SCHEME}")
        assert root.get("fill") == "currentColor"
        styles = [each.get("style", "") for each in root.iter()]
        texts = [each.get("style", "") for each in root.iter(f"{SVG}text")]
        assert texts
        assert [style for style in texts if "fill" in style] == []
        lines = {text for style in styles for text in re.findall(r"(?:fill|stroke): (#\w+)", style)}
        assert {text: contrast(colour(text), ground) >= 3 for text in lines} == dict.fromkeys(
            lines, True
        )
    assert contrast(ink, ground) >= 4.5


@pytest.fixture(params=re.findall(r"color: (#\w+); background: (#\w+)", SCHEME))
def theme_of_a_file(request):
    """Colours of the text and of the ground, in light and in dark."""
    return tuple(map(colour, request.param))
