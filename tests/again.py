"""Run the core many times, or the whole gate: `python -m tests.again --runs 20`.

Is the verdict the same each time? Each run is in another random order, with 1, 2 or 4 workers,
every other one beside a process for each core that keeps it busy; two of five without Python's
collector of circles, or with one that runs all the time. A run that is over is a line of
`.again/runs.jsonl`, with its commit; Ctrl-C loses the run that is under way, and the same command
goes on behind the last. Runs of an earlier commit do not count for a later one. A red run is shown
with the line that repeats it, and its output is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".again"
WORKERS = (2, 4, 1)
COLLECTORS = ("on", "off", "on", "on", "often")
BURN = "while True: sum(range(1000))"


@dataclass(frozen=True)
class Run:
    """One run and what came of it."""

    commit: str
    what: str  # "core" or "gate"
    seed: int
    workers: int
    load: int  # processes beside it that do nothing but compute
    collector: str  # of COLLECTORS
    python: str
    is_green: bool
    seconds: float
    last: str
    """The last line of the output, which counts the tests."""


def main() -> int:
    """Run what is not done yet, and sum up."""
    parser = argparse.ArgumentParser(prog="python -m tests.again", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of the core (default: %(default)s)")
    parser.add_argument(
        "--gate", type=int, default=0, help="runs of .ci/run behind these (default: %(default)s)"
    )
    parser.add_argument("--first-seed", type=int, default=1)
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    commit = _commit()
    try:
        for number in range(options.runs):
            load, collector = (
                number % 2 * (os.cpu_count() or 1),
                COLLECTORS[number % len(COLLECTORS)],
            )
            _once(
                commit,
                "core",
                options.first_seed + number,
                WORKERS[number % len(WORKERS)],
                load,
                collector,
            )
        for number in range(options.gate):
            _once(commit, "gate", options.first_seed + number, workers=0, load=0, collector="on")
    except KeyboardInterrupt:
        print("\nagain: stopped; the same command goes on behind the last run", flush=True)
    runs = [run for run in _done() if run.commit == commit]
    red = [run for run in runs if not run.is_green]
    print(f"again: {len(runs) - len(red)} green, {len(red)} red, at {commit}")
    return 1 if red else 0


def _once(commit: str, what: str, seed: int, workers: int, load: int, collector: str) -> None:
    """Run it unless it is among what is done."""
    python = sys.version.split()[0]
    asked = (commit, what, seed, workers, load, collector, python)
    if any(
        (run.commit, run.what, run.seed, run.workers, run.load, run.collector, run.python) == asked
        for run in _done()
    ):
        return
    command = ["bash", ".ci/run"] if what == "gate" else _core(seed, workers, collector)
    output = FOLDER / f"{commit}-{what}-{seed}.txt"
    print(f"again: {shlex.join(command)}, beside {load} busy processes", flush=True)
    began = time.monotonic()
    with _busy(load), output.open("w") as file:
        code = subprocess.run(
            command,
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
    if code in (2, -2):  # interrupted
        raise KeyboardInterrupt
    lines = output.read_text(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    run = Run(*asked, code == 0, round(time.monotonic() - began, 1), last)
    with (FOLDER / "runs.jsonl").open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")
    print(
        f"again: {'green' if run.is_green else 'RED'} after {run.seconds:.0f} s: {last}", flush=True
    )
    if run.is_green:
        output.unlink()
    else:
        print(
            f"again: its output is {output.relative_to(ROOT)}; to repeat it: {shlex.join(command)}",
            flush=True,
        )


def _core(seed: int, workers: int, collector: str) -> list[str]:
    spread = ["-n", str(workers), "--dist=worksteal"] if workers > 1 else []
    collects = [] if collector == "on" else [f"--collector={collector}"]
    return [
        sys.executable,
        "-m",
        "pytest",
        "--core",
        "--quick-xla=1/4",
        f"--shuffle={seed}",
        *collects,
        *spread,
        "tests",
        "examples",
    ]


@contextmanager
def _busy(count: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _commit() -> str:
    """The commit, marked where files are changed beyond it."""
    name = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    return f"{name}+changes" if changed else name


def _done() -> list[Run]:
    path = FOLDER / "runs.jsonl"
    return (
        [Run(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    )


if __name__ == "__main__":
    sys.exit(main())
