"""`python -m tests.mutations`: make each mistake of the list in a copy of the project, and say which the core of the tests sees."""

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


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the status is 0 if all were killed."""
    asked = _parser().parse_args(words)
    chosen = _chosen(asked)
    if asked.list:
        for mutation in chosen:
            print(f"{mutation.name}\n    {mutation.file}: {', '.join(mutation.tests)}")
        return 0
    if not chosen:
        print("no mutation is of that name")
        return 2
    with tempfile.TemporaryDirectory(prefix="jitney-mutations-") as folder:
        copy = copied(Path(folder))
        verdicts = [_tell(mutation, judged(mutation, copy, whole=asked.all_core is not None)) for mutation in chosen]
    counts = Counter(each.verdict for each in verdicts)
    print(f"{sum(each.seconds for each in verdicts):.0f} seconds of CPU")
    print(f"{counts['killed']} killed, {counts['survived']} survived, {counts['broken']} broken")
    return 0 if counts["killed"] == len(chosen) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--part", type=part_of, metavar="K/N", help="the K-th of N parts of the list")
    parser.add_argument("-k", metavar="WORD", help="those with this text in their names or files")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    parser.add_argument("--all-core", metavar="NAME", help="the mutation of this name, with the whole core instead of its own tests")
    return parser


def _chosen(asked: argparse.Namespace) -> list[Mutation]:
    part, parts = asked.part or (1, 1)
    word = asked.k or ""
    named = [each for each in MUTATIONS if asked.all_core in (None, each.name) and (word in each.name or word in each.file)]
    return named[part - 1 :: parts]


def _tell(mutation: Mutation, seen: Judged) -> Judged:
    """Print a line as soon as it is known; of what was broken, the end of what pytest said."""
    print(f"{seen.verdict:<8} {seen.seconds:6.1f} s  {mutation.name}", flush=True)
    if seen.verdict == "broken":
        print("\n".join(f"    {line}" for line in seen.printed.splitlines()[-15:]), flush=True)
    return seen


if __name__ == "__main__":
    sys.exit(main())
