"""Train the network of the loop, and keep its weights: `python -m examples.surrogate.learn`."""

import argparse
import os
import time
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rich.console import Console

from ._step import Recipe
from ._train import train
from ._trained import WEIGHTS, LoopRun, save
from .model import parameters


def main() -> None:
    """Train, and save."""
    parser = argparse.ArgumentParser(prog="python -m examples.surrogate.learn", description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=LoopRun().recipe.steps, help="(default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=WEIGHTS, help="file of the weights (default: %(default)s)"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=Path("out/surrogate/loop.checkpoint"),
        help="where a run that broke off goes on (default: %(default)s)",
    )
    chosen = parser.parse_args()
    console, began, used = Console(), time.perf_counter(), time.process_time()
    run = LoopRun(Recipe(steps=chosen.steps))
    console.print(f"{parameters(run.model()):,} weights, {chosen.steps} steps", highlight=False)
    say = lambda done, loss: console.print(f"{done} steps, loss {loss:.3f}", highlight=False)  # noqa: E731
    done = train(run, chosen.checkpoint, every=100, progress=say)
    save(done.model, chosen.out)
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    took = f"{seconds:.0f} s, {processor:.0f} of processors, {done.step.stats.traces} programs"
    console.print(f"{took}: {chosen.out}", highlight=False)


if __name__ == "__main__":
    main()
