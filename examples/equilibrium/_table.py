"""Tables that the main job and the benchmarks print."""

from collections.abc import Collection, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table


def table(columns: Sequence[str], words: Collection[str]) -> Table:
    """An empty table, in which columns of words begin at the left and others end at the right."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        made.add_column(name, justify="left" if name in words else "right")
    return made
