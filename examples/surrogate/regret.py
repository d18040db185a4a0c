"""Regret of the loop on models that no training saw: `python -m examples.surrogate.regret`.

All ways answer the same question with the same random numbers: which intervention makes the mean of
the target largest? They differ in the belief about graphs, or in how they choose interventions.

    network        the network's belief; information plus improvement
    weighed        graphs drawn from the belief count by prior and evidence
    information    the same belief, expected information gain alone
    improvement    the same belief, expected improvement alone
    random         the same belief, interventions at random
    steps          the network's belief after a few gradient steps on the campaign's data
    steps-improvement    the same belief, expected improvement alone
    steps-weighed  graphs drawn from it count by prior and evidence
    steps-alone    such steps from the prior, without a network
    weighed-random, steps-random, enumeration-random, evidence-random    random for these beliefs
    enumeration    the exact posterior over all graphs (up to five variables)
    marginals      the exact posterior over the parents of each variable, multiplied, as a network
                   that has learned all would have it (up to five variables)
    evidence       graphs by the evidence of their parent sets, importance sampling; no network
    oracle         the true graph

Regret is how far the mean of the target, in standard deviations, is below that of the best single
intervention of the grid, by 512 simulations of the true model with common noise: after the last
round, and as a mean over the rounds. It is set beside random interventions with the same belief, so
that a difference is one of choice alone. Intervals are of 95 %, by the bootstrap over models.

Each way that has run is a line of `regret.jsonl`: the same command goes on where it broke off.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jaxtyping import Float
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from . import _enumerated, _trained
from ._environment import Environment, environment
from ._loop import (
    Learner,
    Plan,
    by_enumeration,
    by_evidence,
    by_marginals,
    by_network,
    by_truth,
    last,
    regret,
    run,
)
from ._round import Believer, considered, imagined
from ._tuned import Ignorant, by_steps, stepped

HELD_OUT = 2**32 - 2  # the seed of the models here is one that no training has
SIZES = (3, 4, 5, 8, 12, 20)
WAYS = (
    "network",
    "weighed",
    "information",
    "improvement",
    "random",
    "weighed-random",
    "steps",
    "steps-improvement",
    "steps-random",
    "steps-weighed",
    "steps-weighed-random",
    "steps-alone",
    "enumeration",
    "enumeration-random",
    "marginals",
    "evidence",
    "evidence-random",
    "oracle",
)
# ways with the same belief that choose at random; the others have none
RANDOM = dict.fromkeys(("network", "information", "improvement"), "random")
WITH_RANDOM = ("weighed", "steps", "steps-weighed", "enumeration", "evidence")
RANDOM |= {each: f"{each}-random" for each in WITH_RANDOM}
RANDOM["steps-improvement"] = "steps-random"


@dataclass(frozen=True)
class Curve:
    """Of one way on the models of one size: regret before the first round, and after each."""

    values: Float[np.ndarray, "round task"]

    @property
    def end(self) -> np.ndarray:
        """After the last round."""
        return self.values[-1]

    @property
    def mean(self) -> np.ndarray:
        """Over the rounds."""
        return self.values[1:].mean(0)


def learners(model: Believer, models: Environment) -> dict[str, tuple[Learner, str]]:
    """Who says what interventions are worth, and by which acquisition."""
    network, weighed = by_network(model), by_network(model, weighed=True)
    steps, both = by_steps(model), by_steps(model, weighed=True)
    found = {
        "network": (network, "both"),
        "weighed": (weighed, "both"),
        "information": (network, "information"),
        "improvement": (network, "improvement"),
        "random": (network, "random"),
        "weighed-random": (weighed, "random"),
        "steps": (steps, "both"),
        "steps-improvement": (steps, "improvement"),
        "steps-random": (steps, "random"),
        "steps-weighed": (both, "both"),
        "steps-weighed-random": (both, "random"),
        "steps-alone": (by_steps(Ignorant()), "both"),
        "enumeration": (by_enumeration, "both"),
        "enumeration-random": (by_enumeration, "random"),
        "marginals": (by_marginals, "both"),
        "evidence": (by_evidence, "both"),
        "evidence-random": (by_evidence, "random"),
        "oracle": (by_truth(models), "both"),
    }
    if models.variables > _enumerated.MOST:
        for name in ("enumeration", "enumeration-random", "marginals"):
            del found[name]
    return found


def curves(
    model: Believer,
    models: Environment,
    plan: Plan,
    ways: Sequence[str] = WAYS,
    known: Mapping[str, Curve] | None = None,
    after: Callable[[str, Curve], None] = lambda name, curve: None,
) -> dict[str, Curve]:
    """Each way on the same models.

    Args:
        model: The network.
        models: What is to be optimised.
        plan: How; the acquisition is that of each way.
        ways: Which.
        known: Ways that have run already, which are not run again.
        after: Is called after each way that has run.
    """
    found, known = {}, known or {}
    effects = models.effects() if set(ways) - set(known) else None
    for name, (learner, kind) in learners(model, models).items():
        if name in ways and name in known:
            found[name] = known[name]
        elif name in ways:
            own = replace(plan, kind=kind)
            done = run(models, learner, own)
            best = np.concatenate([done.best, last(done, learner, own)[None]])
            found[name] = Curve(regret(effects, best))
            after(name, found[name])
    return found


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Of the mean, 95 %, by the bootstrap."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(4000, len(values)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def table(found: dict[int, dict[str, Curve]]) -> Table:
    """A line for each way, for each number of variables."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    less = "less than random by"
    for name in ("variables", "way", "at first", "at the end", less, "over the rounds", less):
        out.add_column(name, justify="left" if name == "way" else "right", no_wrap=True)
    for variables, rows in found.items():
        for at, (name, curve) in enumerate(rows.items()):
            beside = rows.get(RANDOM.get(name, ""))
            cells = [f"{curve.values[0].mean():.3f}"]
            for part in ("end", "mean"):
                own = getattr(curve, part)
                cells += [cell(own), cell(getattr(beside, part) - own) if beside else ""]
            out.add_row("" if at else str(variables), name, *cells)
        out.add_section()
    return out


def cell(values: np.ndarray) -> str:
    """A mean and its interval."""
    low, high = interval(values)
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.regret",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, plan = parser.add_argument, Plan()
    add("--sizes", type=int, nargs="+", default=SIZES, help="numbers of variables")
    add("--models", type=int, default=100, help="of each size (default: %(default)s)")
    add("--rounds", type=int, default=plan.rounds, help="interventions (default: %(default)s)")
    add("--worlds", type=int, default=plan.worlds, help="of a belief (default: %(default)s)")
    add("--weights", type=Path, help="(default: those that are best for each size)")
    add("--part", type=int, default=0, help="which models; another part has others (default: 0)")
    add("--ways", nargs="+", choices=WAYS, default=WAYS, help="which (default: all)")
    add("--out", type=Path, default=Path("out/surrogate"), help="folder (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and keep all regrets as JSON."""
    chosen, console, found = options(arguments), Console(width=160), {}
    plan = Plan(rounds=chosen.rounds, worlds=chosen.worlds)
    for variables in chosen.sizes:
        began = time.perf_counter()
        part = [chosen.part] if chosen.part else []
        rng = np.random.default_rng([HELD_OUT, variables, *part])
        models = environment(rng, chosen.models, variables)
        weights = chosen.weights or _trained.best_for(variables)
        log = Log(chosen.out / "regret.jsonl", (variables, *part), models.tasks, plan, weights)
        given = plan, chosen.ways, log.read(), log.add
        found[variables] = curves(_trained.load(weights), models, *given)
        seconds = time.perf_counter() - began
        console.print(f"{variables} variables: {seconds:.0f} s", highlight=False)
        console.print(table({variables: found[variables]}))
    traces = f"{imagined.stats.traces} traces of rounds with the network, {considered.stats.traces}"
    more = f"{stepped.stats.traces} of gradient steps"
    console.print(f"{traces} with given graphs, {more}", highlight=False)


class Log:
    """Regrets of ways that have run, a line of JSON for each: a table that broke off goes on.

    Args:
        path: Of the file.
        models: Which models: their number of variables, and part.
        tasks: How many.
        plan: How the ways run.
        weights: Of the network.
    """

    def __init__(
        self, path: Path, models: tuple[int, ...], tasks: int, plan: Plan, weights: Path
    ) -> None:
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self.path = path
        self.made_of = {"models": [*models], "tasks": tasks, **vars(plan), "weights": digest}

    def add(self, name: str, curve: Curve) -> None:
        """Write a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = {"way": name, "made of": self.made_of, "regret": curve.values.tolist()}
        with self.path.open("a+b") as file:
            # a run that was killed may have left half a line, which ends here
            torn = file.tell() and not self.path.read_bytes().endswith(b"\n")
            file.write(b"\n" * bool(torn) + json.dumps(line).encode() + b"\n")

    def read(self) -> dict[str, Curve]:
        """What has run with the same models, plan and weights."""
        if not self.path.exists():
            return {}
        # the last line is half a line where a run was killed while it wrote
        lines = [each for each in self.path.read_text().splitlines() if each.endswith("]]}")]
        found = [json.loads(each) for each in lines]
        same = [each for each in found if each["made of"] == self.made_of]
        return {each["way"]: Curve(np.array(each["regret"])) for each in same}


if __name__ == "__main__":
    main()
