"""Learning curves of the policy over five seeds: `python -m examples.surrogate.grpo`.

All seeds train in one program, side by side. Every few updates the policies play on models that no
training saw, always the same with the same luck, beside interventions at random and beside the
acquisition "both": a difference is then one of choice alone. Intervals are of 95 %, by the
bootstrap over models; where the seeds are taken together, over the mean of the seeds.

A run that broke off goes on where its last checkpoint was.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from rich.console import Console

from . import _checkpoint
from ._board import Board
from ._grpo import HELD_OUT, Rules, State, batch_of, judge_of, learn, stacked, update_of
from ._policy import Policy
from .regret import cell, interval

# what is compared with: no weights, and weights that take the largest sum of both
FIXED = {"random": {}, "both": {"information": 1e4, "improvement": 1e4}}


@dataclass(frozen=True)
class Look:
    """Held-out play after some updates, [way, model]: the fixed ways, then the seeds.

    Args:
        done: Updates.
        reward: Of each way on each model.
        regret: The same.
        seen: Means over the updates since the last look, and over the seeds.
    """

    done: int
    reward: Float[np.ndarray, "way task"]
    regret: Float[np.ndarray, "way task"]
    seen: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        rewards, regrets = self.reward.tolist(), self.regret.tolist()
        return {"done": self.done, "reward": rewards, "regret": regrets, "seen": self.seen}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "Look":
        """From such."""
        rewards, regrets = np.array(kept["reward"]), np.array(kept["regret"])
        return cls(kept["done"], rewards, regrets, kept["seen"])


class Judge:
    """Plays on held-out models."""

    def __init__(self, rules: Rules, models: int):
        self.rules = replace(rules, models=models)
        self.batch = batch_of(self.rules, HELD_OUT, 0, group=1)
        first = Policy(key=jax.random.key(0))
        self.fixed = [first.fixed(**weights) for weights in FIXED.values()]

    def __call__(self, state: State) -> Look:
        """All ways in one call."""
        seeds = len(state.policy.straight)
        each = [jax.tree.map(lambda part: part[at], state.policy) for at in range(seeds)]  # noqa: B023
        found = judge_of(self.rules)(stacked([*self.fixed, *each]), *self.batch)
        return Look(state.done, np.asarray(found["reward"]), np.asarray(found["regret"]))


def trained(
    rules: Rules,
    seeds: int,
    updates: int,
    every: int,
    models: int,
    path: Path | None = None,
    after: Callable[[Look], None] = lambda look: None,
) -> tuple[State, list[Look]]:
    """Train, and look every few updates; go on with the run whose checkpoint is there.

    Args:
        rules: How.
        seeds: Policies.
        updates: Of each.
        every: Updates between looks.
        models: Held-out ones.
        path: Of the checkpoint; None for none.
        after: Is called at each look.

    Raises:
        ValueError: The checkpoint is damaged or of another run.
    """
    judge, state = Judge(rules, models), State.begin(rules, seeds)
    key = {**dataclasses.asdict(rules), "seeds": seeds, "every": every, "models": models}
    found = _checkpoint.load(path, key, (state.policy, state.opt)) if path else None
    if found:
        looks = [Look.of(each) for each in found[1]]
        state = State(found[0], *found[2])
    else:
        looks = [judge(state)]
    while state.done < updates:
        # on their way to the host while the next updates run
        means = list[Any]()
        upto = min(state.done + every, updates)
        state = learn(rules, state, upto, lambda _, each: means.append(each))  # noqa: B023
        found = [each.result() for each in means]
        seen = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        looks.append(replace(judge(state), seen=seen))
        after(looks[-1])
        if path:
            kept = [each.as_json() for each in looks]
            _checkpoint.save(path, key, state.done, kept, (state.policy, state.opt))
    return state, looks


def draw(looks: Sequence[Look], path: Path) -> None:
    """Save reward and regret above those of random interventions: each seed, their mean, its
    interval over models, and "both".
    """
    figure = Figure(figsize=(9.2, 3.6), dpi=130, layout="constrained")
    at, fixed = [look.done for look in looks], len(FIXED)
    for axes, name in zip(figure.subplots(1, 2), ("reward", "regret"), strict=True):
        values = np.array([getattr(look, name) for look in looks])
        away = values - values[:, :1]
        seeds = away[:, fixed:]
        low, high = np.array([interval(each) for each in seeds.mean(1)]).T
        axes.fill_between(at, low, high, color="#9db8d2", alpha=0.6, label="95 %, over models")
        axes.plot(at, seeds.mean(2), color="#1f4e79", lw=0.7, alpha=0.7)
        axes.plot(at, seeds.mean((1, 2)), color="#1f4e79", lw=2, label="mean of the seeds")
        axes.axhline(away[0, 1].mean(), color="#d98b2b", lw=1.5, label="both")
        axes.axhline(0, color="0.7", lw=1, zorder=0)
        axes.set(xlabel="update", title=f"held-out {name}, less that of random")
        axes.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def lines(looks: Sequence[Look]) -> list[str]:
    """What came of it."""
    fixed, first, last = len(FIXED), looks[0], looks[-1]
    out = []
    for seed in range(len(last.reward) - fixed):
        before, after = first.reward[fixed + seed], last.reward[fixed + seed]
        means = f"reward {before.mean():.3f} to {after.mean():.3f}"
        out.append(f"seed {seed}: {means}, by {cell(after - before)}")
    pooled = {name: getattr(last, name)[fixed:].mean(0) for name in ("reward", "regret")}
    before = first.reward[fixed:].mean(0)
    out.append(f"seeds together: reward more than before by {cell(pooled['reward'] - before)}")
    for at, name in enumerate(FIXED):
        more = cell(pooled["reward"] - last.reward[at])
        less = cell(last.regret[at] - pooled["regret"])
        own = f"reward {last.reward[at].mean():.3f}, regret {last.regret[at].mean():.3f}"
        out.append(f"beside {name} ({own}): reward more by {more}, regret less by {less}")
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, compare, draw."""
    parser = argparse.ArgumentParser(prog="python -m examples.surrogate.grpo", description=__doc__)
    add, rules, shown = parser.add_argument, Rules(), "(default: %(default)s)"
    add("--updates", type=int, default=50, help=f"of each policy {shown}")
    add("--seeds", type=int, default=5, help=f"policies {shown}")
    add("--every", type=int, default=10, help=f"updates between looks {shown}")
    add("--models", type=int, default=128, help=f"held-out ones {shown}")
    add("--batch", type=int, default=rules.models, help=f"models of an update {shown}")
    add("--rate", type=float, default=rules.rate, help=f"learning rate {shown}")
    add("--own-noise", action="store_true", help="answers of a group have noise of their own")
    add("--out", type=Path, default=Path("out/surrogate"), help=f"folder {shown}")
    add("--board", action="store_true", help="TensorBoard's files in the folder too")
    chosen = parser.parse_args(arguments)
    rules = Rules(models=chosen.batch, rate=chosen.rate, shared=not chosen.own_noise)
    console, began = Console(), time.process_time()
    path = chosen.out / "grpo.checkpoint"
    given = chosen.seeds, chosen.updates, chosen.every, chosen.models
    shown = Board(chosen.out) if chosen.board else None

    def after(look: Look) -> None:
        reward = look.reward.mean(1)
        ways = dict(zip(FIXED, reward, strict=False)) | {"seeds": reward[len(FIXED) :].mean()}
        said = ", ".join(f"{name} {value:.3f}" for name, value in ways.items())
        console.print(f"{look.done} updates, held-out reward: {said}", highlight=False)
        if shown:
            ways = {f"held-out reward/{name}": float(value) for name, value in ways.items()}
            shown.add(look.done, {**look.seen, **ways})

    with shown or nullcontext():
        state, looks = trained(rules, *given, path, after)
    for each in lines(looks):
        console.print(each, highlight=False, soft_wrap=True)
    seconds = time.process_time() - began
    stats = update_of(rules).stats
    counts = f"{stats.traces} traces, {stats.compiles} compiles of the update"
    console.print(f"{state.done} updates; {counts}; {seconds:.0f} CPU seconds", highlight=False)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "grpo.json").write_text(json.dumps([each.as_json() for each in looks]))
    draw(looks, chosen.out / "grpo.png")
    console.print(f"Picture: {(chosen.out / 'grpo.png').resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
