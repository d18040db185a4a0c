"""Print the scoreboard: `python -m tests.perf.coverage [--only GRU] [--group scripts] [--json]`.

A few rows at a time are tried in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from examples._figures import record

# XLA for CPUs changes numbers by itself where it fuses products so; and most of the time is its
# compiler's.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_experimental_ynn_fusion_type= --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true",
)
os.environ.setdefault("JITNEY_CACHE", "off")

TABLES = {"tables": ("models", "scripts"), "libraries": ("libraries",), "calls": ("calls",)}
"""Comment on the page -> the groups whose tables stand below it."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf.coverage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument(
        "--group", choices=("models", "scripts", "libraries", "calls"), help="one table of the four"
    )
    parser.add_argument("--x64", action="store_true", help="with numbers of 64 bits")
    parser.add_argument(
        "--rows", nargs="+", help="rows of these names, in this process, as lines of --json"
    )
    parser.add_argument(
        "--floors", action="store_true", help="how many are exact of each model, for the test"
    )
    parser.add_argument(
        "--read", type=Path, nargs="*", help="lines of --json of earlier runs, instead of a run"
    )
    parser.add_argument("--page", type=Path, help="docs/models.md, whose tables are written anew")
    parser.add_argument(
        "--json", action="store_true", help="a line of JSON for each cell instead of tables"
    )
    options = parser.parse_args()
    if options.rows:
        _here(options)
        return 0
    from ._table import counted, printed  # after the flags: it imports JAX

    ended: list[str] = []
    found = _read(options.read) if options.read else _run(options, ended)
    if options.page:
        ended += _left_out(found)
        if not ended:
            _write(options.page, found)
    elif options.floors:
        for name in dict.fromkeys(cell.model for cell in found):
            print(
                f'    "{name}":'
                f" {sum(cell.outcome == 'exact' for cell in found if cell.model == name)},"
            )
    elif not options.json:
        print(printed(found))
    record(
        **{
            group: counted([cell for cell in found if cell.group == group])
            for group in dict.fromkeys(cell.group for cell in found)
        }
    )
    for line in ended:
        print(line, file=sys.stderr)
    return bool(ended) or any(cell.outcome in ("WRONG", "raw error") for cell in found)


def _write(path: Path, found: list[Any]) -> None:
    """The tables of the groups that were tried; the others stay as they were."""
    from ._table import page

    text = path.read_text()
    for mark, groups in TABLES.items():
        if any(cell.group in groups for cell in found):
            text = _between(text, mark, page(found, groups))
    path.write_text(text)


def _between(text: str, mark: str, tables: str) -> str:
    """The page with these tables between the comments of a name."""
    old = rf"(<!-- {mark} -->\n).*?(\n<!-- end -->)"
    return re.sub(old, lambda at: at[1] + tables + at[2], text, flags=re.DOTALL)


def _run(options: Any, ended: list[str]) -> list[Any]:
    """Cells that other processes try, and what is said of one that ended early."""
    from ._parts import Ended, split, tried
    from .models import ALL

    rows = [
        model
        for model in ALL
        if options.only in model.name and options.group in (None, model.group)
    ]
    found: list[Any] = []
    for part in split(rows):
        try:
            for cell in tried(part, is_wide=options.x64):
                found.append(cell)
                if options.json:
                    print(json.dumps(cell.data()), flush=True)
        except Ended as error:
            ended.append(str(error))
    return found


def _here(options: Any) -> None:
    """Try rows in this process; its status says whether it came to their end."""
    import jax

    from ._tried import cells
    from .models import ALL

    # After the models are imported, so that their networks are those of the other board.
    jax.config.update("jax_enable_x64", options.x64)
    models = {model.name: model for model in ALL}
    for name in options.rows:
        for cell in cells(models[name], is_wide=options.x64):
            print(json.dumps(cell.data()), flush=True)


def _read(files: list[Path]) -> list[Any]:
    """Cells that were tried before, in the order of the tables; what mathematics does not allow is
    as it is said now.
    """
    from ._tried import Cell
    from .models import ALL

    models = {model.name: model for model in ALL}
    order = list(models)
    cells = [Cell(**json.loads(line)) for file in files for line in file.read_text().splitlines()]
    return [
        Cell(
            **{**cell.data(), "never": models[cell.model].impossible(cell.axis, cell.way, cell.of)}
        )
        for cell in sorted(cells, key=lambda cell: (cell.bits, order.index(cell.model)))
    ]


def _left_out(found: list[Any]) -> list[str]:
    """Rows that a page of these cells would lack."""
    from .models import ALL

    groups = {
        group
        for table in TABLES.values()
        for group in table
        if any(cell.group in table for cell in found)
    }
    names = {cell.model for cell in found if cell.bits == 32}
    rows = [model.name for model in ALL if model.group in groups and model.name not in names]
    return [f"no page is written, these rows lack float32: {rows}"] if rows else []


if __name__ == "__main__":
    raise SystemExit(main())
