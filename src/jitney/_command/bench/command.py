"""`bench script.py:function --sizes n=1e3:1e6`: measure each size, fit exponents, print, draw.

Input is the parsed command line; output is a table or JSON on stdout and, with `--out`, a picture.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..._errors import OptionError, format_error, shortlist
from ..._jax.xla.memory import text as bytes_text
from ..._text.console import figures, text_of
from ..._text.json import Data
from .growth import Growth, growths
from .inputs import maker
from .measuring import Measurements, SizeRun, measure_sizes
from .parsing import WHERE, combinations, read_sizes, read_values
from .plot import seconds_text, svg
from .target import find

FORMATS = (".html", ".svg")
_HEADS = ("compile", "programs", "warm call", "quartiles", "arguments", "outputs", "temporaries")


def carry_out(given: argparse.Namespace) -> int:
    """Measure, print and draw; return 1 if a size did not fit into memory, else 0."""
    sizes, values = read_sizes(given.sizes or ()), read_values(given.set or ())
    if given.out is not None and Path(given.out).suffix not in FORMATS:
        what = f"--out {given.out!r} is not a picture."
        raise OptionError(
            WHERE,
            what,
            f"It is a file that ends in {' or '.join(FORMATS)}.",
            "write --out bench.svg.",
            code="J205",
        )
    if not given.seconds > 0:
        raise OptionError(
            WHERE,
            f"--seconds {given.seconds:g} is not a time.",
            "It is a positive number.",
            "write --seconds 5.",
            code="J205",
        )

    # Options are checked by now: importing the user's file may take long, and compiling takes
    # longer.
    target = find(given.function)
    found = measure_sizes(
        maker(target, values, given.arguments), list(combinations(sizes)), given.seconds
    )
    if found.runs:
        told = growths(found.runs)
        sys.stdout.write(
            _data(given.function, found, told) if given.json else _text(given.function, found, told)
        )
        _draw(given.function, given.out, found, told)
    if not found.stopped:
        return 0
    rule = (
        "Sizes are measured upwards, and all arguments are held at once, so that sizes are called"
        " in turn."
    )
    sys.stderr.write(
        format_error(
            WHERE,
            f"{found.stopped}.",
            rule,
            "end the range before it; or give `chunk=` or `memory=`, if it is not the arguments.",
        )
        + "\n"
    )
    return 1


def _data(name: str, found: Measurements, told: Sequence[Growth]) -> str:
    data = {
        "function": name,
        "called": found.how,
        "runs": [run.to_dict() for run in found.runs],
        "growth": [growth.to_dict() for growth in told],
        "worth_trying": [size.to_dict() for size in sizes_worth_trying(found.runs)],
        "stopped": found.stopped,
    }
    return json.dumps(data, indent=1) + "\n"


def _text(name: str, found: Measurements, told: Sequence[Growth]) -> str:
    rows = [("size", "", *_HEADS)]
    rows += [(_size(run), "", *_row(run)) for run in found.runs]
    return (
        "\n".join(
            [
                text_of(figures(f"{name}, {found.how}", rows)),
                *map(sentence_of, told),
                *worth_trying(found.runs),
            ]
        )
        + "\n"
    )


def worth_trying(runs: Sequence[SizeRun]) -> list[str]:
    """Return the sizes worth trying as a sentence, if there are any."""
    sizes = sizes_worth_trying(runs)
    if not sizes:
        return []
    best = min(sizes, key=lambda each: each.seconds)
    told = f"for each {best.axis} a call is quickest at {best}"
    near = shortlist([str(each) for each in sizes if each is not best])
    return [f"{told}, and nearly so at {near}" if near else told]


def sentence_of(growth: Growth) -> str:
    """Return an exponent as an English sentence."""
    upper = (
        f"; {growth.axis}^({growth.upper}) over the upper {growth.upper.sizes}"
        if growth.upper is not None
        else ""
    )
    grows = "grow" if growth.of == "temporaries" else "grows"
    return (
        f"{growth.of} {grows} as {growth.axis}^({growth.exponent}) over {growth.exponent.sizes}"
        f" sizes{upper}"
    )


def _size(run: SizeRun) -> str:
    return " ".join(f"{axis}={size}" for axis, size in run.sizes.items()) or "as it is"


def _row(run: SizeRun) -> tuple[str, ...]:
    low, median, high = map(seconds_text, run.quartiles)
    memory = run.memory
    took = (
        ("unknown",) * 3
        if memory is None
        else tuple(map(bytes_text, (memory.arguments, memory.outputs, memory.temporaries)))
    )
    # A size with no program of its own runs the program of a smaller size.
    making = seconds_text(run.making) if run.programs else "shared"
    return making, str(run.programs), median, f"{low} to {high}", *took


def _draw(
    name: str,
    out: str | None,
    found: Measurements,
    told: Sequence[Growth],
) -> None:
    if out is None:
        return
    picture = svg(name, found.runs, told)
    text = picture if out.endswith(".svg") else _page(name, picture, found, told)
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{out} cannot be written ({error.strerror or error})."
        raise OptionError(
            WHERE,
            what,
            "--out names a file in a folder that is there.",
            "correct the name.",
            code="J205",
        ) from None
    sys.stderr.write(f"The picture is in {out}.\n")


def _page(
    name: str,
    picture: str,
    found: Measurements,
    told: Sequence[Growth],
) -> str:
    heads = "".join(f"<th>{each}</th>" for each in ("size", *_HEADS))
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (_size(run), *_row(run)))}</tr>"
        for run in found.runs
    )
    grown = "".join(f"<li>{escape(sentence_of(growth))}</li>" for growth in told)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f"<title>jitney bench: {escape(name)}</title>",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escape(name)}</h1>",
            f"<p>{escape(found.how)}; {escape(found.stopped) or 'all sizes were measured'}.</p>",
            f'<div class="scroll">{picture}</div>',
            (
                f"<ul>{grown}</ul><div"
                f' class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
            ),
            "</body>",
            "</html>",
            "",
        ]
    )


_STYLE = """
:root { color-scheme: light dark; } body { margin: 0 auto; max-width: 1000px; padding: 1rem; font: 15px/1.45 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #e6e8ea; } }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } .scroll { overflow-x: auto; } .scroll svg { min-width: 560px; }
table { border-collapse: collapse; }
th, td { text-align: right; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #8886; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
"""


# Sizes of an axis that are worth trying as batch sizes: those at which a call takes least for each
# element, by the sweep alone.


# Sizes below which nothing can be said of the best.
_FEWEST = 3
# A size is nearly as quick if it takes no more than this, for each element.
_NEARLY = 1.1


@dataclass(frozen=True)
class SizePerElement:
    """Seconds that a warm call of a size takes for each element of its axis, by its median."""

    axis: str
    size: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.axis}={self.size} ({seconds_text(self.seconds)})"

    def to_dict(self) -> Data:
        """Return the fields as plain data, for JSON."""
        return dict(vars(self))


def sizes_worth_trying(runs: Sequence[SizeRun]) -> list[SizePerElement]:
    """Return the sizes whose calls take least for each element, or nearly so, in ascending order;
    none if several axes vary, or two sizes alone were measured.
    """
    axes = {axis for run in runs for axis in run.sizes}
    if len(axes) != 1 or len(runs) < _FEWEST:
        return []
    (axis,) = axes
    each = [
        SizePerElement(axis, run.sizes[axis], run.quartiles[1] / run.sizes[axis]) for run in runs
    ]
    least = min(one.seconds for one in each)
    return [one for one in each if one.seconds <= _NEARLY * least]
