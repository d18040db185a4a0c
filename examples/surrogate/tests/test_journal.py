"""Campaigns on disk."""

import csv
import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from examples.surrogate import _journal
from examples.surrogate._environment import GRID, environment
from examples.surrogate._loop import Plan, run
from examples.surrogate._round import Worth

PLAN = Plan(rounds=4, observed=4, answers=2, worlds=2, repeats=2)


def learner(campaign, draws):
    """Worth that depends on all data and on the random numbers."""
    tasks = len(campaign.target)
    numbers = np.asarray(draws.noise).sum((1, 2))[:, :, None] * np.arange(len(GRID))
    mean = np.sin(campaign.values.sum(1))[:, :, None] + np.cos(numbers)
    mean[np.arange(tasks), campaign.target] = -np.inf
    return Worth(mean, mean, mean, np.ones(tasks))


def test_a_campaign_that_broke_off_goes_on_to_the_same_bits(tmp_path):
    """Data, choices and log; one of another plan, or a damaged one, is refused."""
    models = environment(np.random.default_rng(0), 3, 4)
    whole = run(models, learner, PLAN)

    def breaks(campaign, draws):
        if campaign.rounds == 3:
            raise KeyboardInterrupt
        return learner(campaign, draws)

    with pytest.raises(KeyboardInterrupt):
        _journal.resumed(models, breaks, PLAN, tmp_path, every=2)
    assert _journal.load(tmp_path / "campaign", PLAN).rounds == 2
    for name in ("log.csv", "log.jsonl"):
        # a kill in the middle of a line
        path = tmp_path / name
        path.write_text(path.read_text()[:-9])
    done = _journal.resumed(models, learner, PLAN, tmp_path, every=2)
    for name in _journal.PARTS:
        np.testing.assert_array_equal(getattr(done, name), getattr(whole, name))
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [(int(row["round"]), int(row["task"])) for row in rows] == [
        (at, task) for at in (1, 2, 3, 4) for task in range(3)
    ]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["variable"] for line in lines] == whole.chosen[:, :, 0].ravel().tolist()
    assert [float(row["mean"]) for row in rows] == [line["mean"] for line in lines]
    with pytest.raises(ValueError, match="other options"):
        _journal.load(tmp_path / "campaign", Plan(answers=3))
    others = environment(np.random.default_rng(1), 3, 4)
    with pytest.raises(ValueError, match="other models"):
        _journal.resumed(others, learner, PLAN, tmp_path)


def events(path):
    """Steps and numbers of a file of records: a length, its check, the record, its check."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        found += [(event.step, each.tag, each.simple_value) for each in event.summary.value]
        data = data[16 + length :]
    return found


def test_a_campaign_is_logged_as_tensorboard_reads_it(tmp_path):
    """Means over the tasks, which are those of the other log; one that goes on adds its rounds."""
    pytest.importorskip("tensorboardX")
    models = environment(np.random.default_rng(0), 3, 4)
    for rounds in (2, 4):
        _journal.resumed(models, learner, replace(PLAN, rounds=rounds), tmp_path, board=True)
    found = [each for path in sorted(tmp_path.glob("events*")) for each in events(path)]
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    for name in ("answer", "mean", "sure"):
        shown = [(step, value) for step, tag, value in found if tag == name]
        means = [
            np.mean([float(row[name]) for row in rows if row["round"] == str(at)])
            for at in (1, 2, 3, 4)
        ]
        assert [step for step, _ in shown] == [1, 2, 3, 4]
        np.testing.assert_allclose([value for _, value in shown], means, rtol=1e-5)
