"""Ten thousand rows of unlike lengths: a list under `vmap` and `pad`, beside what a competent
author writes by hand.

    python -m tests.perf.ragged [--rows 10000] [--rounds 20] [--lengths normal uniform bimodal]

Each row gives the log-likelihood of a Gaussian with its own weights, and its softmax-weighted mean.
`buckets` is `jax.jit(jax.vmap(...))` with masks, for each power of two; `blocks` the same in blocks
of a fixed number of rows, which serve other mixtures too; `longest` the same at the longest length;
`a length` is `jax.jit` called row by row, which compiles each length once. All begin with the same
list of NumPy arrays (`ragged` with the same in one array, by `jitney.ragged`) and end with one
array of results in the caller's order, and are compared with float64 NumPy first. `first` holds
compiling, with no persistent cache; `fresh` is a new mixture of lengths: its seconds, and how many programs it compiled. Warm calls
are the least of several rounds, in a random order each, by the clock and by the processor time of
the calling thread, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney.types import Watch

Rows = Sequence[np.ndarray]
LENGTHS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "log-normal": lambda draw, rows: np.exp(draw.normal(np.log(150), 0.8, rows)).clip(2, 8_000),
    "uniform": lambda draw, rows: draw.uniform(2, 1_000, rows),
    "bimodal": lambda draw, rows: np.where(
        draw.random(rows) < 0.8, draw.uniform(20, 60, rows), draw.uniform(900, 1_000, rows)
    ),
}


def body(x: Float[Array, "n"], scale: Float[Array, ""]) -> tuple[Array, Array]:
    centred = (x - jnp.mean(x)) / scale
    likelihood = -0.5 * jnp.sum(centred**2) - x.shape[0] * jnp.log(scale)
    return likelihood, jnp.sum(jax.nn.softmax(x) * x)


ours = jitney.optimize(vmap="row", pad={"n": "pow2"}, cache=False)(body)
plain = jax.jit(body)


def masked(x: Array, n: Array, scale: Array) -> tuple[Array, Array]:
    """The body by hand, of a row whose first `n` elements are its own."""
    own = jnp.arange(x.shape[0]) < n
    size = n.astype(x.dtype)
    centred = jnp.where(own, (x - jnp.sum(jnp.where(own, x, 0)) / size) / scale, 0)
    likelihood = -0.5 * jnp.sum(centred**2) - size * jnp.log(scale)
    weights = jax.nn.softmax(jnp.where(own, x, -jnp.inf))
    return likelihood, jnp.sum(jnp.where(own, weights * x, 0))


by_hand = jax.jit(jax.vmap(masked, in_axes=(0, 0, None)))


def filled(rows: Rows, length: int) -> tuple[np.ndarray, np.ndarray]:
    out = np.zeros((len(rows), length), np.float32)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row
    return out, np.array([len(row) for row in rows], np.int32)


def in_buckets(rows: Rows, scale: np.float32) -> tuple[np.ndarray, np.ndarray]:
    by_bucket: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_bucket.setdefault(1 << (len(row) - 1).bit_length(), []).append(i)
    out = np.empty((2, len(rows)), np.float32)
    results = {
        bucket: by_hand(*filled([rows[i] for i in chosen], bucket), scale)
        for bucket, chosen in by_bucket.items()
    }
    for bucket, chosen in by_bucket.items():
        for place, result in zip(out, results[bucket], strict=True):
            place[chosen] = result
    return out[0], out[1]


def in_blocks(rows: Rows, scale: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """As `in_buckets`, in blocks of 131,072 elements: another mixture has the same programs."""
    by_bucket: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        by_bucket.setdefault(1 << (len(row) - 1).bit_length(), []).append(i)
    out = np.empty((2, len(rows)), np.float32)
    found: list[tuple[list[int], tuple[Array, Array]]] = []
    for bucket, chosen in by_bucket.items():
        many = max(1, (1 << 17) // bucket)
        for begin in range(0, len(chosen), many):
            part = chosen[begin : begin + many]
            block, lengths = np.zeros((many, bucket), np.float32), np.ones(many, np.int32)
            for place, i in zip(block, part, strict=False):
                place[: len(rows[i])] = rows[i]
            lengths[: len(part)] = [len(rows[i]) for i in part]
            found.append((part, by_hand(block, lengths, scale)))
    for part, results in found:
        for place, result in zip(out, results, strict=True):
            place[part] = np.asarray(result)[: len(part)]
    return out[0], out[1]


def at_longest(rows: Rows, scale: np.float32) -> tuple[Array, Array]:
    return by_hand(*filled(rows, max(map(len, rows))), scale)


def row_by_row(rows: Rows, scale: np.float32) -> tuple[np.ndarray, np.ndarray]:
    found = jax.device_get([plain(row, scale) for row in rows])
    return np.array([a for a, _ in found]), np.array([b for _, b in found])


def in_one_array(rows: Rows, scale: np.float32) -> tuple[Array, Array]:
    return ours(WHOLE[id(rows)], scale)


WHOLE: dict[int, Any] = {}
"""Of each list of rows the same in one array, by `id`; made beforehand."""
SIDES: dict[str, Callable[[Rows, np.float32], Any]] = {
    "jitney": lambda rows, scale: ours(list(rows), scale),
    "ragged": in_one_array,
    "buckets": in_buckets,
    "blocks": in_blocks,
    "longest": at_longest,
    "a length": row_by_row,
}


def expected(rows: Rows, scale: float) -> tuple[np.ndarray, np.ndarray]:
    likelihoods, means = [], []
    for row in rows:
        x = row.astype(np.float64)
        weights = np.exp(x - x.max())
        likelihoods.append(-0.5 * np.sum(((x - x.mean()) / scale) ** 2) - len(x) * np.log(scale))
        means.append(np.sum(weights * x) / weights.sum())
    return np.array(likelihoods), np.array(means)


def timed(run: Callable[[], Any]) -> np.ndarray:
    """Seconds by the clock, and of the processor in this thread."""
    start, used = time.perf_counter(), time.thread_time()
    jax.block_until_ready(run())
    return np.array([time.perf_counter() - start, time.thread_time() - used])


def measure(kind: str, count: int, rounds: int, sides: Sequence[str]) -> None:
    """One distribution of lengths."""
    draw = np.random.default_rng(0)
    scale = np.float32(1.5)

    def mixture() -> Rows:
        lengths = LENGTHS[kind](draw, count).astype(int)
        rows = [draw.normal(size=n).astype(np.float32) for n in lengths]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        WHOLE[id(rows)] = jitney.ragged(np.concatenate(rows), offsets)
        return rows

    rows, fresh = mixture(), [mixture() for _ in range(3)]
    lengths = np.array([len(row) for row in rows])
    print(f"{kind}: {count} rows of {lengths.min()} to {lengths.max()}, {lengths.sum():,} in all")
    chosen = {side: SIDES[side] for side in sides}
    jax.clear_caches()
    ours.clear_cache()
    first: dict[str, float] = {}
    for side, run in chosen.items():
        first[side] = timed(lambda run=run: run(rows, scale))[0]
        for got, want in zip(run(rows, scale), expected(rows, 1.5), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)

    warm = {side: np.full(2, np.inf) for side in chosen}
    for _ in range(rounds):
        # In another order each time: whoever follows the longest rows finds no row in a cache.
        for side in draw.permutation(list(chosen)).tolist():
            run = chosen[side]
            warm[side] = np.minimum(warm[side], timed(lambda run=run: run(rows, scale)))
    for side, run in chosen.items():
        seconds, programs = [], []
        for other in fresh:
            with jitney.watch() as seen:
                seconds.append(timed(lambda run=run, other=other: run(other, scale))[0])
            programs.append(_compiles(seen))
        clock, thread = warm[side]
        print(
            f"  {side:10}{first[side]:8.2f} s first{1e3 * clock:9.1f} ms warm"
            f"{1e3 * thread:9.1f} of the thread"
            f"{1e3 * seconds[-1]:10.1f} ms a fresh mixture, programs {programs}",
            flush=True,
        )


def _compiles(seen: Watch) -> int:
    return seen.compiles


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.ragged", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--lengths", nargs="+", default=list(LENGTHS), choices=LENGTHS)
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    print(f"jax {jax.__version__}")
    for kind in options.lengths:
        measure(kind, options.rows, options.rounds, options.sides)


if __name__ == "__main__":
    main()
