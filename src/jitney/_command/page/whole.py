"""HTML page of a run, in one file and without network: seconds, changes, sizes, memory, plans.

The page is complete without scripts; the script only sorts and filters tables and zooms the flame.
The data are embedded as JSON, as `--report out.json` writes them; the style, with a light and a
dark scheme, and the script are `run.css` and `run.js`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import cast
from urllib.parse import quote

from ..._diagnosis.memory_course import draw as draw_course
from ..._text.json import Record
from ..findings.change import saves
from . import axis_sizes, flame
from . import memory as memory_of

_PHASES = ("import of jax", "trace", "lower", "compile", "cache read", "all else")
# Units of the timeline, which is stretched to the width of the page.
_WIDE, _HIGH, _GAP = 1000, 18, 6
_BARS = 25
# Plans up to which all are shown unfolded.
_OPEN = 6
_NUMBERS = (
    "traces",
    "compiles",
    "cache_hits",
    "times",
    "start",
    "arguments",
    "outputs",
    "temporaries",
    "bytes",
    "before",
)
_SECONDS = ("trace_seconds", "lower_seconds", "compile_seconds")


def page(told: Record) -> str:
    """Return the page for the data of `RunReport.to_dict`."""
    # `<` is escaped in the JSON, since a `</script>` in it would end the element.
    target, data = escape(str(told["target"])), json.dumps(told).replace("<", "\\u003c")
    bytes_of = memory_of.memory(told)
    style, script = (_beside(f"run.{of}") for of in ("css", "js"))
    counts = (
        f"{told['traces']} traces, {told['compiles']} compiles, {told['cache_hits']} from the cache"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f"<title>jitney: {target}</title>",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            f"<h1>{target} ran for {told['seconds']:.2f} s</h1>",
            f'<p class="soft">{counts}; transfers unknown</p>',
            _phases(told["phases"]),
            _timeline(told),
            flame.draw(told["flame"]),
            _bars(told["work"]),
            _wrong_timings(told.get("unwaited", ())),
            _changes(told["changes"]),
            axis_sizes.draw(told),
            _course(told.get("memory")),
            memory_of.draw(bytes_of),
            _plans(told["decorated"]),
            *_tables(told, bytes_of),
            "<h2>Not seen</h2>",
            "<ul>",
            *(f"<li>{escape(each)}</li>" for each in told["unseen"]),
            "</ul>",
            f'<script type="application/json" id="data">{data}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _beside(name: str) -> str:
    """Text of a file beside this module."""
    return files("jitney._command.page").joinpath(name).read_text("utf-8")


def _tables(told: Record, bytes_of: Sequence[Record]) -> Iterator[str]:
    yield _table(
        "Why it was traced",
        ("function", "line", "cause", "example", "times", "seconds"),
        told["causes"],
    )
    yield _table(
        "Work by function and line",
        ("name", "place", "traces", "compiles", "cache_hits", *_SECONDS),
        told["work"],
    )
    yield _table(
        "Programs",
        ("function", "line", "cause", "shapes", "start", *_SECONDS),
        told["programs"],
    )
    yield _table(
        "Bytes by program",
        ("function", "sizes", "arguments", "outputs", "temporaries"),
        bytes_of,
    )


def _course(course: Record | None) -> str:
    """Picture of the memory over the run, and a table of its peaks; empty where it was not
    watched.
    """
    if course is None:
        return ""
    peaks = [*filter(None, [course["peak"]]), *course["devices"]]
    columns = ("of", "place", "seconds", "bytes", "before")
    parts = ["<h2>Memory over time</h2>", draw_course(course)]
    if course["peak"] is None:
        parts[1] = (
            f'<p class="soft">The memory of the process is unknown: {escape(course["source"])}.</p>'
        )
    return "".join(
        [
            *parts,
            _table("Peaks of memory", columns, peaks),
            _table("Memory while compiling", columns, course["compiling"]),
        ]
    )


def _colour(phase: str) -> str:
    return f"var(--p{_PHASES.index(phase)})"


def _phases(phases: Mapping[str, float]) -> str:
    whole = sum(phases.values()) or 1.0
    parts = "".join(
        f'<span style="width:{100 * phases[name] / whole:.3f}%;background:{_colour(name)}"'
        f' title="{name}: {phases[name]:.2f} s"></span>'
        for name in _PHASES
    )
    legend = "".join(
        f'<span><i style="background:{_colour(name)}"></i>{name} {phases[name]:.2f} s</span>'
        for name in _PHASES
    )
    return (
        f'<h2>Where the seconds went</h2><div class="stack">{parts}</div><div'
        f' class="legend">{legend}</div>'
    )


def _timeline(told: Record) -> str:
    """Draw the spans of tracing, lowering, compiling and cache reads, a row for each phase."""
    rows = _PHASES[1:5]
    whole = (
        max([told["seconds"], *(span["start"] + span["seconds"] for span in told["timeline"])])
        or 1.0
    )
    rects = "".join(
        f'<rect x="{_WIDE * span["start"] / whole:.2f}"'
        f' y="{rows.index(span["phase"]) * (_HIGH + _GAP) + _GAP}" '
        f'width="{max(0.5, _WIDE * span["seconds"] / whole):.2f}" height="{_HIGH}"'
        f' fill="{_colour(span["phase"])}">'
        f"<title>{escape(span['name'])}: {span['phase']}, {span['seconds']:.3f} s from"
        f" {span['start']:.2f} s on</title></rect>"
        for span in told["timeline"]
    )

    high = len(rows) * (_HIGH + _GAP) + _GAP
    return (
        f'<h2>Timeline</h2><p class="soft">From 0 to {whole:.2f} s; from above:'
        f' {", ".join(rows)}.</p><svg role="img" aria-label="timeline" viewBox="0 0 {_WIDE} {high}"'
        f' height="{high}" preserveAspectRatio="none">{rects}</svg>'
    )


def _bars(work: Sequence[Record]) -> str:
    shown = [
        (each, sum(each[f"{phase}_seconds"] for phase in ("trace", "lower", "compile")))
        for each in work[:_BARS]
    ]
    most = max((seconds for _, seconds in shown), default=0.0) or 1.0
    lines = [
        f'<div class="bar"><b><code>{escape(each["name"])}</code> <span'
        f' class="soft">{escape(each["place"])}</span></b><div>'
        + "".join(
            "<span"
            f' style="width:{100 * each[f"{phase}_seconds"] / most:.2f}%;background:{_colour(phase)}"></span>'
            for phase in ("trace", "lower", "compile")
        )
        + f"</div><em>{seconds:.2f} s</em></div>"
        for each, seconds in shown
    ]
    return (
        "<h2>Trace, lower and compile by"
        f" function</h2>{''.join(lines) or '<p>Nothing was compiled.</p>'}"
    )


def _changes(changes: Sequence[Record]) -> str:
    lines = [
        f"<li><b>{saves(each)}</b>, <code>{escape(each['where'])}</code>:"
        f" {escape(each['what'])}<pre>{escape(each['write'])}</pre></li>"
        for each in changes
    ]
    told = (
        f"<ol>{''.join(lines)}</ol>" if lines else "<p>No change is known that would save time.</p>"
    )
    return f"<h2>Changes worth most</h2>{told}"


def _wrong_timings(timings: Sequence[Record]) -> str:
    """Return the program's own timings that do not wait for what they time; nothing if none is."""
    if not timings:
        return ""
    lines = [
        f"<li><code>{escape(each['where'])}</code>: {escape(each['what'])}"
        f"<pre>{escape(each['write'])}</pre></li>"
        for each in timings
    ]
    return f"<h2>The program's own figures</h2><ol>{''.join(lines)}</ol>"


def _plans(decorated: Sequence[Record]) -> str:
    """Return the plan of each decorated function, for the call that was traced last."""
    parts = ""
    for each in decorated:
        plan = each["plan"]
        lines = "".join(
            f"<dt{' class=taken' if line['taken'] else ''}>{escape(line['name'])}</dt>"
            f"<dd>{'' if line['taken'] else 'skipped: '}{escape(line['why'])}</dd>"
            for line in plan["lines"]
        )
        told = (
            f"<dl>{lines}</dl>"
            if lines
            else f"<p>The plan is unknown: {escape(plan['unknown'])}.</p>"
        )
        counts = f"{each['calls']} calls, {each['traces']} traces, {each['compiles']} compiles"
        of = (
            f'<p class="soft">Of the call that was traced last, with {escape(plan["of"])}.</p>'
            if plan["of"]
            else ""
        )
        name = f'<code>{escape(each["function"])}</code> <span class="soft">{counts}</span>'
        parts += f"<details{' open' if len(decorated) <= _OPEN else ''}><summary>{name}</summary>{of}{_drawing(plan)}{told}</details>"
    return (
        "<h2>Plans of decorated"
        f" functions</h2>{parts or '<p>No decorated function was traced, or none is held any more.</p>'}"
    )


def _drawing(plan: Record) -> str:
    """Return the drawing of a plan as an image.

    An image cannot run scripts: in a report that was read from a file the drawing may be any text.
    """
    drawn = plan.get("drawing")
    return (
        '<img alt="drawing of the plan" style="width:100%;max-width:680px"'
        f' src="data:image/svg+xml,{quote(drawn)}">'
        if drawn
        else ""
    )


def _table(
    title: str,
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
) -> str:
    """Return a table with a box that filters it and columns that sort it."""
    numbers = {name for name in names if name.endswith("seconds") or name in _NUMBERS}
    heads = "".join(
        f'<th scope="col"{_number(name in numbers)}><button>{name.replace("_seconds", " s").replace("_", " ")}</button></th>'
        for name in names
    )
    body = "".join(
        f"<tr>{''.join(_cell(row[name], name in numbers) for name in names)}</tr>" for row in rows
    )
    return (
        f'<section class="table"><h2>{title}</h2><input type="search" placeholder="filter"'
        f' aria-label="filter {title}"><div class="scroll">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _number(is_number: bool) -> str:  # noqa: FBT001 - a class or none
    return ' class="n"' if is_number else ""


def _cell(value: object, is_number: bool) -> str:  # noqa: FBT001 - as above
    if isinstance(value, float):
        text = f"{value:.3f}"
    elif isinstance(value, list):
        text = ", ".join(cast("list[str]", value))
    else:
        text = "unknown" if value is None else str(value)
    # The number to sort by; the text is rounded, or a word.
    sorts = f" data-value={-1 if value is None else value!r}" if is_number else ""
    return f"<td{_number(is_number)}{sorts}>{escape(text)}</td>"
