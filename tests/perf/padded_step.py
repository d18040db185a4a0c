"""What padding costs a training step of `examples/surrogate`: beside the plain step of the bucket's
size, and of the true size.

    python -m tests.perf.padded_step [--cells HIDDEN,BATCH,VARS ...] [--rounds 15]

Four steps go in turn, after their results are compared: plain at the true size, plain at the size
of the bucket, padded at the size of the bucket, padded at the true size. Each figure is the median
over rounds; a ratio is the median of the ratios within a round, so that what else the machine does
falls on both sides. `--dots` times alone what the plain step does most where it is small: batches
of little products, as long as the attention over variables has them.

"bucket/bucket" and "filled/bucket" are what padding itself costs, masks and filling. "filled/true"
holds, besides, what XLA makes of the larger size: it is not smooth, so a size may take three times
as long as the one below it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JITNEY_CACHE", "off")

import jax
import jax.numpy as jnp
import numpy as np

from examples.surrogate._data import Batch
from examples.surrogate._expert import batch
from examples.surrogate._step import PAD, Recipe, start, step_of
from examples.surrogate.benchmark import once
from examples.surrogate.model import Surrogate

RECIPE = Recipe()
CELLS = ("16,8,3", "16,32,3", "16,32,5", "16,32,11", "128,8,3", "128,8,5")
SAMPLES = 32


def bucket_of(variables: int) -> int:
    """The size that a batch of so many variables gets."""
    return next(size for size in PAD["vars"] if size >= variables)


def data_of(examples: int, variables: int) -> Batch:
    return batch(np.random.default_rng(examples), examples, variables, SAMPLES)


def measured(
    hidden: int, examples: int, variables: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each step, and the ratios.

    Raises:
        AssertionError: A padded step gives other numbers than the plain one.
    """
    model = Surrogate(hidden, key=jax.random.key(0))
    state = (model, start(RECIPE, model))
    true, large = (
        data_of(examples, variables).arrays,
        data_of(examples, bucket_of(variables)).arrays,
    )
    plain, padded = step_of(RECIPE, pad=None), step_of(RECIPE)
    steps: list[Callable[[Any, Any], Any]] = [
        lambda model, opt: plain(model, opt, *true),
        lambda model, opt: plain(model, opt, *large),
        lambda model, opt: padded(model, opt, *large),
        lambda model, opt: padded(model, opt, *true),
    ]
    first = [once(step, state)[1][2] for step in steps]
    for wanted, given in ((0, 3), (1, 2)):
        for name in ("loss", "norm"):
            np.testing.assert_allclose(first[given][name], first[wanted][name], rtol=1e-4)
    times = np.array([[once(step, state)[0] for step in steps] for _ in range(rounds)]) * 1e3
    ratios = times[:, [2, 3, 3]] / times[:, [1, 1, 0]]
    return list(np.median(times, 0)), list(np.median(ratios, 0))


def dots() -> None:
    """The products of queries and keys, and of weights and values, for 1,024 rows of variables and
    4 heads of width 4.
    """
    rng = np.random.default_rng(0)
    scores = jax.jit(lambda q, k: jnp.einsum("ornk,osnk->onrs", q, k))
    mixed = jax.jit(lambda w, v: jnp.einsum("onrs,osnk->ornk", w, v))
    print(f"{'variables':>9} {'scores, ms':>10} {'mixed, ms':>10}")
    for d in range(2, 13):
        q, w = (
            jnp.asarray(rng.normal(size=shape), np.float32)
            for shape in ((1024, d, 4, 4), (1024, 4, d, d))
        )
        print(f"{d:9} {_least(scores, q, q):10.2f} {_least(mixed, w, q):10.2f}")


def _least(fn: Callable[..., Any], *arrays: Any) -> float:
    best = np.inf
    for _ in range(40):
        began = time.perf_counter()
        jax.block_until_ready(fn(*arrays))
        best = min(best, time.perf_counter() - began)
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--cells",
        nargs="+",
        default=CELLS,
        metavar="HIDDEN,BATCH,VARS",
        help="default: %(default)s",
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns (default: %(default)s)")
    parser.add_argument("--dots", action="store_true", help="time little products alone")
    chosen = parser.parse_args()
    if chosen.dots:
        dots()
        return
    print(
        f"{'cell':>12} {'':>9} {'plain true':>10} {'plain bucket':>12} {'padded bucket':>13}"
        f" {'padded true':>11}",
        end="",
    )
    print(f" {'bucket/bucket':>13} {'filled/bucket':>13} {'filled/true':>11}")
    for cell in chosen.cells:
        hidden, examples, variables = map(int, cell.split(","))
        (a, b, c, d), (exact, below, true) = measured(hidden, examples, variables, chosen.rounds)
        arrow = f"{variables} -> {bucket_of(variables)}"
        print(
            f"{cell:>12} {arrow:>9} {a:10.1f} {b:12.1f} {c:13.1f} {d:11.1f} {exact:13.2f}"
            f" {below:13.2f} {true:11.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
