"""Picture of a plan: a frame for each stage that is taken, around those inside, around the body.

A frame has the line of the plan as text, a sketch of what the stage does to an axis (cells of a
bucket, chunks and passes, parts on devices), and the shapes inside, if the stage changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .._errors import shortlist
from .._stages import AutoRemat, Chunk, Fill, Jit, MappedChunks, Place
from .._stages.chunking.cut import Cut
from .._stages.plan import Plan
from .._stages.stage import Skip, Stage
from .._text.svg import C, Picture, area, box, picture, words, wrap_text
from .._view.named_axes import is_count
from .._view.view import View
from .sketches import Sketch, bucket, chunks, shards

WIDE = 480
WIDEST = 680
_INSET = 9
_LINE = 16


@dataclass
class _Pen:
    """Position in the drawing, downwards, and the parts drawn so far."""

    parts: list[str]
    y: float = 0.0
    inset: float = 6.0

    @property
    def left(self) -> float:
        return self.inset + 10

    @property
    def wide(self) -> float:
        """Width of a line of text."""
        return WIDE - 2 * self.left

    def say(self, what: str, kind: str = "", most: int = 3) -> None:
        for line in wrap_text(what, self.wide, most):
            self.y += _LINE
            self.parts.append(words(self.left, self.y - 4, line, kind))

    def sketch(self, made: Sketch) -> None:
        parts, high = made
        self.parts += parts
        self.y += high


def draw(
    function: str,
    plan: Plan,
    view: View,
    cut: Cut | None,
    told: Mapping[str, str],
) -> Picture:
    """Draw one call.

    Args:
        function: Name and place of the function.
        plan: Its stages.
        view: Arrays as the caller passes them.
        cut: Chunks, if an axis is cut.
        told: First line of the plan for each name that has one and is taken.
    """
    pen = _Pen([])
    pen.say(f"one call of {function}", "name", 2)
    pen.say(_arrays(view), "code", 2)
    frames: list[float] = []
    taken: list[Stage] = []

    # Downwards from the outermost stage: open a frame for each that is taken.
    for stage in plan.stages:
        inside = stage.inner(view)
        name = "remat" if isinstance(stage, AutoRemat) else stage.name
        if name in told and not isinstance(stage, Skip):
            pen.y += 6
            frames.append(pen.y)
            taken.append(stage)
            pen.inset += _INSET
            pen.y += 4
            pen.say(name, "name")
            pen.say(told[name])
            _show(pen, stage, view, cut)
            if _arrays(inside) != _arrays(view):
                pen.say(f"inside: {_arrays(inside)}", "code", 2)
        view = inside

    # The body in the middle, then upwards again: close the frames, with the second step of a stage,
    # on the results, below those inside.
    _body(pen, function, told.get("derivative", ""))
    for stage, top in zip(reversed(taken), reversed(frames), strict=True):
        after = _second_step(stage)
        if after:
            pen.say(after, "soft", 2)
        pen.y += 5
        pen.inset -= _INSET
        wide, high = WIDE - 2 * pen.inset, pen.y - top
        pen.parts.append(box(pen.inset, top, wide, high))
    return picture("jitney-drawing", f"plan of {function}", WIDE, pen.y + 8, pen.parts, WIDEST)


def _show(pen: _Pen, stage: Stage, view: View, cut: Cut | None) -> None:
    """Draw what a stage does to an axis; the others change no array, and have no picture."""
    pen.y += 3
    if isinstance(stage, Fill):
        for axis in stage.axes:
            pen.sketch(bucket(axis, pen.left, pen.y, pen.wide))
    elif isinstance(stage, Place) and any(map(any, stage.specs)):
        pen.sketch(shards(stage, view, pen.left, pen.y, pen.wide))
    elif isinstance(stage, (Chunk, MappedChunks)) and cut is not None:
        pen.sketch(chunks(cut, pen.left, pen.y, pen.wide))


def _body(pen: _Pen, function: str, derivative: str) -> None:
    pen.y += 6
    top = pen.y
    pen.inset += _INSET
    pen.y += 4
    pen.say(f"the body of {function.split(' ', 1)[0]}", "name", 1)
    if derivative:
        pen.say(f"its derivative: {derivative}")
    pen.y += 5
    pen.inset -= _INSET
    at = pen.inset + _INSET
    # The first part of the drawing, so that its fill is below all text.
    wide, high = WIDE - 2 * at, pen.y - top
    pen.parts.insert(0, area(at, top, wide, high, C))


def _second_step(stage: Stage) -> str:
    """Return the second step of a stage, on the results, in words."""
    if isinstance(stage, Fill):
        return "results are cut back to " + ", ".join(
            f"{axis.name}={axis.size}" for axis in stage.axes
        )
    if isinstance(stage, Jit) and stage.donate:
        return "results may take over the buffers that are donated"
    return ""


def _arrays(view: View) -> str:
    """Return the arrays and their shapes in words.

    Scalars with the true sizes, which padding adds, are left out: they are not the caller's.
    """
    leaves = [leaf for leaf in view.leaves if not is_count(leaf)]
    return (
        shortlist([f"{leaf.path}[{','.join(map(str, leaf.shape))}]" for leaf in leaves])
        or "no arrays"
    )
