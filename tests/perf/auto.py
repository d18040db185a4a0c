"""Widths and threads that are chosen by measuring, beside the best by hand: 24 programs.

    python -m tests.perf.auto [--first | --second] [--check] [--seconds 10] [NAME ...]

The programs are those of `tests/perf/batches`, as public documentation writes them under
`jax.jit(jax.vmap(...))`; the second half was written after the order of the trials was frozen. By
hand is `jax.lax.map` in batches of 1 to 1,024 and the whole, each in one thread and in as many as
the process has cores, which wait for their parts, of which the quickest is taken. Ours is
`chunk={"lane": "fast"}`, alone and with `workers="auto"`, and `auto=True` once its choice has
fallen, without what an earlier process has remembered. Results are asserted equal first; `--check`
does that alone, for a few elements.
Plain, the best by hand and ours then take turns, in another order each round, and a figure is the
median over rounds; `gain` is plain by auto, round by round, with the interval that holds its median
with 95 % confidence; `cores` are seconds of CPU by seconds, of the plain call. `on 4` and `on 16`
are estimates of the gain on so many cores, by Amdahl's law from the cores that the plain call and
that of `auto` keep busy here: memory, which cores share, is not in them.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples._figures import record
from jitney import optimize
from jitney._measured.verdict import interval

from .batches import FIRST, SECOND, Batch, plain

WIDTHS, LONG = (1, 16, 64, 256, 1024), 0.05
NEAR = 1.1
MORE_CORES = (4, 16)
# Rounds: as many as take so many seconds. Six are the least that give an interval of 95 %.
SECONDS, LEAST, MOST = 10.0, 6, 40
MOST_CALLS, FEW = 1000, 40
CORES = len(os.sched_getaffinity(0))
POOL = ThreadPoolExecutor(CORES)
PROGRAMS = {**FIRST, **SECOND}
Arrays = Sequence[np.ndarray]


def by_hand(batch: Batch, width: int | None, threads: int) -> Callable[..., Any]:
    if width is None:
        part = plain(batch)
    else:
        step = width if width > 1 else None
        part = jax.jit(lambda *xs: jax.lax.map(lambda each: batch.body(*each), xs, batch_size=step))
    if threads == 1:
        return part

    def each(xs: Arrays) -> Any:
        return jax.tree.map(np.asarray, part(*xs))

    def in_parts(*xs: np.ndarray) -> Any:
        cut = zip(*(np.array_split(x, threads) for x in xs), strict=True)
        parts = POOL.map(each, cut)
        return jax.tree.map(lambda *some: jnp.asarray(np.concatenate(some)), *parts)

    return in_parts


def ours(batch: Batch, **options: Any) -> Any:
    """A program of jitney's, which shares nothing with another one of the same body."""

    @functools.wraps(batch.body)
    def named(*args: Any) -> Any:
        return batch.body(*args)

    mapped = dict.fromkeys(inspect.signature(batch.body).parameters, 0)
    return optimize(named, vmap={"lane": mapped}, **options)


def agreement(want: object) -> Callable[[object], None]:
    """Return a function that asserts that results are these but for rounding."""
    arrays, tree = jax.tree.flatten(jax.tree.map(np.asarray, want))

    def agree(out: object) -> None:
        leaves, found = jax.tree.flatten(out)
        assert found == tree
        for leaf, array in zip(leaves, arrays, strict=True):
            near = 2e-3 * max(1.0, float(np.abs(array).max()))
            np.testing.assert_allclose(np.asarray(leaf), array, rtol=2e-3, atol=near)

    return agree


def once(f: Callable[..., Any], arrays: Arrays) -> tuple[float, float]:
    """Seconds of a call, and of the CPU in it."""
    began, busy = time.perf_counter(), sum(os.times()[:2])
    jax.block_until_ready(f(*arrays))
    return time.perf_counter() - began, sum(os.times()[:2]) - busy


def serial_share(busy: float, cores: int = CORES) -> float:
    """Share of a program's work that one core does, if it keeps so many of the cores busy."""
    if cores == 1:
        return 1.0
    share = (1 / max(busy, 1.0) - 1 / cores) / (1 - 1 / cores)
    return min(1.0, max(0.0, share))


def speedup(busy: float, there: int, here: int = CORES) -> float:
    """Factor by which a program is faster on so many cores than on those here, by Amdahl's law."""
    serial = serial_share(busy, here)
    return (serial + (1 - serial) / here) / (serial + (1 - serial) / there)


def estimates(plain_busy: float, auto_busy: float, gain: float) -> dict[int, float]:
    """Gain of `auto` on more cores than there are."""
    return {
        there: gain * speedup(auto_busy, there) / speedup(plain_busy, there) for there in MORE_CORES
    }


def measured(batch: Batch, seconds: float) -> dict[str, Any]:
    arrays, as_written = batch.arrays(), plain(batch)
    agree = agreement(as_written(*arrays))

    # The best by hand: one run of each that is compiled already.
    grid: dict[str, Callable[..., Any]] = {}
    for width in (None, *(width for width in WIDTHS if width < batch.size)):
        for threads in (1, CORES) if batch.may_thread(width or batch.size) else (1,):
            way = f"{'whole' if width is None else width} in {threads}"
            grid[way] = by_hand(batch, width, threads)
            agree(grid[way](*arrays))
    trial = {way: min(once(f, arrays)[0] for _ in range(2)) for way, f in grid.items()}
    best = min(trial, key=lambda way: trial[way])

    fast: dict[str, Any] = {"chunk": {"lane": "fast"}}
    alone, threaded = ours(batch, **fast), ours(batch, **fast, workers="auto")
    auto = ours(batch, auto=True, cache=False)
    learning = learn(auto, arrays, agree)
    first: dict[str, float] = {}
    for way, f in (("fast", alone), ("fast, workers", threaded)):
        first[way] = once(f, arrays)[0]
        agree(f(*arrays))

    ways = {
        "plain": as_written,
        "by hand": grid[best],
        "fast": alone,
        "fast, workers": threaded,
        "auto": auto,
    }
    taken = in_turns(ways, arrays, seconds)
    wall = {way: statistics.median(w for w, _ in pairs) for way, pairs in taken.items()}
    busy = {way: sum(b for _, b in taken[way]) / sum(w for w, _ in taken[way]) for way in ways}
    ratios = [w / a for (w, _), (a, _) in zip(taken["plain"], taken["auto"], strict=True)]
    why = line_of(alone, arrays, "chunk")
    return {
        **{way: seconds * 1e3 for way, seconds in wall.items()},
        "best": best,
        "chosen": why.partition(", measured")[0],
        "chosen by auto": line_of(auto, arrays, "auto"),
        "calls that learnt": learning,
        "cores": busy["plain"],
        "cores of auto": busy["auto"],
        "gain": statistics.median(ratios),
        "estimates": estimates(busy["plain"], busy["auto"], statistics.median(ratios)),
        "interval": interval(ratios, 0.95),
        "first": first["fast"],
    }


def in_turns(
    ways: dict[str, Callable[..., Any]], arrays: Arrays, seconds: float
) -> dict[str, list[tuple[float, float]]]:
    """What `once` gives of each way, in each round."""
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    draw, until, rounds = random.Random(0), time.monotonic() + seconds, 0
    while rounds < LEAST or (rounds < MOST and time.monotonic() < until):
        for way in draw.sample([*ways], len(ways)):
            taken[way].append(once(ways[way], arrays))
        rounds += 1
    return taken


def line_of(f: Any, arrays: Arrays, name: str) -> str:
    lines = f.plan(*arrays).to_dict()["decisions"]
    return next(line["why"] for line in lines if line["name"] == name)


def learn(f: Any, arrays: Arrays, agree: Callable[[object], None]) -> int:
    """Call it until its choice has fallen, and return how many calls that took."""
    out, calls = None, 0
    while calls < MOST_CALLS:
        out, calls = f(*arrays), calls + 1
        # A result that nobody waits for would be timed with those before it.
        jax.block_until_ready(out)
        if not line_of(f, arrays, "auto").startswith("whole, while it learns"):
            break
    agree(out)
    return calls


def check(names: Sequence[str]) -> None:
    """Compare the results of a few elements in several ways; nothing is timed."""
    for name in names:
        batch = PROGRAMS[name]
        arrays = batch.arrays(FEW)
        agree = agreement(plain(batch)(*arrays))
        by_jitney: list[dict[str, Any]] = [{"chunk": {"lane": 1}}, {"chunk": {"lane": 16}}]
        by_jitney += [{"workers": "auto"}, {"workers": "auto", "chunk": {"lane": 16}}]
        for options in by_jitney:
            agree(ours(batch, **options)(*arrays))
        for width in (None, 1, 16):
            for threads in (1, CORES) if batch.may_thread(width or FEW) else (1,):
                agree(by_hand(batch, width, threads)(*arrays))
        print(f"{name}: equal in all ways", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.auto")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is given")
    parser.add_argument("--first", action="store_true", help="the twelve that came first")
    parser.add_argument("--second", action="store_true", help="those written after them")
    parser.add_argument("--check", action="store_true", help="compare results of a few elements")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the rounds of each")
    given = parser.parse_args()
    halves = [*(FIRST if given.first else ()), *(SECOND if given.second else ())]
    names = [*given.names, *halves] or [*PROGRAMS]
    if given.check:
        check(names)
        return
    figures: dict[str, dict[str, Any]] = {}
    print(f"jax {jax.__version__}, {CORES} cores")
    print(
        f"{'':<17}{'plain':>9}{'by hand':>9}{'fast':>9}{'workers':>9}{'auto':>9} ms  gain         cores  first call"
    )
    for name in names:
        found = figures[name] = measured(PROGRAMS[name], given.seconds)
        told = "".join(
            f"{found[way]:9.1f}" for way in ("plain", "by hand", "fast", "fast, workers", "auto")
        )
        low, high = found["interval"]
        print(
            f"{name:<17}{told}    {found['gain']:.2f} ({low:.2f} to {high:.2f})"
            f"  {found['cores']:5.2f}  {found['first']:6.1f} s"
            f"  on 4: {found['estimates'][4]:.1f}, on 16: {found['estimates'][16]:.1f} (estimates)"
            f"   by hand: {found['best']}; fast: {found['chosen']}"
            f"; auto: {found['chosen by auto']}",
            flush=True,
        )
    gain: dict[str, dict[str, Any]] = {}
    for way in ("by hand", "fast", "fast, workers", "auto"):
        gains = {name: found["plain"] / found[way] for name, found in figures.items()}
        long = [each for name, each in gains.items() if figures[name]["plain"] >= LONG * 1e3]
        whole, mean = statistics.geometric_mean(gains.values()), math.nan
        if long:
            mean = statistics.geometric_mean(long)
        worst = min(gains, key=lambda name: gains[name])
        near = sum(found[way] <= NEAR * found["by hand"] for found in figures.values())
        gain[way] = {"all": whole, "mean": mean, "long": len(long), "least": gains[worst]}
        gain[way] |= {"near": near, "count": len(figures)}
        print(
            f"{way:<14} {whole:5.2f} times as fast as plain in the geometric mean, {mean:.2f} over"
            f" {len(long)} programs of {LONG * 1e3:.0f} ms or more; least {gains[worst]:.2f}"
            f" ({worst}); {near} within {NEAR} of the best by hand"
        )
    record(milliseconds=figures, gain=gain)


if __name__ == "__main__":
    main()
