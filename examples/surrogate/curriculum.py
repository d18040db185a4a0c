"""A curriculum beside a mixture at equal compute: `python -m examples.surrogate.curriculum`.

Both train the same network from the same weights, for as many CPU seconds of this process, compiles
excluded: steps on few variables see more models than steps on many in that time. The curriculum
moves on where held-out quality of its present stage does not get better (`_stages.Curriculum`); the
mixture has all sizes from the beginning. With `--begin` both begin with weights that know few
variables already, and the curriculum with the first size that they do not know. Both are judged on
the same held-out models of full difficulty. Intervals are of 95 %, by the bootstrap over these
models, of means over the seeds.

Each run keeps a checkpoint at each look: the same command goes on where it broke off.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ._learning import OPTIMISER, Learned, Session, compile_all, learn, surprises
from ._stages import STAGES, Curriculum, Mixture, Schedule, Stage
from ._trained import save
from .learn import add_training
from .regret import cell

SIZES = (3, 5, 8, 12, 20)
USUAL = Session(hidden=16, depth=2, rows=192, steps=20, rate=3e-3, looks=60, held_out=128)
Values = Float[np.ndarray, "model"]


def schedules(
    sizes: tuple[int, ...] = SIZES,
    tolerance: float = 0.02,
    least: float = 0.1,
    known: tuple[int, ...] = (),
) -> dict[str, Schedule]:
    """Both ways, with the same sizes.

    Args:
        sizes: Numbers of variables.
        tolerance: As `Curriculum` has it.
        least: Likewise.
        known: Sizes that need no stage.
    """
    mixture = Mixture(sizes, (1.0,) * len(sizes))
    new = {*sizes} - {*known}
    stages = tuple(each for each in STAGES if each.variables in new)
    return {"mixture": mixture, "curriculum": Curriculum(stages, tolerance, mixture, known, least)}


@dataclass(frozen=True)
class Way:
    """One schedule with all seeds.

    Args:
        runs: The log of each seed.
        levels: How many stages were done at each look, for each seed.
        ends: The surprise of held-out models after training, for each size and seed.
        f1: The F1 of their edges, likewise.
    """

    runs: list[Learned]
    levels: list[list[int]]
    ends: dict[int, list[Values]]
    f1: dict[int, list[float]]


def curve(learned: Learned, variables: int) -> tuple[list[float], list[float]]:
    """Held-out surprise at full difficulty, and the seconds of each look."""
    found = [
        (note.seconds, look.surprise)
        for note in learned.notes
        for look in note.looks
        if look.stage == Stage(variables)
    ]
    return [at for at, _ in found], [value for _, value in found]


def levels(session: Session, learned: Learned) -> list[int]:
    """How many stages of the curriculum are done at each look."""
    schedule, looks, found = session.schedule, [], []
    for note in learned.notes:
        looks += note.looks
        found.append(schedule.level(looks) if isinstance(schedule, Curriculum) else 0)
    return found


def moved(done: Sequence[int]) -> list[int]:
    """The looks after which a next stage came, counted from 1."""
    return [at + 1 for at in range(len(done)) if done[at] > max([0, *done[:at]])]


def draw(found: dict[str, Way], path: Path) -> None:
    """Save curves of surprise, one panel for each size; a band is the range over seeds."""
    sizes = [*found["mixture"].ends]
    figure = Figure(figsize=(2.6 * len(sizes), 2.9), layout="constrained")
    axes = np.ravel(figure.subplots(1, len(sizes)))
    for panel, size in zip(axes, sizes, strict=True):
        for (name, way), colour in zip(found.items(), ("#b04a2f", "#1f4e79"), strict=True):
            curves = [curve(each, size) for each in way.runs]
            at = np.linspace(*[limit(at[end] for at, _ in curves) for limit, end in ENDS], 60)
            values = np.array([np.interp(at, *each) for each in curves])
            panel.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.25)
            panel.plot(at, values.mean(0), color=colour, label=name)
        panel.set(title=f"{size} variables", xlabel="CPU seconds")
    axes[0].set_ylabel("held-out surprise, nats")
    axes[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


ENDS = (max, 0), (min, -1)  # where all seeds have looks


def table(found: dict[str, Way]) -> Table:
    """A line for each size: both ways at the end, and by how much the curriculum is better."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("variables", *found, "less by", *(f"F1, {each}" for each in found)):
        out.add_column(name, justify="right", no_wrap=True)
    for size in found["mixture"].ends:
        ends = {name: np.mean(way.ends[size], axis=0) for name, way in found.items()}
        less = cell(ends["mixture"] - ends["curriculum"])
        f1 = [f"{np.mean(way.f1[size]):.2f}" for way in found.values()]
        out.add_row(str(size), *(f"{each.mean():.3f}" for each in ends.values()), less, *f1)
    return out


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.curriculum",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--seconds", type=float, default=240, help=f"CPU seconds of each run {shown}")
    add("--dispatches", type=int, help="of each run at most (default: no limit)")
    add_training(parser, USUAL)
    add("--seeds", type=int, default=2, help=f"of weights and data {shown}")
    add("--tolerance", type=float, default=0.02, help=f"in nats; a stage stands still {shown}")
    add("--least", type=float, default=0.1, help=f"F1 of edges before a stage is done {shown}")
    add("--sizes", type=int, nargs="+", default=SIZES, help=f"numbers of variables {shown}")
    add("--known", type=int, nargs="+", default=(), help="sizes that these weights know")
    add("--out", type=Path, default=Path("out/surrogate"), help=f"folder {shown}")
    return parser.parse_args(arguments)


def session_of(chosen: argparse.Namespace, schedule: Schedule, seed: int) -> Session:
    """One run."""
    return Session(
        hidden=chosen.hidden,
        depth=chosen.depth,
        after=1,
        rows=chosen.rows,
        steps=chosen.steps,
        rate=chosen.rate,
        dispatches=chosen.dispatches,
        seconds=chosen.seconds,
        looks=chosen.looks,
        held_out=chosen.held_out,
        schedule=schedule,
        seed=seed,
        begin=chosen.begin,
    )


def trained(session: Session, way: Way, path: Path) -> None:
    """Train once, and add what came of it."""
    model = session.model()
    # here, so that no run pays for the programs that all runs share
    compile_all(session, (model, OPTIMISER.init(model)))
    done = learn(session, path, clock=time.process_time)
    way.runs.append(done)
    way.levels.append(levels(session, done))
    for size in session.schedule.sizes:
        values, f1 = surprises(session, done.model, Stage(size))
        way.ends.setdefault(size, []).append(values)
        way.f1.setdefault(size, []).append(f1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train both ways for each seed, compare, draw."""
    chosen, console = options(arguments), Console(width=120)
    ways = schedules(tuple(chosen.sizes), chosen.tolerance, chosen.least, tuple(chosen.known))
    found, kept = {name: Way([], [], {}, {}) for name in ways}, []
    for seed in range(chosen.seeds):
        for name, schedule in ways.items():
            session = session_of(chosen, schedule, seed)
            trained(session, found[name], chosen.out / f"{name}-{seed}.checkpoint")
            save(found[name].runs[-1].model, session, chosen.out / f"{name}-{seed}.npz")
            last, stages = found[name].runs[-1].notes[-1], found[name].levels[-1]
            said = f"{last.seconds:.0f} CPU s, {last.examples:,} models"
            console.print(f"seed {seed}, {name}: {said}", highlight=False, soft_wrap=True)
            if moved(stages):
                said = f"  moved on at looks {moved(stages)}"
                console.print(said, highlight=False, soft_wrap=True)
            notes = [asdict(each) for each in found[name].runs[-1].notes]
            kept.append({"seed": seed, "way": name, "levels": stages, "notes": notes})
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / "curriculum.json").write_text(json.dumps(kept))
    console.print(table(found))
    draw(found, chosen.out / "curriculum.svg")
    console.print(f"Picture: {(chosen.out / 'curriculum.svg').resolve()}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
