"""The end of the demo: what jitney gained and did, and a page of it with the pictures of the main
jobs: `python -m examples`. `--only sizes` measures one gain.
"""

import argparse
import importlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rich.console import Console

from ._page import machine, page
from ._tables import NOT_GAINED, baselines, figure, gains, jobs, warm
from .gains import NAMES, TAKES
from .gains._gain import Gain

FILE = "summary.json"
RAN = ("trf", "homodyne", "equilibrium", "surrogate")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out"),
        help="folder of the jobs' folders, and of the page (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=NAMES,
        metavar="GAIN",
        help=f"measure these alone, of {', '.join(NAMES)}, whatever ran before",
    )
    return parser.parse_args()


def found(folder: Path) -> dict[str, dict[str, Any]]:
    """The summaries that main jobs have left, by name."""
    return {
        name: json.loads((folder / name / FILE).read_text())
        for name in RAN
        if (folder / name / FILE).exists()
    }


def kept(folder: Path) -> list[Gain]:
    """The gains that were measured, now or before on this machine and with these versions."""
    files = [folder / "gains" / f"{name}.json" for name in NAMES]
    every = [Gain.read(file) for file in files if file.exists()]
    return [gain for gain in every if gain.machine == machine()]


def measure(names: tuple[str, ...], folder: Path, console: Console) -> None:
    """Measure each, and keep it. First calls are to be compiled, so the persistent cache is off."""
    import jax

    import jitney

    jitney.configure(cache=False)
    jax.config.update("jax_enable_compilation_cache", False)
    # JAX starts here, and not in the first call that is timed.
    jax.block_until_ready(jax.numpy.sin(jax.numpy.ones(3)))
    for i, name in enumerate(names):
        console.print(
            f"{i + 1} of {len(names)}, {name}: {TAKES[name]}", highlight=False, soft_wrap=True
        )
        began = time.perf_counter()
        gain = importlib.import_module(f"{__package__}.gains.{name}").measure()
        gain = replace(gain, machine=machine())
        gain.write(folder / "gains")
        first = gain.lines[0]
        console.print(
            f"  {first.what}; jitney {figure(first.jitney)}, today {figure(first.today)}, by hand"
            f" {figure(first.by_hand)}. Measured in {time.perf_counter() - began:.0f} s.",
            highlight=False,
            soft_wrap=True,
        )


def main() -> int:
    """Measure, print, write the page; the exit code is 1 where no job has left a summary."""
    chosen, console = options(), Console()
    folder, names = chosen.out, tuple(chosen.only or NAMES)
    summaries = found(folder)
    if not summaries and not chosen.only:
        console.print(
            f"No job has left a summary in {folder.resolve()}: run `python -m nox -s demo` first.",
            soft_wrap=True,
        )
        return 1
    measure(names, folder, console)
    report(folder, summaries, names, console)
    return 0


def report(
    folder: Path, summaries: dict[str, dict[str, Any]], names: tuple[str, ...], console: Console
) -> None:
    """Print the tables, and write the page of all that the folder holds."""
    measured = kept(folder)
    shown = [gain for gain in measured if gain.name in names]
    if summaries and names == NAMES:
        console.print(jobs(summaries), warm(summaries))
    console.print(gains(shown))
    for line in (*baselines(shown), NOT_GAINED):
        console.print(f"{line}\n", highlight=False, markup=False)
    pictures = {name: sorted((folder / name).glob("*.png")) for name in summaries}
    file = folder / "index.html"
    file.write_text(page(folder, measured, summaries, pictures), encoding="utf-8")
    count = sum(map(len, pictures.values()))
    pictured = f"{count} picture{'' if count == 1 else 's'}"
    console.print(f"The page with all of it and {pictured}: {file.resolve()}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
