"""Tables and the progress bar, for a terminal or a notebook.

This module is imported only when something is shown: rich takes a tenth of the time in which
everything else is imported.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from .svg import INK, SOFT

# Limits for the width of the output, in characters.
_WIDEST, _NARROWEST = 120, 40
# Text and style of each cell.
Row = Sequence[tuple[str, str]]


def table(title: str, rows: Sequence[Row]) -> Table:
    """Table without lines, whose last column wraps."""
    grid = Table(
        title=title,
        title_justify="left",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    columns = max(map(len, rows), default=1)
    for i in range(columns):
        grid.add_column(
            style="bold" if i == columns - 2 else None,
            no_wrap=i < columns - 1,
            overflow="fold" if i == columns - 1 else "ellipsis",
        )
    for row in rows:
        grid.add_row(*(Text(text, style=style) for text, style in row))
    return grid


def figures(title: str, rows: Sequence[Sequence[str]]) -> Table:
    """Table of names and numbers: the first two columns are left-aligned and wrap, the others are
    right-aligned.
    """
    grid = Table(
        title=title,
        title_justify="left",
        box=None,
        show_header=False,
        pad_edge=False,
    )
    for i in range(max(map(len, rows), default=1)):
        grid.add_column(
            justify="left" if i < _NAMES else "right", overflow="fold", no_wrap=i >= _NAMES
        )
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


_NAMES = 2


# In a notebook a console of rich displays its output and leaves its file empty, unless
# `force_jupyter` is False.


def text_of(shown: object) -> str:
    """Plain text of a rich object; on a terminal as wide as the terminal, and in colours unless
    `NO_COLOR` is set.
    """
    file = io.StringIO()
    watched = _on_terminal()
    width = _wide() if watched else _WIDEST
    colours = True if watched and not os.environ.get("NO_COLOR") else None
    # A kernel of Jupyter sets `FORCE_COLOR`, which rich follows where `force_terminal` is None.
    colours = False if _in_notebook() else colours
    Console(file=file, width=width, force_terminal=colours, force_jupyter=False).print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def wrap_line(line: str) -> str:
    """Wrap one line between words if standard output is a terminal that is not as wide."""
    return (
        textwrap.fill(line, _wide(), subsequent_indent="   ", break_long_words=False)
        if _on_terminal()
        else line
    )


def _on_terminal() -> bool:
    """Return whether people read standard output on a terminal. In a kernel of Jupyter it says so
    of itself, but what it prints is kept in the file of a notebook.
    """
    return sys.stdout.isatty() and not _in_notebook()


def _in_notebook() -> bool:
    return Console().is_jupyter


def _wide() -> int:
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    return max(_NARROWEST, min(_WIDEST, columns))


def html_of(shown: Any) -> str:
    """HTML of a rich object, for a notebook, in colours that follow the notebook's theme."""
    console = Console(file=io.StringIO(), width=_WIDEST, force_jupyter=False)
    lines = Segment.split_lines(Segment.simplify(console.render(shown)))
    text = "\n".join(_html_line(line) for line in lines)
    return f'<div class="jitney-report"><style>{_CSS}</style><pre>{text}</pre></div>'


def _html_line(segments: Sequence[Segment]) -> str:
    # Rich fills each line up to the width of the table.
    left = len("".join(segment.text for segment in segments).rstrip())
    parts: list[str] = []
    for text, style, _ in segments:
        kept = escape(text[:left])
        left = max(0, left - len(text))
        classes = "" if style is None else " ".join(_classes(style))
        parts.append(f'<span class="{classes}">{kept}</span>' if classes and kept.strip() else kept)
    return "".join(parts)


def _classes(style: Style) -> Generator[str]:
    if style.bold:
        yield "bold"
    if style.italic:
        yield "italic"
    if style.dim:
        yield "soft"
    if style.color is not None:
        yield style.color.name


# Mixed with the colour of the text, each colour of a terminal reads on light and on dark grounds.
_MIXED = {"green": "#2a9d4e", "cyan": "#1a8fa8", "yellow": "#b07d12", "red": "#d9534f"}
_CSS = (
    f".jitney-report pre {{ color: {INK}; background: none; }} .jitney-report .bold {{ font-weight:"
    " 600; } .jitney-report .italic { font-style: italic; } .jitney-report .soft { opacity:"
    f" {SOFT}; }} "
    + " ".join(
        f".jitney-report .{name} {{ color: color-mix(in srgb, currentColor 50%, {colour}); }}"
        for name, colour in _MIXED.items()
    )
)


class _Rate(ProgressColumn):
    """Column with the rows (or other items) per second."""

    def render(self, task: Task) -> Text:
        return Text(
            f"{task.speed * task.fields['size']:,.0f} {task.fields['each']}/s" if task.speed else ""
        )


def bar(
    name: str,
    total: int,
    done: int,
    size: int,
    *,
    of: str = "chunks",
    each: str = "rows",
) -> AbstractContextManager[Callable[..., None]]:
    """Progress bar of a run over chunks; the context gives a function to call after each chunk, or
    with a number after as many. Without a terminal or a notebook it writes nothing.

    Args:
        name: Name of the run.
        total: Number of chunks.
        done: Number of chunks that were done before.
        size: Rows in a chunk.
        of: Name of the chunks.
        each: Name of the rows.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(of),
        _Rate(),
        TimeRemainingColumn(),
    )
    console = Console()
    if console.is_jupyter:
        return _display_progress(
            name,
            total,
            done,
            size=size,
            of=of,
            each=each,
        )
    if not console.is_terminal:
        return nullcontext(_nothing)
    progress = Progress(*columns, console=console, transient=True)
    return _show_progress(
        progress,
        name,
        total,
        done,
        size=size,
        each=each,
    )


@contextmanager
def _show_progress(
    progress: Progress,
    name: str,
    total: int,
    done: int,
    *,
    size: int,
    each: str,
) -> Generator[Callable[..., None]]:
    with progress:
        task = progress.add_task(
            name,
            total=total,
            completed=done,
            size=size,
            each=each,
        )
        yield lambda count=1: progress.advance(task, count)


@contextmanager
def _display_progress(
    name: str,
    total: int,
    done: int,
    *,
    size: int,
    of: str,
    each: str,
) -> Generator[Callable[..., None]]:
    """Progress bar of a notebook: one display, which is replaced and in the end emptied. A run that
    is done before anybody could read it displays nothing.

    IPython does that by itself. The bar of rich would need ipywidgets, and would leave the text of
    a widget that is gone in the notebook's file.
    """
    display: Any = importlib.import_module("IPython.display").display
    handle: Any = None
    began = shown = time.monotonic()
    reached = done

    def contents() -> dict[str, str]:
        seconds = time.monotonic() - began
        rate = (reached - done) / seconds if seconds else 0.0
        speed = (
            f", {rate * size:,.0f} {each}/s, {(total - reached) / rate:,.0f} s left" if rate else ""
        )
        text = f"{name} {reached}/{total} {of}".rstrip() + speed
        drawn = f'<progress value="{reached}" max="{total}"></progress>'
        return {"text/plain": text, "text/html": f"<div>{drawn} {escape(text)}</div>"}

    def advance(count: int = 1) -> None:
        nonlocal handle, reached, shown
        reached += count
        now = time.monotonic()
        if now - shown < _REDRAWN_AFTER:
            return
        shown = now
        if handle is None:
            handle = display(contents(), raw=True, display_id=True)
        else:
            handle.update(contents(), raw=True)

    try:
        yield advance
    finally:
        if handle is not None:
            handle.update({"text/plain": "", "text/html": ""}, raw=True)


# Seconds between two drawings of a bar in a notebook.
_REDRAWN_AFTER = 0.1


def _nothing(count: int = 1) -> None:
    del count
