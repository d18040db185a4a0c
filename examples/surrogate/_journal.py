"""A campaign on disk: a checkpoint to go on from, and a log that other programs read.

The checkpoint is the arrays of the campaign, in one file that is replaced as a whole. Random
numbers belong to rounds (`Plan.draws`), so there is no state of a generator to keep: a campaign
that broke off goes on to the same bits.
"""

import csv
import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from . import _checkpoint
from ._board import Board
from ._environment import GRID, Environment
from ._loop import Campaign, Learner, Plan, run
from ._round import Worth

PARTS = ("values", "intervened", "target", "chosen", "best")


def save(path: Path, plan: Plan, campaign: Campaign) -> None:
    """Write the checkpoint."""
    arrays = [np.asarray(getattr(campaign, name)) for name in PARTS]
    shapes = [[list(each.shape), each.dtype.str] for each in arrays]
    _checkpoint.save(path, _key(plan), campaign.rounds, shapes, arrays)


def load(path: Path, plan: Plan) -> Campaign | None:
    """The campaign of the checkpoint; None if there is no file.

    Raises:
        ValueError: The file is damaged, or of another plan.
    """
    shapes = _checkpoint.history(path, _key(plan))
    if shapes is None:
        return None
    like = [np.zeros(shape, dtype) for shape, dtype in shapes]
    found = _checkpoint.load(path, _key(plan), like)
    return None if found is None else Campaign(*found[2])


def _key(plan: Plan) -> dict[str, object]:
    """Of what it is; more rounds may be asked for later."""
    return {name: value for name, value in dataclasses.asdict(plan).items() if name != "rounds"}


def resumed(
    environment: Environment,
    learner: Learner,
    plan: Plan,
    folder: Path,
    every: int = 1,
    board: bool = False,
) -> Campaign:
    """Run a campaign, or go on with the one in a folder; checkpoint and log lie there.

    Args:
        environment: What answers.
        learner: What says the worth of interventions.
        plan: How many rounds, and of what.
        folder: Of `campaign`, `log.csv` and `log.jsonl`.
        every: Rounds between checkpoints.
        board: Whether means over the tasks go to TensorBoard's files in the folder too.

    Raises:
        ValueError: The checkpoint is damaged, of another plan, or of other models.
    """
    path = folder / "campaign"
    campaign, first = load(path, plan), Campaign.begin(environment, plan)
    if campaign and not _begins(campaign, first):
        raise ValueError(
            f"{path} is of other models: its first observations are others. Give these models"
            " again, or another folder."
        )
    done = campaign.rounds if campaign else 0
    log = Log(folder, done * environment.tasks)
    shown = Board(folder, done or None) if board else None

    def after(campaign: Campaign, worth: Worth) -> None:
        log.add(campaign, worth)
        if shown:
            shown.add(campaign.rounds, summary(campaign, worth))
        if campaign.rounds % every == 0 or campaign.rounds == plan.rounds:
            save(path, plan, campaign)

    with shown or nullcontext():
        return run(environment, learner, plan, campaign, after)


def summary(campaign: Campaign, worth: Worth) -> dict[str, float]:
    """The last round, as means over the tasks."""
    task, (best, at) = np.arange(len(campaign.target)), campaign.best[-1].T
    found = {
        "answer": campaign.values[task, -1, campaign.target],
        "mean": np.asarray(worth.mean)[task, best, at],
        "sure": worth.sure,
    }
    return {name: float(np.mean(part)) for name, part in found.items()}


def _begins(campaign: Campaign, first: Campaign) -> bool:
    """Whether a campaign begins with such observations, for the same targets."""
    seen = campaign.values[:, : first.values.shape[1]]
    return np.array_equal(seen, first.values) and np.array_equal(campaign.target, first.target)


class Log:
    """A line for each task and round, as CSV and as JSON."""

    COLUMNS = ("round", "task", "variable", "value", "answer", "best", "at", "mean", "sure")

    def __init__(self, folder: Path, rows: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.csv, self.json = folder / "log.csv", folder / "log.jsonl"
        # what was logged after the last checkpoint comes again, and its end may be half a line
        lines = _lines(self.csv)[: rows + 1] or [",".join(self.COLUMNS)]
        _checkpoint.replace(self.csv, "".join(f"{line}\n" for line in lines).encode())
        lines = _lines(self.json)[:rows]
        _checkpoint.replace(self.json, "".join(f"{line}\n" for line in lines).encode())

    def add(self, campaign: Campaign, worth: Worth) -> None:
        """The last round."""
        task = np.arange(len(campaign.target))
        (variable, value), (best, at) = campaign.chosen[-1].T, campaign.best[-1].T
        answer = campaign.values[task, -1, campaign.target]
        mean = np.asarray(worth.mean)[task, best, at]
        which = np.full(len(task), campaign.rounds), task, variable, GRID[value], answer
        columns = *which, best, GRID[at], mean, np.asarray(worth.sure)
        rows = [[each.item() for each in row] for row in zip(*columns, strict=True)]
        with self.csv.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        with self.json.open("a") as file:
            lines = (json.dumps(dict(zip(self.COLUMNS, row, strict=True))) for row in rows)
            file.writelines(f"{line}\n" for line in lines)


def _lines(path: Path) -> list[str]:
    """The whole ones."""
    return path.read_text().split("\n")[:-1] if path.exists() else []
