"""`python -m tests.mutations`: make each mistake of the list, and say which the core sees."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests._selection import part_of
from tests.mutations._list import MUTATIONS
from tests.mutations._mutation import Mutation
from tests.mutations._run import Judged, copied, judged

_SHOWN = 15  # lines of what pytest printed of a mutation that is broken


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the status is 0 if all were killed."""
    asked = _parser().parse_args(words)
    chosen = _chosen(asked)
    if asked.list:
        for mutation in chosen:
            print(f"{mutation.name}\n    {mutation.file}: {', '.join(mutation.tests)}")
        return 0
    if not chosen:
        print("no mutation has that name")
        return 2

    whole = asked.all_core is not None
    with tempfile.TemporaryDirectory(prefix="jitney-mutations-") as folder:
        copy = copied(Path(folder))
        told = [_tell(mutation, judged(mutation, copy, whole=whole)) for mutation in chosen]

    counts = Counter(each.verdict for each in told)
    print(f"{sum(each.seconds for each in told):.0f} seconds of CPU")
    print(f"{counts['killed']} killed, {counts['survived']} survived, {counts['broken']} broken")
    return 0 if counts["killed"] == len(chosen) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    add = parser.add_argument
    add("--part", type=part_of, metavar="K/N", help="the K-th of N parts of the list")
    add("-k", metavar="WORD", default="", help="those with this text in their names or files")
    add("--list", action="store_true", help="name them, and run nothing")
    add("--all-core", metavar="NAME", help="the mutation of this name, with the whole core")
    return parser


def _chosen(asked: argparse.Namespace) -> list[Mutation]:
    named = [each for each in MUTATIONS if asked.k in each.name or asked.k in each.file]
    if asked.all_core is not None:
        named = [each for each in named if each.name == asked.all_core]
    part, parts = asked.part or (1, 1)
    return named[part - 1 :: parts]


def _tell(mutation: Mutation, seen: Judged) -> Judged:
    """Print a line as soon as it is known; of what is broken, the end of what pytest printed."""
    print(f"{seen.verdict:<8} {seen.seconds:6.1f} s  {mutation.name}", flush=True)
    if seen.verdict == "broken":
        for line in seen.printed.splitlines()[-_SHOWN:]:
            print(f"    {line}", flush=True)
    return seen


if __name__ == "__main__":
    sys.exit(main())
