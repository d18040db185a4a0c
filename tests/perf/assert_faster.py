"""How often `jitney.testing.assert_faster` is wrong: false alarms and missed faults, of a thousand
runs each, on a machine under load.

    python -m tests.perf.assert_faster [--runs 1000] [--busy 2] [--only exactly] [--minutes 30]

Functions of plain Python whose work is known: a loop of so many steps, in calls of a tenth of a
millisecond. Meanwhile as many processes as `--busy` says compute for times and pauses drawn at
random, which is the load. A false alarm is a failure although the ratio of the work is `by` or
more; a fault is missed where the test passes although the ratio is less: one that ends in "unknown"
warns, and is given apart. The last two columns are what a run takes, and the way that people write
it by hand: the least of five calls of each, compared.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from examples._figures import record
from jitney.testing import assert_faster

STEPS = 2000


@dataclass(frozen=True)
class Case:
    """Two functions, by the steps of their loops, and how many times as fast the first should
    be.
    """

    name: str
    ours: int
    theirs: int
    by: float

    @property
    def holds(self) -> bool:
        return self.theirs >= self.by * self.ours


CASES = (
    Case("exactly as asked", STEPS, 2 * STEPS, 2.0),
    Case("a tenth more than asked", STEPS, 22 * STEPS // 10, 2.0),
    Case("the same function, by=1", STEPS, STEPS, 1.0),
    Case("half as much again", STEPS, 3 * STEPS, 2.0),
    Case("no faster at all", STEPS, STEPS, 2.0),
    Case("a fifth less than asked", STEPS, 16 * STEPS // 10, 2.0),
)


def work(steps: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(steps):
            pass

    return run


def disturb(seed: int) -> None:
    """Compute and pause, as other processes of a machine do."""
    draw = random.Random(seed)
    parent = os.getppid()
    while os.getppid() == parent:
        until = time.perf_counter() + draw.expovariate(1 / 0.05)
        while time.perf_counter() < until:
            sum(range(1000))
        time.sleep(draw.expovariate(1 / 0.02))


def by_hand(case: Case) -> str:
    """The least of five calls of one, then of the other."""

    def least(steps: int) -> float:
        call, times = work(steps), []
        for _ in range(5):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    return "yes" if least(case.theirs) >= case.by * least(case.ours) else "no"


def judged(case: Case) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return assert_faster(work(case.ours), work(case.theirs), by=case.by).outcome
        except AssertionError:
            return "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=2, help="processes that compute meanwhile")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--minutes", type=float, default=60.0, help="for each case at most")
    options = parser.parse_args()
    others = [
        multiprocessing.get_context("spawn").Process(target=disturb, args=(i,), daemon=True)
        for i in range(options.busy)
    ]
    for other in others:
        other.start()
    print(f"{os.cpu_count()} cores, {options.busy} busy processes, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'case':26}{'work':>6}{'by':>6}{'runs':>7}{'wrong':>8}{'unknown':>9}{'s a run':>9}{'by hand wrong':>15}"
    )
    in_all, by_hands = Counter[str](), list[int]()
    for case in CASES:
        if options.only not in case.name:
            continue
        counts, hand, start = Counter[str](), Counter[str](), time.perf_counter()
        for _ in range(options.runs):
            counts[judged(case)] += 1
            hand[by_hand(case)] += 1
            if time.perf_counter() - start > options.minutes * 60:
                break
        runs, wrong = sum(counts.values()), "no" if case.holds else "yes"
        took = (time.perf_counter() - start) / runs
        in_all.update(wrong=counts[wrong], runs=runs)
        by_hands.append(hand[wrong])
        print(
            f"{case.name:26}{case.theirs / case.ours:6.2f}{case.by:6.2f}{runs:7}{counts[wrong]:8}{counts['unknown']:9}{took:9.2f}"
            f"{hand[wrong]:15}",
            flush=True,
        )
    record(**in_all, hand=", ".join(map(str, by_hands)))
    for other in others:
        other.terminate()


if __name__ == "__main__":
    main()
