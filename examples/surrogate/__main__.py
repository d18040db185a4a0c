"""Train a network to find the parents of a variable: `python -m examples.surrogate train`; without
`train`, a look at the task.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

import jitney

from .._summary import Watch
from ._data import EXACT, Batch
from ._expert import batch
from ._losses import LOSSES
from ._picture import draw, draw_posterior
from ._step import Recipe, loss_of, start
from ._train import HELD_OUT, Run, Trained, program, train
from ._validate import Score, calibration, compare, hits, probabilities
from .model import parameters

LOOK = Path("out/surrogate/look.png")
# numbers of variables in the tables, as far as they were trained on
SHOWN = (3, 4, 5, 6, 8, 12, 20)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, checked."""
    parser = argparse.ArgumentParser(prog="python -m examples.surrogate", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    training = commands.add_parser(
        "train",
        help="train, compare and draw; a run that broke off goes on",
        description=train.__doc__,
    )
    add = training.add_argument
    add("--steps", type=int, default=2500, help="of training (default: %(default)s)")
    add(
        "--hidden",
        type=int,
        default=32,
        help="width of the network, a multiple of 4 (default: %(default)s)",
    )
    add("--depth", type=int, default=2, help="blocks of the network (default: %(default)s)")
    add("--batch", type=int, default=32, help="examples in a step (default: %(default)s)")
    add("--samples", type=int, default=32, help="in an example (default: %(default)s)")
    add(
        "--vars",
        type=int,
        nargs=2,
        default=(3, 6),
        metavar=("LEAST", "MOST"),
        help="numbers of variables, 3 to 20 (default: 3 6)",
    )
    add("--rate", type=float, default=3e-3, help="largest learning rate (default: %(default)g)")
    add(
        "--loss",
        choices=sorted(LOSSES),
        default="weighted",
        help="KL divergence, or weighted by certainty (default: %(default)s)",
    )
    add("--precision", help="as in jitney.optimize (default: that of the weights)")
    add(
        "--remat", help="as in jitney.optimize, a policy of jax.checkpoint_policies (default: none)"
    )
    add("--seed", type=int, default=0, help="of weights and data (default: %(default)s)")
    add("--every", type=int, default=50, help="steps between checkpoints (default: %(default)s)")
    add(
        "--held-out",
        type=int,
        default=500,
        help="models in the test, for each number of variables (default: %(default)s)",
    )
    add(
        "--devices",
        type=int,
        default=1,
        help="that each batch is spread over, -1 for all (default: %(default)s)",
    )
    add("--fsdp", action="store_true", help="spread weights and moments over the devices too")
    add(
        "--out",
        type=Path,
        default=Path("out/surrogate"),
        help="folder for checkpoint and picture (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.command == "train":
        least, most = chosen.vars
        counts = (chosen.steps, chosen.depth, chosen.batch, chosen.every, chosen.held_out)
        if chosen.fsdp and chosen.devices == 1:
            parser.error("--fsdp spreads over several devices: give --devices")
        if (
            not 3 <= least <= most <= 20
            or min(counts) < 1
            or chosen.hidden < 4
            or chosen.hidden % 4
            or chosen.samples < 4
        ):
            parser.error(
                "take 3 to 20 variables, a multiple of 4 for the width, 4 samples at least, and 1"
                " or more of the rest"
            )
    return chosen


def held_out(run: Run, which: int, examples: int) -> list[Batch]:
    """Models that no training sees, a batch for each number of variables that is shown."""
    least, most = run.variables
    shown = [d for d in SHOWN if least <= d <= most] or [least]
    return [
        batch(np.random.default_rng([HELD_OUT, which, d]), examples, d, run.samples) for d in shown
    ]


def table(found: dict[int, dict[str, Score]]) -> Table:
    """Methods, for each number of variables."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (
        "variables",
        "method",
        "KL to the posterior",
        "true set found",
        "surprise, nats",
        "calibration error",
    ):
        out.add_column(
            name, justify="left" if name == "method" else "right", no_wrap=name == "method"
        )
    for variables, rows in found.items():
        for name, row in rows.items():
            style = "bold" if name == "network" else None
            cells = [
                _cell(row.kl, ".3f"),
                f"{row.top:.1%}",
                _cell(row.surprise, ".3f"),
                _cell(row.error, ".3f"),
            ]
            out.add_row(str(variables) if name == "prior" else "", name, *cells, style=style)
        out.add_section()
    return out


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else f"{abs(value):{form}}"  # -1e-9 is 0


def devices(chosen: argparse.Namespace) -> AbstractContextManager[Any]:
    """The mesh to train in, if there are several devices.

    Raises:
        ValueError: There are too few devices, or they do not divide the batch.
    """
    if chosen.devices == 1:
        return nullcontext()
    mesh = jitney.mesh(data=chosen.devices)
    if chosen.batch % mesh.shape["data"]:
        raise ValueError(
            f"{mesh.shape['data']} devices do not divide a batch of {chosen.batch}: give --batch a"
            " multiple of them."
        )
    return mesh


def trained(run: Run, chosen: argparse.Namespace, console: Console) -> Trained:
    """Train under a progress bar."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=run.recipe.steps)
        show = lambda done, loss: progress.update(  # noqa: E731
            task, completed=done, description=f"loss {loss:.3f}"
        )
        return train(run, chosen.out / "run.checkpoint", chosen.every, show, chosen.fsdp)


def training(chosen: argparse.Namespace, console: Console) -> int:
    """Train, compare, draw. The exit code says whether the network beats the prior, correlations
    and the lasso wherever it was tested.
    """
    recipe = Recipe(steps=chosen.steps, rate=chosen.rate, loss=chosen.loss)
    run = Run(
        recipe,
        chosen.hidden,
        chosen.depth,
        chosen.batch,
        chosen.samples,
        tuple(chosen.vars),
        chosen.seed,
        chosen.precision,
        chosen.remat,
    )
    console.print(
        f"{parameters(run.model()):,} parameters, {chosen.steps} steps of {chosen.batch} examples",
        highlight=False,
    )
    began = time.perf_counter()
    try:
        with devices(chosen):
            if chosen.devices != 1:
                model = run.model()
                step = program(recipe, run.precision, run.remat, chosen.fsdp)
                console.print(
                    jitney.analysis.communication(
                        step, model, start(recipe, model), *run.batch(0).arrays
                    )
                )
            done = trained(run, chosen, console)
    except ValueError as error:
        console.print(f"{error}", style="red", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on from the last checkpoint.")
        return 130
    stats = done.step.stats
    programs = (
        f"{stats.traces} programs ({stats.compiles} compiled, {stats.persistent_hits} from the"
        " cache)"
    )
    console.print(
        f"Trained in {time.perf_counter() - began:.0f} s; the step is {programs}.", highlight=False
    )
    test = held_out(run, 0, chosen.held_out)
    found = compare(done.model, test, held_out(run, 1, chosen.held_out), EXACT)
    console.print(table(found))
    few = [data for data in test if data.x.shape[2] <= EXACT] or test
    made = [probabilities(done.model, data) for data in few]
    draw(
        done.history,
        _bins(made, few),
        _bins([data.expert for data in few], few),
        chosen.out / "training.png",
    )
    console.print(f"Picture: {(chosen.out / 'training.png').resolve()}", soft_wrap=True)
    beaten = all(
        rows["network"].top > rows[name].top
        for rows in found.values()
        for name in ("prior", "correlation", "lasso")
    )
    console.print(
        "The network finds the true set more often than each baseline."
        if beaten
        else "A baseline finds the true set as often."
    )
    return 0 if beaten else 1


def _bins(made: list[np.ndarray], data: list[Batch]) -> list[tuple[float, float, int]]:
    said = np.concatenate([q.max(1) for q in made])
    return calibration(
        said, np.concatenate([hits(q, each) for q, each in zip(made, data, strict=True)])
    )[1]


def demo(console: Console) -> int:
    """One model, what the exact posterior makes of its samples, and what jitney proves about the
    loss.
    """
    watch, run = Watch(), Run(hidden=16, depth=1)
    console.print("A causal model of five variables, and the exact posterior of its samples ...")
    data = batch(np.random.default_rng(7), 1, 5, run.samples)
    out = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title=f"Parents of x{data.target[0]}, of 5 variables, from {run.samples} samples",
    )
    for name in ("parent set", "posterior", ""):
        out.add_column(name, justify="right" if name == "posterior" else "left")
    order = np.argsort(-data.expert[0])[:5]
    for at in order:
        members = ", ".join(f"x{i}" for i in sorted(data.sets[0][at])) or "none"
        out.add_row(
            members, f"{data.expert[0, at]:.3f}", "the true one" if at == data.truth[0] else ""
        )
    console.print(out)
    sizes = {"samples": run.samples, "vars": 5, "sets": data.expert.shape[1], "parents": 3}
    console.print("What the loss of the network does along each axis, proven on its program:")
    console.print(
        str(jitney.analysis.axes(loss_of(run.recipe), run.model(), sizes=sizes)), highlight=False
    )
    rows = [
        (", ".join(f"x{i}" for i in sorted(data.sets[0][at])) or "none", float(data.expert[0, at]))
        for at in order
    ]
    draw_posterior(
        rows,
        int(np.flatnonzero(order == data.truth[0])[0]) if data.truth[0] in order else None,
        LOOK,
    )
    console.print("Timing warm calls beside plain jax.jit ...")
    compared(watch, run)
    watch.keep(LOOK.parent)
    console.print(f"Picture: {LOOK.resolve()}", soft_wrap=True)
    console.print(
        "Train the network, a few minutes on two cores: [bold]python -m examples.surrogate train[/]"
    )
    return 0


def compared(watch: Watch, run: Run) -> None:
    """Time the loss of 64 examples as jitney's program and as plain `jax.jit` of the same function,
    mapped by hand.
    """
    loss, plain_loss, model = loss_of(run.recipe), LOSSES[run.recipe.loss], run.model()
    data = batch(np.random.default_rng(8), 64, 5, run.samples).arrays
    arrays, rest = eqx.partition(model, eqx.is_array)
    plain = jax.jit(
        lambda arrays, *data: jax.vmap(lambda *each: plain_loss(eqx.combine(arrays, rest), *each))(
            *data
        )
    )
    watch.compare(
        "losses of 64 examples", lambda: loss(model, *data), lambda: plain(arrays, *data), rtol=1e-4
    )


def main() -> int:
    """Run what the command line asks for."""
    chosen, console = options(), Console()
    return training(chosen, console) if chosen.command == "train" else demo(console)


if __name__ == "__main__":
    sys.exit(main())
