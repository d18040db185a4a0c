"""The end of the demo: what jitney did in the main jobs that were run, and where their pictures
are: `python -m examples`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples._summary import FILE

JOBS = ("trf", "homodyne", "equilibrium", "surrogate")


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """The summaries that main jobs have left, by name."""
    return {
        name: json.loads((folder / name / FILE).read_text())
        for name in JOBS
        if (folder / name / FILE).exists()
    }


def jobs(summaries: dict[str, dict[str, Any]]) -> Table:
    """Programs, cache and memory of each job."""
    table = Table(title="What jitney did", box=SIMPLE_HEAD, pad_edge=False)
    for name in (
        "job",
        "in all, s",
        "programs compiled",
        "from the persistent cache",
        "compiling and loading, s",
        "peak memory, MiB",
    ):
        table.add_column(name, justify="left" if name == "job" else "right")
    for name, each in summaries.items():
        counts = (f"{each['compiled']:,}", f"{each['from the cache']:,}")
        peak = "-" if each["peak MiB"] is None else f"{each['peak MiB']:,.0f}"
        table.add_row(name, f"{each['seconds']:.1f}", *counts, f"{each['compiling']:.1f}", peak)
    return table


def times(summaries: dict[str, dict[str, Any]]) -> Table:
    """Warm calls beside plain JAX."""
    table = Table(
        title="Warm calls, ms, the shortest of several; results are the same",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in ("job", "what", "jitney", "plain jax.jit"):
        table.add_column(name, justify="left" if name in ("job", "what") else "right")
    for name, each in summaries.items():
        for pair in each["pairs"]:
            table.add_row(
                name, pair["what"], f"{1e3 * pair['jitney']:.3g}", f"{1e3 * pair['plain']:.3g}"
            )
    return table


def main() -> int:
    """Print the summary; the exit code is 1 where no job has left one."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out"),
        help="folder of the jobs' folders (default: %(default)s)",
    )
    folder, console = parser.parse_args().out, Console()
    summaries = found(folder)
    if not summaries:
        console.print(
            f"No job has left a summary in {folder.resolve()}: run `python -m nox -s demo` first.",
            soft_wrap=True,
        )
        return 1
    console.print(jobs(summaries))
    console.print(times(summaries))
    for name in summaries:
        pictures = sorted((folder / name).glob("*.png"))
        shown = pictures[0] if len(pictures) == 1 else folder / name
        console.print(
            f"{len(pictures)} picture{'' if len(pictures) == 1 else 's'} of {name}:"
            f" {shown.resolve()}",
            soft_wrap=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
