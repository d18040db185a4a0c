"""Is this tree slower than another commit? `python -m nox -s bench -- --against COMMIT`.

A few benchmarks of milliseconds are run on both sources, in pairs of processes that take turns.
Their results are compared first. The exit code is 1 if this tree is slower, computes something else
or fails; a verdict "unknown" says that the machine was too busy, and is none.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .benches import BENCHES
from .judged import LEAST_PAIRS, head, lines
from .pairs import ROOT, measure, unpack
from .saved import save


def git(*words: str) -> str:
    """What git answers; empty where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return "" if done.returncode else done.stdout.decode().strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each figure, and say by the exit code whether one is worse."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf.commits", description=(__doc__ or "").partition("\n")[0]
    )
    names = ", ".join(BENCHES)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=f"some of {names}")
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the commit before")
    parser.add_argument("--pairs", type=int, default=12, help="of processes; 12, at least 8")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="files of pytest-benchmark")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.benches if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {names}")
    if given.pairs < LEAST_PAIRS:
        parser.error(f"--pairs {given.pairs}: fewer than {LEAST_PAIRS} have no interval")
    against = git("rev-parse", "--verify", "--short", f"{given.against}^{{commit}}")
    if not against:
        parser.error(f"--against {given.against}: git knows no such commit here")
    # with what is not committed
    this = git("rev-parse", "--short", "HEAD") + (
        "+" if git("status", "--porcelain", "src") else ""
    )

    with tempfile.TemporaryDirectory() as folder:
        sources = unpack(against, Path(folder)), ROOT / "src"
        outcomes = measure(sources, given.benches or list(BENCHES), given.pairs)
    found = lines(outcomes)
    print(head(against, this, given.pairs))
    width = max(len(line.name) for line in found)
    for line in found:
        print(f"{'!' if line.is_worse else ' '} {line.name:{width}}  {line.text}")
    if given.json is not None:
        print("written:", *save(given.json, outcomes, (against, this)))
    worse = sum(line.is_worse for line in found)
    print(f"{worse} of {len(found)} are worse" if worse else "none is worse")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
