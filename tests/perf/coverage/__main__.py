"""Print the scoreboard: `python -m tests.perf.coverage [--only GRU] [--group scripts] [--json]`."""

from __future__ import annotations

import argparse
import json
import os
import re
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.coverage", description=__doc__)
    parser.add_argument("--only", default="", help="models whose names hold this")
    parser.add_argument(
        "--group", choices=("models", "scripts", "libraries", "calls"), help="one table of the four"
    )
    parser.add_argument("--x64", action="store_true", help="with numbers of 64 bits")
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
    from ._table import counted, page, printed  # after the flags: it imports JAX

    found = _read(options.read) if options.read else _run(options)
    if options.page:
        text = options.page.read_text()
        for mark, groups in (
            ("tables", ("models", "scripts")),
            ("libraries", ("libraries",)),
            ("calls", ("calls",)),
        ):
            # What was not run stays as it was.
            if any(cell.group in groups for cell in found):
                text = _between(text, mark, page(found, groups))
        options.page.write_text(text)
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
    return any(cell.outcome in ("WRONG", "raw error") for cell in found)


def _between(text: str, mark: str, tables: str) -> str:
    """The page with these tables between the comments of a name."""
    old = rf"(<!-- {mark} -->\n).*?(\n<!-- end -->)"
    return re.sub(old, lambda at: at[1] + tables + at[2], text, flags=re.DOTALL)


def _run(options: Any) -> list[Any]:
    import jax

    from ._tried import cells
    from .models import ALL

    # After the models are imported, so that their networks are those of the other board.
    jax.config.update("jax_enable_x64", options.x64)
    found: list[Any] = []
    for model in ALL:
        if options.only in model.name and options.group in (None, model.group):
            for cell in cells(model, is_wide=options.x64):
                found.append(cell)
                if options.json:
                    print(json.dumps(cell.data()), flush=True)
    return found


def _read(files: list[Path]) -> list[Any]:
    """Cells that were tried before; what mathematics does not allow is as it is said now."""
    from ._tried import Cell
    from .models import ALL

    models = {model.name: model for model in ALL}
    cells = [Cell(**json.loads(line)) for file in files for line in file.read_text().splitlines()]
    return [
        Cell(
            **{**cell.data(), "never": models[cell.model].impossible(cell.axis, cell.way, cell.of)}
        )
        for cell in cells
    ]


if __name__ == "__main__":
    raise SystemExit(main())
