"""Tables and the progress bar, for a terminal or a notebook.

This module is imported only when something is shown: rich takes a tenth of the time in which
everything else is imported.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec

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
from rich.table import Table
from rich.text import Text

from ._errors import JitneyWarning, format_error
from ._owners import users_level

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
    colours = watched and not os.environ.get("NO_COLOR")
    width = _wide() if watched else _WIDEST
    Console(file=file, width=width, force_terminal=colours or None, force_jupyter=False).print(
        shown
    )
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def wrap_line(line: str) -> str:
    """Wrap one line between words if standard output is a terminal that is not as wide."""
    return (
        textwrap.fill(line, _wide(), subsequent_indent="   ", break_long_words=False)
        if _on_terminal()
        else line
    )


def _on_terminal() -> bool:
    """Return whether people read standard output on a terminal. The output of a kernel of Jupyter
    says that it is one, and a notebook has the text beside its HTML, in its file too.
    """
    return sys.stdout.isatty() and not Console().is_jupyter


def _wide() -> int:
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    return max(_NARROWEST, min(_WIDEST, columns))


def html_of(shown: object) -> str:
    """HTML of a rich object, for a notebook."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=_WIDEST,
        force_jupyter=False,
    )
    console.print(shown)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


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
) -> AbstractContextManager[Callable[[], None]]:
    """Progress bar of a run over chunks; the context gives a function to call after each chunk.
    Without a terminal or a notebook it writes nothing.

    A notebook needs the package ipywidgets for it; without the package there is a warning, and no
    bar.

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
    if not (console.is_terminal or console.is_jupyter):
        return nullcontext(_nothing)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        text = format_error(
            f"{name}()",
            "no progress bar is shown.",
            "A notebook draws it with the package ipywidgets, which is not installed; the run goes"
            " on without the bar.",
            "`pip install ipywidgets` and start the kernel again, or `progress=False`.",
        )
        warnings.warn(text, JitneyWarning, stacklevel=users_level())
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
) -> Generator[Callable[[], None]]:
    with progress:
        task = progress.add_task(
            name,
            total=total,
            completed=done,
            size=size,
            each=each,
        )
        yield lambda: progress.advance(task)


def _nothing() -> None:
    pass
