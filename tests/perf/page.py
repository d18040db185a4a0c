"""Measure the figures of `docs/benchmarks.md` again, and write the page: `python -m tests.perf.page
[ROW ...] [--full]`.

The commands of the rows that are named run one after the other, without names those of all rows but
the longest, which `--full` adds; what they print stands in between. After each the figures are in
`docs/benchmarks.json`, with versions, machine, day, load and seconds, and in the page. So a run
without names that is interrupted goes on when it is started again (`--anew` begins with the first
row). A command that fails leaves its rows as they were, is named at the end, and makes the exit
code 1.

A figure stands first on the page that it belongs to, where no program writes: which numbers are not
there is told at the end, and a test holds both together. Other work on the machine makes times
longer: start this where nothing else runs. All are of CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from examples._figures import FILE

from ._rows import ROWS, Row

Entry = dict[str, Any]
ROOT = Path(__file__).parents[2]
DATA, PAGE, DONE = "docs/benchmarks.json", "docs/benchmarks.md", "out/benchmarks.done"
# two threads that contend for two cores slow LAPACK 40 times
SHARED = {"OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
BEGIN, END = "<!-- table -->\n", "\n<!-- its end -->"
HEAD = "| what | figure | beside | jax | day | on | command |\n|---|---|---|---|---|---|---|"
OF_PORTS = "Of the ports, each beside the best that could be found or written:"
NUMBER = re.compile(r"\d[\d.,]*\d|\d")


class Failed(Exception):
    """Why a command gave no figures."""


def table(entries: Mapping[str, Entry]) -> str:
    """What stands on the page between its markers."""
    lines = {row: line(row, entries.get(row.name)) for row in ROWS}
    pages = [text for row, text in lines.items() if row.page.startswith("docs/")]
    ports = [text for row, text in lines.items() if row.page.startswith("examples/")]
    return "\n".join([HEAD, *pages, "", OF_PORTS, "", HEAD, *ports])


def line(row: Row, entry: Entry | None) -> str:
    """A row of it; one that was never measured says so."""
    page = Path(row.page)
    what = (
        f"[{row.what}]({page.relative_to('docs')})"
        if page.parts[0] == "docs"
        else f"`{page.parent}`: {row.what}"
    )
    if entry is None:
        return f"| {what} | not measured yet | - | - | - | - | `{row.command}` |"
    on = entry["machine"] + (f", load {entry['load']}" if "load" in entry else "")
    cells = (
        what,
        entry["figure"] + ranges(entry),
        entry["beside"],
        entry["jax"],
        entry["day"],
        on,
        f"`{entry['command']}`",
    )
    return f"| {' | '.join(cells)} |"


def ranges(entry: Entry) -> str:
    """The least and the most of several runs, whose median is the figure."""
    if "range" not in entry:
        return ""
    low, high = entry["range"]
    return f" ({low} to {high} in {entry['runs']} runs)"


def missing(row: Row, entry: Entry, root: Path = ROOT) -> list[str]:
    """Numbers of a row that its own page does not have."""
    there = set(NUMBER.findall((root / row.page).read_text()))
    return [
        number
        for number in NUMBER.findall(f"{entry['figure']} {entry['beside']}")
        if number not in there
    ]


def measured(row: Row, root: Path) -> dict[str, Any]:
    """What the command of a row records.

    Raises:
        Failed: It ended with an error, or recorded nothing.
    """
    words = shlex.split(row.command)
    own = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    command = [sys.executable if word == "python" else word for word in words[len(own) :]]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        env = {**os.environ, **SHARED, **row.env, **own, FILE: str(file)}
        status = subprocess.run(command, cwd=root, env=env, check=False).returncode
        if status:
            raise Failed(f"exit code {status}")
        if not file.exists():
            raise Failed(
                "it recorded no figures: `record` of examples/_figures.py writes them to the file"
                f" that {FILE} names"
            )
        return json.loads(file.read_text())


def combined(values: Sequence[Any], pick: Callable[[Sequence[Any]], Any]) -> Any:
    """Figures of several runs as one: each number picked among its values."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: combined([each[key] for each in values], pick) for key in first}
    if isinstance(first, list) and all(len(each) == len(first) for each in values):
        return [combined(each, pick) for each in zip(*values, strict=True)]
    is_number = isinstance(first, (int, float)) and not isinstance(first, bool)
    return pick(values) if is_number else first


def entry_of(row: Row, runs: Sequence[Mapping[str, Any]], about: Entry) -> Entry:
    """The cells of a row, with when, where and how they were measured: the median of several runs,
    and from where to where they were.

    Raises:
        Failed: A figure that a cell is made of is not there.
    """
    try:
        low, figures, high = (combined(runs, pick) for pick in (min, statistics.median_low, max))
        cells: Entry = {
            "figure": row.figure.format(**figures),
            "beside": row.beside.format(**figures),
        }
        if len(runs) > 1:
            cells["range"] = [row.figure.format(**low), row.figure.format(**high)]
            cells["runs"] = len(runs)
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(
            f"row {row.name} is not made of what it recorded: {type(error).__name__}: {error}"
        ) from error
    return {**cells, "command": row.command, **about}


def here() -> Entry:
    """Versions, machine, day and load."""
    cpus = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", cpus.read_text()) if cpus.exists() else None
    cpu = named[1] if named else platform.processor() or platform.machine()
    load = {"load": round(os.getloadavg()[0], 1)} if hasattr(os, "getloadavg") else {}
    today = date.today().isoformat()
    return {
        "jax": version("jax"),
        "python": platform.python_version(),
        "machine": f"{cpu}, {os.cpu_count()} cores",
        "day": today,
        **load,
    }


def write(root: Path, entries: Mapping[str, Entry]) -> None:
    """The data, in the order of the page, and the page."""
    known = {row.name: entries[row.name] for row in ROWS if row.name in entries}
    replace(root / DATA, json.dumps(known, indent=2, ensure_ascii=False) + "\n")
    before, rest = (root / PAGE).read_text().split(BEGIN)
    replace(root / PAGE, before + BEGIN + table(known) + END + rest.split(END)[1])


def replace(path: Path, text: str) -> None:
    """A file as a whole, so that whatever interrupts leaves the old one or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def by_command(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one command are measured together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.command, []).append(row)
    return list(groups.values())


def measure(
    groups: Sequence[Sequence[Row]],
    root: Path,
    done: Path | None,
    runs: int = 1,
) -> dict[str, str]:
    """Run each command so many times, write what came of it, and note its rows in a file as done;
    return what failed, with the reason.
    """
    entries, failed = json.loads((root / DATA).read_text()), dict[str, str]()
    for i, rows in enumerate(groups, 1):
        names = ", ".join(row.name for row in rows)
        print(f"\n[{i} of {len(groups)}] {names}: {rows[0].command}", flush=True)
        about, began = here(), time.perf_counter()
        try:
            figures = [measured(rows[0], root) for _ in range(runs)]
            about["seconds"] = round((time.perf_counter() - began) / runs)
            entries |= {row.name: entry_of(row, figures, about) for row in rows}
        except Failed as error:
            failed[names] = str(error)
        else:
            write(root, entries)
            if done is not None:
                done.parent.mkdir(exist_ok=True)
                with done.open("a") as file:
                    file.writelines(f"{row.name}\n" for row in rows)
        print(
            f"[{i} of {len(groups)}] {time.perf_counter() - began:.0f} s",
            failed.get(names, ""),
            flush=True,
        )
    return failed


def left(full: bool, done: Path) -> list[Row]:
    """All rows but those that a run before this one, which did not come to its end, has
    measured.
    """
    before = done.read_text().split() if done.exists() else []
    rows = [row for row in ROWS if full or not row.long]
    rest = [row for row in rows if row.name not in before]
    if len(rest) < len(rows):
        print(
            f"goes on: {len(rows) - len(rest)} of {len(rows)} rows are measured, by {done}; --anew"
            " begins with the first"
        )
    return rest


def tell_missing(root: Path, entries: Mapping[str, Entry]) -> None:
    """Say what has to be written by hand."""
    for row in ROWS:
        entry = entries.get(row.name)
        if entry and (numbers := missing(row, entry, root)):
            print(
                f"{row.page} has no {', '.join(numbers)} of row {row.name}: {entry['figure']};"
                f" {entry['beside']}. Write it there."
            )


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Measure, write, and say what is left to do by hand."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf.page", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(row.name for row in ROWS))
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"the longest too: {', '.join(row.name for row in ROWS if row.long)}",
    )
    parser.add_argument(
        "--anew", action="store_true", help="measure what an interrupted run has measured once more"
    )
    parser.add_argument(
        "--runs", type=int, default=1, help="runs of each command, for the range of its figures"
    )
    parser.add_argument(
        "--write", action="store_true", help="measure nothing: write the page of the data there are"
    )
    given = parser.parse_args(arguments)
    unknown = [name for name in given.rows if name not in {row.name for row in ROWS}]
    if unknown:
        parser.error(f"no rows of these names: {', '.join(unknown)}")
    if given.runs < 1:
        parser.error(f"--runs {given.runs}: it is 1 or more")
    if given.write:
        entries = json.loads((root / DATA).read_text())
        write(root, entries)
        tell_missing(root, entries)
        return 0
    done = root / DONE
    if given.anew:
        done.unlink(missing_ok=True)
    rows = [row for row in ROWS if row.name in given.rows] if given.rows else left(given.full, done)
    try:
        failed = measure(by_command(rows), root, None if given.rows else done, given.runs)
    except KeyboardInterrupt:
        print(
            "\ninterrupted: what was measured is written",
            "" if given.rows else "; the same command goes on with the rest",
            sep="",
        )
        return 130
    if not failed and not given.rows:
        done.unlink(missing_ok=True)
    tell_missing(root, json.loads((root / DATA).read_text()))
    for names, why in failed.items():
        print(f"failed, its rows are as they were: {names}: {why}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
