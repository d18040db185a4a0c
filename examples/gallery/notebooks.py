"""Write the examples as notebooks, in nbformat's JSON and without outputs: `python -m
examples.gallery.notebooks`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from ._card import NAMES

HERE = Path(__file__).parent
SHOWN = """\
for part in plan():
    print(part)
for what, figures in compare().items():
    print(what, figures, sep="\\n")"""
# Inside of a page, what is black in an SVG can take the colour of the page's text.
DRAWN = """\
import io

import matplotlib as mpl
from IPython.display import HTML

figure, file = Figure(figsize=(7, 2.8), layout="constrained"), io.StringIO()
draw(figure)
with mpl.rc_context({"svg.fonttype": "none"}):
    figure.savefig(file, format="svg", transparent=True)
svg = file.getvalue().replace("#000000", "currentColor")
HTML(svg[svg.index("<svg") :].replace("<svg", '<svg fill="currentColor"', 1))"""
LAST = (("Run it", SHOWN), ("See it, on a light or a dark page", DRAWN))


def cells(source: str) -> list[tuple[str, str]]:
    """Heading and code of each cell of a script; first its docstring, without code."""
    first, *rest = re.split(r"^# %% ", source, flags=re.MULTILINE)
    parts = [part.partition("\n") for part in rest]
    return [
        (first.strip().strip('"'), ""),
        *((heading, code.strip()) for heading, _, code in parts),
    ]


def notebook(name: str) -> dict[str, Any]:
    """One example as nbformat has it; the last cells run it with small sizes."""
    made: list[dict[str, Any]] = []
    for number, (words, code) in enumerate([*cells((HERE / f"{name}.py").read_text()), *LAST]):
        heading = f"## {words}" if code else f"# {words}"
        made.append(
            {
                "cell_type": "markdown",
                "id": f"words-{number}",
                "metadata": {},
                "source": heading.splitlines(keepends=True),
            }
        )
        if code:
            lines = code.splitlines(keepends=True)
            blank = {"execution_count": None, "metadata": {}, "outputs": []}
            made.append({"cell_type": "code", "id": f"code-{number}", "source": lines, **blank})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text(name: str) -> str:
    """The file of a notebook."""
    return json.dumps(notebook(name), indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write all of them."""
    for name in NAMES:
        (HERE / "notebooks" / f"{name}.ipynb").write_text(text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
