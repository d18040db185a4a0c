"""Try the rows of the scoreboard in processes of their own, a few rows in each.

A compiled program takes many memory mappings that XLA for CPUs keeps as long as the process
lives, and Linux allows a process 65,530 (`vm.max_map_count`). About 70 cells of solvers use them
up; what is compiled then ends with "Cannot allocate memory".
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ._model import Model
from ._tried import TRIED, Cell

CELLS = 24
"""At most so many in a process, a third of what one of them has room for."""

ROOT = Path(__file__).parents[3]


class Ended(Exception):
    """A process ended before all of its rows were tried."""


def split(models: Sequence[Model]) -> list[list[Model]]:
    """Rows in their order, as many together as have `CELLS` cells, and at least one."""
    parts: list[list[Model]] = []
    room = 0
    for model in models:
        count = _count(model)
        if not parts or count > room:
            parts.append([])
            room = CELLS
        parts[-1].append(model)
        room -= count
    return parts


def _count(model: Model) -> int:
    ways = sum(way in model.ways and of in model.of for way, of in TRIED)
    return len(model.sizes) * ways


def tried(part: Sequence[Model], *, is_wide: bool) -> Iterator[Cell]:
    """Cells of these rows, as a process of their own tries them.

    Raises:
        Ended: Behind the last cell that came.
    """
    names = [model.name for model in part]
    command = _command(names, is_wide=is_wide)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Cell(**json.loads(line))
    if process.returncode:
        raise Ended(f"the process of these rows ended with {process.returncode}: {names}")


def _command(names: Sequence[str], *, is_wide: bool) -> list[str]:
    wide = ["--x64"] if is_wide else []
    return [sys.executable, "-m", "tests.perf.coverage", *wide, "--rows", *names]
