"""A whole campaign in a picture: `python -m examples.surrogate.campaign`.

Several models of 20 variables, 50 interventions each, with the network's belief and with random
interventions. Programs are counted round by round: there is one for each bucket of samples.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from rich.console import Console

from . import _trained
from ._environment import Environment, environment
from ._loop import Campaign, Plan, last, regret, run
from ._round import Worth, imagined, supposed
from ._tuned import stepped
from .regret import Curve, cell, learners

HELD_OUT = 2**32 - 5  # the seed of models that no training has


@dataclass(frozen=True)
class Played:
    """Of one way: regret before and after each round, and of each round the samples that it had,
    the traces so far, and seconds of wall time.
    """

    curve: Curve
    samples: Int[np.ndarray, "round"]
    traces: Int[np.ndarray, "round"]
    seconds: Float[np.ndarray, "round"]

    @property
    def retraced(self) -> list[int]:
        """The numbers of samples at which a program was made."""
        more = np.diff(self.traces, prepend=0) > 0
        return self.samples[more].tolist()


def played(models: Environment, way: str, plan: Plan, weights: Path | None = None) -> Played:
    """Run one way."""
    model = _trained.load(weights or _trained.best_for(models.variables))
    learner, kind = learners(model, models)[way]
    own, notes, began = (
        replace(plan, kind=kind),
        list[tuple[int, int, float]](),
        time.perf_counter(),
    )
    programs = (stepped, supposed) if way.startswith(("steps", "evidence")) else (imagined,)
    traced = lambda: sum(each.stats.traces for each in programs)  # noqa: E731
    first = traced()

    def after(campaign: Campaign, worth: Worth) -> None:
        had = campaign.values.shape[1] - plan.answers
        notes.append((had, traced() - first, time.perf_counter() - began))

    done = run(models, learner, own, after=after)
    best = np.concatenate([done.best, last(done, learner, own)[None]])
    samples, traces, seconds = map(np.array, zip(*notes, strict=True))
    return Played(
        Curve(regret(models.effects(), best)), samples, traces, np.diff(seconds, prepend=0.0)
    )


def draw(found: dict[str, Played], path: Path) -> None:
    """Save regret by rounds, and seconds of each round."""
    figure = Figure(figsize=(9.2, 3.4), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = ("#1f4e79", "#d98b2b", "#b04a2f", "0.5")
    for (name, each), colour in zip(found.items(), colours, strict=False):
        values = each.curve.values
        left.plot(values, color=colour, lw=0.4, alpha=0.5)
        left.plot(values.mean(1), color=colour, lw=2, label=name)
        right.semilogy(np.arange(1, len(each.seconds) + 1), each.seconds, ".", color=colour)
    left.set(xlabel="interventions", ylabel="regret, standard deviations", ylim=(0, None))
    left.legend(fontsize=8, frameon=False)
    right.set(xlabel="intervention", ylabel="seconds of all models")
    right.set_title("A program is made where a bucket of samples begins", fontsize=10, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, plan, shown = parser.add_argument, Plan(), "(default: %(default)s)"
    add("--variables", type=int, default=20, help=f"of each model {shown}")
    add("--models", type=int, default=8, help=f"how many {shown}")
    add("--rounds", type=int, default=50, help=f"interventions {shown}")
    add("--worlds", type=int, default=plan.worlds, help=f"of a belief {shown}")
    add("--ways", nargs="+", default=("network", "random"), help=f"of `regret` {shown}")
    add("--weights", type=Path, help="(default: those that are best for the size)")
    add("--out", type=Path, default=Path("out/surrogate"), help=f"folder {shown}")
    chosen, console = parser.parse_args(arguments), Console(width=120)
    rng = np.random.default_rng([HELD_OUT, chosen.variables])
    models = environment(rng, chosen.models, chosen.variables)
    plan, found = Plan(rounds=chosen.rounds, worlds=chosen.worlds), {}
    for way in chosen.ways:
        began = time.process_time()
        found[way] = each = played(models, way, plan, chosen.weights)
        warm = np.median(each.seconds)
        said = f"{way}: regret {cell(each.curve.end)} at the end, {cell(each.curve.mean)} over all"
        console.print(said, highlight=False)
        cpu = time.process_time() - began
        made = f"  programs made at {each.retraced} samples; {warm:.2f} s a round, {cpu:.0f} CPU s"
        console.print(made, highlight=False)
        draw(found, chosen.out / "campaign.svg")
    console.print(f"Picture: {(chosen.out / 'campaign.svg').resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
