"""Learning curves of the policy over five seeds: `python -m examples.surrogate.grpo`.

Each policy is then compared on models that no training saw with the acquisition "both", and with
interventions at random, on the same models with the same luck.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

import jitney

from ._grpo import Learned, Rules, batch_of, learn, played
from ._policy import Policy
from .regret import cell

HELD_OUT = 2**32 - 4
# a policy that learns nothing is a name, and so a part of its program
plays = jitney.optimize(played)


def judged(rules: Rules, policies: Sequence[Policy | str], models: int) -> list[np.ndarray]:
    """The regret of each on held-out models."""
    many = replace(rules, models=models)
    batch = batch_of(many, HELD_OUT, 0, group=1)
    return [np.asarray(plays(many, policy, *batch).regret)[:, 0] for policy in policies]


def draw(learned: Sequence[Learned], path: Path) -> None:
    """Save mean and range over the seeds of regret, information and reward."""
    figure = Figure(figsize=(10, 3.2), dpi=130, layout="constrained")
    names = {"reward": "reward", "regret": "regret", "told": "nats about the graph"}
    for axes, (name, title) in zip(figure.subplots(1, 3), names.items(), strict=True):
        curves = np.array([each.history[name] for each in learned])
        window = max(curves.shape[1] // 12, 1)
        smooth = np.array([np.convolve(c, np.ones(window) / window, "valid") for c in curves])
        at = np.arange(smooth.shape[1]) + window
        axes.fill_between(at, smooth.min(0), smooth.max(0), color="#9db8d2", alpha=0.6)
        axes.plot(at, smooth.mean(0), color="#1f4e79")
        axes.set(xlabel="update", title=title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.surrogate.grpo", description=__doc__)
    add = parser.add_argument
    add("--updates", type=int, default=100, help="of each policy (default: %(default)s)")
    add("--seeds", type=int, default=5, help="policies (default: %(default)s)")
    add("--models", type=int, default=200, help="in the comparison (default: %(default)s)")
    add("--out", type=Path, default=Path("out/surrogate"), help="folder (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    console, rules, learned = Console(), Rules(), list[Learned]()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.seeds):
        learned.append(learn(rules, seed, chosen.updates))
        reward, part = learned[-1].history["reward"], max(chosen.updates // 5, 1)
        means = f"{reward[:part].mean():.3f} to {reward[-part:].mean():.3f}"
        console.print(f"seed {seed}: reward from {means}", highlight=False)
        kept = [{name: curve.tolist() for name, curve in each.history.items()} for each in learned]
        (chosen.out / "grpo.json").write_text(json.dumps(kept))
    ways = ["random", "both", *(each.policy for each in learned)]
    found = judged(rules, ways, chosen.models)
    names = ["random", "both", *(f"policy {seed}" for seed in range(chosen.seeds))]
    for name, regrets in zip(names, found, strict=True):
        less = "" if name == "random" else f", less than random by {cell(found[0] - regrets)}"
        console.print(f"{name}: regret {cell(regrets)}{less}", highlight=False, soft_wrap=True)
    pooled = np.mean(found[2:], axis=0)
    beside = f"policies together: {cell(pooled)}, less than random by {cell(found[0] - pooled)}"
    console.print(f"{beside}, than both by {cell(found[1] - pooled)}", highlight=False)
    console.print(f"{learned[0].traces} trace for {chosen.updates} updates", highlight=False)
    draw(learned, chosen.out / "grpo.png")


if __name__ == "__main__":
    main()
