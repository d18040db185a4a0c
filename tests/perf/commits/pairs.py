"""Pairs of processes, one of each side, that take turns: what else runs on the machine hits both.

Calls in one process share its addresses and its luck, so a process counts once: of its rounds the
median ratio. Verdicts are on the ratios pair by pair.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ROUNDS = 12
# No program is kept from one process to the next.
ALONE = {"JITNEY_CACHE": "off", "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"}


@dataclass
class Figure:
    """One figure of both sides, pair by pair.

    Args:
        against: Seconds on the side of the other commit.
        this: Seconds on this side.
        ratios: The first by the second, with the sides in turn.
    """

    against: list[float] = field(default_factory=list[float])
    this: list[float] = field(default_factory=list[float])
    ratios: list[float] = field(default_factory=list[float])

    def add(self, against: Sequence[float], this: Sequence[float]) -> None:
        """The rounds of one pair."""
        self.against.append(min(against))
        self.this.append(min(this))
        self.ratios.append(
            statistics.median(a / b for a, b in zip(against, this, strict=True) if b)
        )


@dataclass
class Outcome:
    """All that was seen of a benchmark.

    Args:
        figures: By name: "first call", "warm call".
        counts: By name, of both sides: the programs that the first call compiled, the functions
            that a warm call calls in Python.
        failed: Why nothing was measured, by side, if so.
        apart: Difference of the results, relative to the largest.
    """

    figures: dict[str, Figure] = field(default_factory=dict[str, Figure])
    counts: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    apart: float = 0.0


class Worker:
    """A process that imports the source in a folder."""

    def __init__(self, src: Path):
        path = os.pathsep.join([str(src), str(ROOT)])
        # Without bytecode the other source, which is new, would be compiled at each start.
        unset = (
            "JAX_COMPILATION_CACHE_DIR",
            "JITNEY_CACHE_DIR",
            "JITNEY_DISABLE",
            "JITNEY_VERIFY",
            "PYTHONDONTWRITEBYTECODE",
        )
        env = {name: value for name, value in os.environ.items() if name not in unset}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.perf.commits.worker", str(src)],
            cwd=ROOT,
            env={**env, **ALONE, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.imported = float(self._answer()["seconds"])

    def ask(self, command: str) -> dict[str, Any]:
        """What it answers."""
        if self._process.stdin is None:
            raise AssertionError("it is a pipe")
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a measured process ended with status {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def unpack(commit: str, folder: Path, root: Path = ROOT) -> Path:
    """The source of a commit in a folder of its own; the repository stays as it is."""
    command = ["git", "-C", str(root), "archive", "--format=tar", commit, "src"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def measure(
    sources: tuple[Path, Path],
    names: Sequence[str],
    pairs: int,
) -> dict[str, Outcome]:
    """Measure both sides: the other commit, and this one."""
    outcomes = {name: Outcome() for name in ("import", *names)}
    outcomes["import"].figures["import"] = Figure()
    for number in range(pairs + 1):
        turned = number % 2 == 1
        workers = _started(sources, turned=turned)
        if number:  # the first pair writes bytecode, and reads files for the first time
            against, this = (worker.imported for worker in workers)
            outcomes["import"].figures["import"].add([against], [this])
        for name in names:
            if not outcomes[name].failed:
                _measure_one(outcomes[name], name, workers, turned=turned, counts=number > 0)
        for worker in workers:
            worker.close()
        print(f"\r{number} of {pairs} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return outcomes


def _started(sources: tuple[Path, Path], *, turned: bool) -> tuple[Worker, Worker]:
    if turned:
        this = Worker(sources[1])
        return Worker(sources[0]), this
    return Worker(sources[0]), Worker(sources[1])


def _measure_one(
    outcome: Outcome,
    name: str,
    workers: tuple[Worker, Worker],
    *,
    turned: bool,
    counts: bool,
) -> None:
    order = (1, 0) if turned else (0, 1)
    first = {side: workers[side].ask(f"first {name}") for side in order}
    sides = ("the other commit", "this one")
    outcome.failed = {sides[i]: first[i]["error"] for i in (0, 1) if "error" in first[i]}
    if outcome.failed:
        return
    for of in ("programs", "functions"):
        outcome.counts[of] = first[0][of], first[1][of]
    outcome.apart = max(outcome.apart, difference(first[0]["result"], first[1]["result"]))
    if not counts:
        return
    figure = outcome.figures.setdefault("first call", Figure())
    figure.add([first[0]["seconds"]], [first[1]["seconds"]])
    # A B B A, and B A A B in the next round; of two laps the lesser counts.
    laps: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        order = (0, 1, 1, 0) if turn % 2 == turned else (1, 0, 0, 1)
        timed = [(side, workers[side].ask(f"lap {name}")["seconds"]) for side in order]
        for side in (0, 1):
            laps[side].append(min(seconds for of, seconds in timed if of == side))
    outcome.figures.setdefault("warm call", Figure()).add(*laps)


def difference(a: Sequence[float], b: Sequence[float]) -> float:
    """How far two results are apart, relative to the largest element."""
    if len(a) != len(b):
        return float("inf")
    largest = max((abs(x) for x in (*a, *b)), default=0.0) or 1.0
    return max((abs(x - y) / largest for x, y in zip(a, b, strict=True)), default=0.0)
