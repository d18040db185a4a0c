"""`plan(...).draw()`: well-formed SVG that shows what the plan says, in light and dark, within its
width.
"""

import re
from itertools import pairwise
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize
from jitney._text.svg import A
from tests._arrays import array

SVG = "{http://www.w3.org/2000/svg}"


@optimize(vmap="fit", pad={"points": "pow2"}, donate="y")
def residual(
    rate: float, t: Float[Array, "points"], y: Float[Array, "points"]
) -> Float[Array, "points"]:
    return jnp.exp(-rate * t) - y


@optimize(chunk={"n": 300})
def standardised(x: Float[Array, "n"]) -> Float[Array, "n"]:
    centred = x - jnp.mean(x)
    return centred / jnp.sqrt(jnp.mean(centred * centred))


def texts(svg):
    """What is written in a picture."""
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


PADDED = residual.plan(0.5, array(np.ones(100)), array(np.ones((8, 100))))
CUT = standardised.plan(array(np.arange(1000.0)))


def test_stages_that_are_taken_stand_from_the_outside_to_the_inside():
    """As in the plan; the others have no frame, and the body is in the middle."""
    found = [
        text
        for text in texts(PADDED.draw())
        if text in ("fill", "place", "jit", "chunk", "vmap", "mask", "the body of residual()")
    ]
    assert found == ["fill", "jit", "vmap", "mask", "the body of residual()"]


def test_each_frame_holds_those_inside_of_it():
    """A frame begins below the one around it and ends above its end."""
    boxes = [
        rect
        for rect in ElementTree.fromstring(PADDED.draw()).iter(f"{SVG}rect")
        if rect.get("stroke") == "currentColor"
    ]
    spans = sorted((float(b.get("y")), float(b.get("y")) + float(b.get("height"))) for b in boxes)
    assert len(spans) == 4
    assert all(outer[1] > inner[1] for outer, inner in pairwise(spans))


def test_the_valid_part_of_a_bucket_is_drawn_to_scale():
    """100 of 128."""
    valid, whole = (
        float(rect.get("width"))
        for rect in ElementTree.fromstring(PADDED.draw()).iter(f"{SVG}rect")
        if A in (rect.get("fill"), rect.get("stroke"))
    )
    assert abs(valid / whole - 100 / 128) < 1e-3
    assert any("Sizes 65 to 128 share" in text for text in texts(PADDED.draw()))


def test_every_pass_has_its_chunks():
    """Three passes of four chunks, the last of which is a third as long."""
    found = texts(CUT.draw())
    assert [text for text in found if text.startswith("pass ")] == [
        "pass 1 ->",
        "pass 2 ->",
        "pass 3 ->",
    ]
    assert [text for text in found if re.fullmatch(r"\d", text)] == ["1", "2", "3", "4"] * 3
    assert "n: 4 chunks of 300, the last of 100" in found


def test_names_of_a_program_are_text():
    """What looks like markup in a name is escaped, and the picture stays well-formed."""
    f = optimize(lambda tree: tree)
    assert any("<b>&" in text for text in texts(f.plan({"<b>&": jnp.ones(3)}).draw()))


def test_no_line_is_longer_than_the_picture():
    """Estimated at 6.3 pixels a letter, as wide letters of a usual font are at this size."""

    @optimize(donate="x")
    def with_a_long_name_that_nobody_would_write_but_somebody_does_all_the_same(
        x: Float[Array, "n"],
    ) -> Float[Array, "n"]:
        return x

    picture = with_a_long_name_that_nobody_would_write_but_somebody_does_all_the_same.plan(
        jnp.ones(3)
    ).draw()
    assert all(
        float(text.get("x")) + 6.3 * len(text.text or "") <= 480
        for text in ElementTree.fromstring(picture).iter(f"{SVG}text")
    )


def test_a_notebook_shows_it():
    """By itself, and above the table of a plan."""
    picture = PADDED.draw()
    assert picture._repr_svg_() == picture._repr_html_() == str(picture) == f"{picture}"
    assert repr(picture).startswith("<picture: plan of residual() at test_drawing.py:")
    html = PADDED._repr_html_()
    assert html.startswith("<svg ")
    assert "<pre>" in html
