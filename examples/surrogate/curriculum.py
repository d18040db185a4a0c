"""A curriculum beside a mixture at equal compute: `python -m examples.surrogate.curriculum`.

Both train the same network from the same weights, with as many dispatches, and each dispatch has as
many samples of variables. The curriculum moves on where held-out quality of its present stage does
not get better (`_stages.Curriculum`); the mixture has all sizes from the beginning. Both are judged
on the same held-out models of full difficulty.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from ._learning import Learned, Session, learn
from ._stages import Curriculum, Mixture, Schedule

SIZES = (3, 5, 8)


def schedules(sizes: Sequence[int] = SIZES) -> dict[str, Schedule]:
    """Both ways, with the same sizes."""
    mixture = Mixture(tuple(sizes), (1.0,) * len(sizes))
    return {"mixture": mixture, "curriculum": Curriculum(mixture=mixture)}


def curve(learned: Learned, variables: int, name: str) -> tuple[list[int], list[float]]:
    """Held-out quality at full difficulty: models seen, and surprise or F1."""
    found = [
        (note.examples, getattr(look, name))
        for note in learned.notes
        for look in note.looks
        if look.stage.variables == variables and look.stage == type(look.stage)(variables)
    ]
    return [at for at, _ in found], [value for _, value in found]


def levels(session: Session, learned: Learned) -> list[int]:
    """How many stages of the curriculum are done at each look."""
    schedule, looks, found = session.schedule, [], []
    for note in learned.notes:
        looks += note.looks
        found.append(schedule.level(looks) if isinstance(schedule, Curriculum) else 0)
    return found


def draw(found: dict[str, list[Learned]], sizes: Sequence[int], path: Path) -> None:
    """Save curves of surprise, one panel for each size; a band is the range over seeds."""
    figure = Figure(figsize=(3.4 * len(sizes), 3.2), dpi=130, layout="constrained")
    for axes, size in zip(np.ravel(figure.subplots(1, len(sizes))), sizes, strict=True):
        for (name, runs), colour in zip(found.items(), ("#b04a2f", "#1f4e79"), strict=True):
            values = np.array([curve(each, size, "surprise")[1] for each in runs])
            at = np.arange(1, values.shape[1] + 1) / values.shape[1]
            axes.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.25)
            axes.plot(at, values.mean(0), color=colour, label=name)
        axes.set(title=f"{size} variables", xlabel="part of the training", ylabel="surprise, nats")
        axes.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train both ways for each seed, compare, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.curriculum",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--dispatches", type=int, default=200, help=f"of each run {shown}")
    add("--steps", type=int, default=50, help=f"in a dispatch {shown}")
    add("--hidden", type=int, default=32, help=f"width, a multiple of 4 {shown}")
    add("--depth", type=int, default=2, help=f"blocks {shown}")
    add("--rows", type=int, default=1536, help=f"variables of all models of a step {shown}")
    add("--looks", type=int, default=40, help=f"at held-out quality {shown}")
    add("--held-out", type=int, default=1024, help=f"models of each size {shown}")
    add("--seeds", type=int, default=2, help=f"of weights and data {shown}")
    add("--out", type=Path, default=Path("out/surrogate"), help=f"folder {shown}")
    chosen, console = parser.parse_args(arguments), Console(width=120)
    found, kept = {name: list[Learned]() for name in schedules()}, []
    for seed in range(chosen.seeds):
        for name, schedule in schedules().items():
            session = Session(
                hidden=chosen.hidden,
                depth=chosen.depth,
                after=1,
                rows=chosen.rows,
                steps=chosen.steps,
                rate=2e-3,
                dispatches=chosen.dispatches,
                seconds=None,
                looks=chosen.looks,
                held_out=chosen.held_out,
                schedule=schedule,
                seed=seed,
            )
            done = learn(session)
            found[name].append(done)
            stages = levels(session, done)
            last = ", ".join(
                f"{size}: {curve(done, size, 'surprise')[1][-1]:.3f} nats,"
                f" F1 {curve(done, size, 'f1')[1][-1]:.2f}"
                for size in SIZES
            )
            console.print(f"seed {seed}, {name}: {last}", highlight=False, soft_wrap=True)
            moved = [at + 1 for at in range(len(stages)) if stages[at] > max([0, *stages[:at]])]
            if moved:
                console.print(f"  moved on at looks {moved}", highlight=False, soft_wrap=True)
            notes = [each.as_json() for each in done.notes]
            kept.append({"seed": seed, "way": name, "levels": stages, "notes": notes})
            chosen.out.mkdir(parents=True, exist_ok=True)
            (chosen.out / "curriculum.json").write_text(json.dumps(kept))
    draw(found, SIZES, chosen.out / "curriculum.png")
    console.print(f"Picture: {(chosen.out / 'curriculum.png').resolve()}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
