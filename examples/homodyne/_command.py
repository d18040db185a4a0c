"""The commands for files of beamlines: `python -m examples.homodyne inspect results.hdf`."""

import argparse
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

COMMANDS = ("inspect",)
WRONG = 2


def arguments(words: list[str]) -> argparse.Namespace:
    """The command line, checked."""
    from .readers import LAYOUTS

    parser = argparse.ArgumentParser(prog="python -m examples.homodyne", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    inspect = commands.add_parser("inspect", help="say what a beamline's file has in it")
    inspect.add_argument("file", type=Path)
    inspect.add_argument("--layout", choices=["auto", *LAYOUTS], default="auto")
    inspect.add_argument("--analysis", help="of a file of the ESRF that has several")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run a command; its exit code: 2 for a file that is not as its layout says."""
    chosen = arguments(words)
    said = Console(stderr=True)
    try:
        return _inspect(chosen)
    except (ValueError, OSError) as error:
        if isinstance(error, ValueError) and "\nFix: " not in str(error):
            raise
        said.print(str(error), style="red", highlight=False, markup=False, soft_wrap=True)
        for note in getattr(error, "__notes__", ()):
            said.print(note, highlight=False, markup=False, soft_wrap=True)
        return WRONG


def _inspect(chosen: argparse.Namespace) -> int:
    from .readers import opened

    with opened(chosen.file, chosen.layout, chosen.analysis) as file:
        console = Console()
        time = "not in the file" if file.frame_time is None else f"{file.frame_time:g} s"
        console.print(f"{chosen.file.name}: {file.what}", highlight=False, soft_wrap=True)
        console.print(f"{file.frames:,} frames, {time} apart; {len(file.bins)} bins")
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("bin", "q (1/Angstrom)", "phi (degrees)", "map"):
            table.add_column(name, justify="left" if name == "map" else "right")
        for number, each in enumerate(file.bins, 1):
            q, phi = ("-" if x is None else f"{x:.6g}" for x in (each.q, each.phi))
            table.add_row(str(number), q, phi, each.where)
        console.print(table)
        for note in file.notes:
            console.print(f"note: {note}", highlight=False, soft_wrap=True)
    return 0
