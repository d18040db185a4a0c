"""A process that hunts: a line of JSON for each step that it begins and for each case that is over,
so that a hang has a name.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import jax

from ._draw import ALL, AMONG, drawn
from ._hunt import Finding, Score, hunt
from ._recipe import Recipe
from ._shrink import script, shrunk

MOST_MEMORY = 6 * 2**30
# What JAX leaves open, and a GPU gives another way each time: which write stays where indices
# repeat, and what is in memory that was never written.
OPEN_ON_GPU = (".at[{i} + 1].set({v})", "empty(", "empty_like(")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--until", type=float, required=True)  # seconds since the epoch
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--among", default="")
    parser.add_argument("--sizes", type=int, default=1)
    options = parser.parse_args(argv)
    # An option with lines of its own has their name.
    named = options.among or (options.only if options.only in AMONG else "")
    among = AMONG[named] if named else ALL
    # One update that overlaps has all of a program written in another way.
    many = 1 if named == "overlaps" else 8
    if jax.default_backend() == "gpu":
        among = [recipe for recipe in among if not any(word in recipe.text for word in OPEN_ON_GPU)]
    warnings.simplefilter("ignore")
    out = sys.stdout
    sys.stdout = sys.stderr  # what programs print is no message
    seen: set[Any] = set()

    def told(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    only = tuple(filter(None, options.only.split(",")))
    for k in range(options.cases):
        index = options.first + k * options.step
        if time.time() > options.until:
            break
        began = time.time()
        told(began=index)
        score = hunt(
            options.seed,
            index,
            only,
            told=lambda text, index=index: told(doing=text, index=index),
            among=among,
            many=many,
            sizes=options.sizes,
        )
        found = [_told(finding, seen, told, among, many) for finding in score.findings]
        told(index=index, seconds=round(time.time() - began, 2), findings=found, **_counts(score))
        if k % 8 == 7:
            jax.clear_caches()
            gc.collect()
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_MEMORY:
            break
    told(over=True)


def _counts(score: Score) -> dict[str, Any]:
    return {
        "tried": dict(score.tried),
        "refused": dict(score.refused),
        "unstable": dict(score.unstable),
        "reasons": {name: sorted(why) for name, why in score.reasons.items()},
    }


def _told(
    finding: Finding, seen: set[Any], told: Any, among: Sequence[Recipe], many: int
) -> dict[str, Any]:
    """A finding as JSON, shrunk unless its like has been."""
    told(doing=f"shrinking {finding.option}")
    like = (
        finding.kind,
        finding.option,
        finding.what.split(" for ")[0][:40]
        if finding.kind == "raw"
        else finding.program.lines[0][1],
    )
    text, what = "", finding.what
    if like not in seen:
        seen.add(like)
        case = drawn(finding.seed, finding.index, many, among)
        arrays = case.arrays(finding.n)
        original = next(
            (
                e.program
                for e in case.expressions
                if e.program.lines == finding.program.lines[: len(e.program.lines)]
            ),
            None,
        )
        with case.numbers():
            found = (
                shrunk(finding, original, {name: arrays[name] for name, _ in original.takes})
                if original is not None
                else None
            )
        if found is not None:
            text, what = script(found), found.what
    return {
        "kind": finding.kind,
        "option": finding.option,
        "what": what,
        "index": finding.index,
        "n": finding.n,
        "dtype": finding.dtype,
        "lines": [f"{name} = {line}" for name, line in finding.program.lines],
        "code": finding.code,
        "script": text,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
