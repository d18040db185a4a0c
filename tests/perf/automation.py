"""How many lines of a program are plumbing, before jitney, by hand and after: `python -m
tests.perf.automation`.

A line is plumbing if a word of one of the kinds below stands in its code; comments, docstrings,
imports and blank lines do not count. A decorator with options is plumbing too, so "after" pays for
what it asks. "by hand" is `by_hand.py` of each port: the same sizes, pieces and devices without
jitney; "after" are what the port has for that. "before" is what the port was written from, on one
device, without padding or chunks. It is a count of words and no judgement; a line may be of several
kinds, and is counted once in the sum.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from typing import Any

from examples._figures import record

ROOT = Path(__file__).parents[2]
WAYS = ("before", "by hand", "after")
KINDS = {
    "jit": r"\bjit\b|filter_jit|static_arg|optimize\(|@optimize|lower\(|compiler",
    "map": r"in_axes|out_axes|\bvmap\b|filter_vmap|vmap=",
    "shard": (
        r"PartitionSpec|\bP\(|NamedSharding|shard_map|\bpsum\b|device_put|shardings?\b|shard=|\bmesh\b|_specs\b"
    ),
    "donate": r"donate",
    "pad": r"\bpad(ded|ding)?\b|pad=|bucket|\bPAD\b|BUCKETS",
    "mask": r"masked|\binside(_sets)?\b|arange\(.*<",
    "chunk": r"\bchunks?\b|microbatch|\bpieces?\b|memory=",
    "cache": r"cache",
    "grad": (
        r"jacfwd|jacrev|value_and_grad|filter_grad|jax\.grad|\.grad\b|partition\(|combine\(|is_array"
        r"|lazy_derivatives|jacobian\(|\bvjp\b|\bjvp\b"
    ),
}
# port -> where the work is: a name in a file, without the functions inside it that do something
# else
AFTER: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "trf": [("_program.py", "programs", ("fit", "evaluate", "evaluate_batch"))],
    "homodyne": [
        ("_fit.py", name, ())
        for name in ("at_once", "in_chunks", "in_memory", "chunked", "streamed")
    ],
    "equilibrium": [("_sweep.py", "program", ())],
    "surrogate": (
        [("_step.py", name, ()) for name in ("PAD", "loss_of", "step_of")]
        + [("_validate.py", "predict", ())]
    ),
}


def code_lines(source: str, only: str | None = None, without: tuple[str, ...] = ()) -> list[str]:
    """The lines of code: without docstrings, comments, imports and blank lines; of one function or
    constant, if one is named.
    """
    tree = ast.parse(source)
    left_out: set[int] = set()
    kept: set[int] = set() if only else set(range(len(source.splitlines()) + 1))
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        is_function = isinstance(node, ast.FunctionDef)
        if (
            is_text
            or isinstance(node, (ast.Import, ast.ImportFrom))
            or (is_function and node.name in without)
        ):
            left_out.update(spanned(node))
        is_constant = isinstance(node, ast.Assign) and [only] == [
            x.id for x in node.targets if isinstance(x, ast.Name)
        ]
        if is_constant or (is_function and node.name == only):
            kept.update(spanned(node))
    lines = [re.sub(r"\s#.*|^#.*", "", line) for line in source.splitlines()]
    return [
        line for number, line in enumerate(lines, 1) if line.strip() and number in kept - left_out
    ]


def spanned(node: Any) -> range:
    """The lines of a node, its decorators too."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or first) + 1)


def lines_of(port: str, way: str) -> list[str]:
    """The lines of code of one way to do the step."""
    folder = ROOT / "examples" / port
    if way != "after":
        return code_lines((folder / f"{way.replace(' ', '_')}.py").read_text())
    return [
        line
        for file, name, without in AFTER[port]
        for line in code_lines((folder / file).read_text(), name, without)
    ]


def plumbing(lines: list[str]) -> list[str]:
    """Those that are of any kind."""
    return [line for line in lines if any(re.search(words, line) for words in KINDS.values())]


def in_all(way: str) -> int:
    """Lines of plumbing of all ports."""
    return sum(len(plumbing(lines_of(port, way))) for port in AFTER)


def table() -> str:
    """The table of `docs/automation.md`."""
    rows = [
        f"| port | way | lines of code | plumbing | {' | '.join(KINDS)} |",
        f"|---|---|{'---|' * (2 + len(KINDS))}",
    ]
    for port in AFTER:
        for way in WAYS:
            lines = lines_of(port, way)
            kinds = [
                sum(bool(re.search(words, line)) for line in lines) for words in KINDS.values()
            ]
            rows.append(
                f"| {port} | {way} | {len(lines)} | {len(plumbing(lines))} |"
                f" {' | '.join(map(str, kinds))} |"
            )
    hand, after = in_all("by hand"), in_all("after")
    return "\n".join(
        [
            *rows,
            "",
            (
                f"Lines of plumbing in all: {hand} by hand, {after} after: {1 - after / hand:.0%}"
                " are gone."
            ),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", action="store_true", help="print each line that counts")
    if parser.parse_args().lines:
        for port in AFTER:
            for way in WAYS:
                print(f"\n{port}, {way}", *plumbing(lines_of(port, way)), sep="\n")
    print(table())
    record(hand=in_all("by hand"), after=in_all("after"))
