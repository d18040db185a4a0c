"""Progress of a long job: a bar on a terminal, elsewhere a line for each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def steps(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """Give a function that says which step begins. On a terminal the bar counts those that are
    done; into a file or a pipe goes a line as each begins.
    """
    if not console.is_terminal:
        begun = iter(range(1, total + 1))

        def line(name: str) -> None:
            console.print(f"{next(begun)} of {total}: {name}", highlight=False, soft_wrap=True)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)
        began = 0

        def move(name: str) -> None:
            nonlocal began
            progress.update(task, description=name, completed=began)
            began += 1

        yield move
        progress.update(task, description="all done", completed=began)
