"""Train the network of the loop, and keep its weights: `python -m examples.surrogate.learn`.

Models and samples are drawn on the device, in the program of the steps: 50 steps are one dispatch.
The session ends after so many seconds, first compiles included, and keeps weights, a checkpoint to
go on from and a line of the log at each look at held-out quality.

With `--dispatches` and `--seconds 0` the number of steps does not depend on the machine.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rich.console import Console

from ._board import Board
from ._learning import Note, Session, learn
from ._stages import Curriculum, Mixture, Stage
from ._trained import WEIGHTS, save
from .model import parameters
from .reader import Reader


def add_training(parser: argparse.ArgumentParser, usual: Session) -> None:
    """The options of a network and its training, which `curriculum` has as well.

    Args:
        parser: What gets them.
        usual: The defaults.
    """
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--steps", type=int, default=usual.steps, help=f"in a dispatch {shown}")
    add("--hidden", type=int, default=usual.hidden, help=f"width, a multiple of 4 {shown}")
    add("--depth", type=int, default=usual.depth, help=f"blocks that read the samples {shown}")
    add("--rows", type=int, default=usual.rows, help=f"variables of all models of a step {shown}")
    add("--rate", type=float, default=usual.rate, help=f"largest learning rate {shown}")
    add("--looks", type=int, default=usual.looks, help=f"at held-out quality {shown}")
    add("--held-out", type=int, default=usual.held_out, help=f"models of each size {shown}")
    add("--begin", type=Path, help="weights to begin with (default: new ones)")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.learn",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, usual = parser.add_argument, Session()
    shown = "(default: %(default)s)"
    add("--seconds", type=float, default=usual.seconds, help=f"0 for no limit {shown}")
    add("--dispatches", type=int, default=0, help=f"of --steps steps; 0 for no limit {shown}")
    add_training(parser, usual)
    add("--after", type=int, default=usual.after, help=f"layers of attention after {shown}")
    add("--sizes", type=int, nargs="+", default=Mixture().sizes, help=f"of models {shown}")
    add("--shares", type=float, nargs="+", default=Mixture().shares, help=f"of each {shown}")
    add("--curriculum", action="store_true", help="small and easy models first")
    add("--seed", type=int, default=usual.seed, help=f"of weights and data {shown}")
    add("--out", type=Path, default=WEIGHTS, help=f"file of the weights {shown}")
    add("--folder", type=Path, default=Path("out/surrogate"), help=f"checkpoint and log {shown}")
    add("--board", action="store_true", help="TensorBoard's files in the folder too")
    chosen = parser.parse_args(arguments)
    counts = chosen.steps, chosen.depth, chosen.rows, chosen.looks, chosen.held_out
    if min(counts) < 1 or chosen.after < 0 or chosen.hidden < 4 or chosen.hidden % 4:
        parser.error("take a multiple of 4 for the width, and 1 or more of the rest")
    if chosen.seconds <= 0 and chosen.dispatches <= 0:
        parser.error("give --seconds, --dispatches or both: without them training has no end")
    if not all(3 <= size <= 20 for size in chosen.sizes):
        parser.error("take 3 to 20 variables")
    if len(chosen.shares) != len(chosen.sizes):
        if chosen.shares != Mixture().shares:
            parser.error("give as many --shares as --sizes")
        chosen.shares = (1.0,) * len(chosen.sizes)
    if min(chosen.shares) <= 0:
        parser.error("--shares are above 0")
    return chosen


def session_of(chosen: argparse.Namespace) -> Session:
    """What the command line asks for."""
    mixture = Mixture(tuple(chosen.sizes), tuple(chosen.shares))
    return Session(
        hidden=chosen.hidden,
        depth=chosen.depth,
        after=chosen.after,
        rows=chosen.rows,
        steps=chosen.steps,
        rate=chosen.rate,
        dispatches=chosen.dispatches or None,
        seconds=chosen.seconds or None,
        looks=chosen.looks,
        held_out=chosen.held_out,
        schedule=Curriculum(mixture=mixture) if chosen.curriculum else mixture,
        seed=chosen.seed,
        begin=chosen.begin,
    )


def line(note: Note) -> str:
    """A look, to be read."""
    sizes = ", ".join(
        f"{each.stage.variables}: {each.surprise:.3f} nats, F1 {each.f1:.2f}" for each in note.looks
    )
    return f"{note.seconds:.0f} s, {note.examples:,} models, loss {note.loss:.3f}; {sizes}"


def numbers(note: Note) -> dict[str, float]:
    """A look, to be drawn."""
    found = {"loss": note.loss, "rate": note.rate}
    for each in note.looks:
        if each.stage == Stage(each.stage.variables):
            found[f"surprise/{each.stage.variables}"] = each.surprise
            found[f"f1/{each.stage.variables}"] = each.f1
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and save at each look."""
    chosen, console = options(arguments), Console(width=160)
    session, folder = session_of(chosen), chosen.folder
    folder.mkdir(parents=True, exist_ok=True)

    shown = Board(folder) if chosen.board else None

    def after(model: Reader, notes: list[Note]) -> None:
        if shown:
            shown.add(notes[-1].dispatches, numbers(notes[-1]))
        save(model, session, chosen.out)
        text = "".join(f"{json.dumps(each.as_json())}\n" for each in notes)
        (folder / "learn.jsonl").write_text(text)
        console.print(line(notes[-1]), highlight=False, soft_wrap=True)

    try:
        console.print(f"{parameters(session.model()):,} weights", highlight=False)
        with shown or nullcontext():
            learn(session, folder / "learn.checkpoint", after)
    except ValueError as error:
        console.print(f"{error}", style="red", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on from the last look.")
        return 130
    console.print(f"Weights: {chosen.out}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
