"""How beliefs are judged."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from examples.surrogate import _classical, campaign, quality, regret
from examples.surrogate._data import positions_of
from examples.surrogate._environment import environment
from examples.surrogate._loop import Plan
from examples.surrogate.quality import Data, distance, edges_of, judged


def test_the_truth_has_no_fault_and_a_turned_edge_is_one():
    """F1, Hamming distance, log likelihood and calibration, of the true graphs, and of the same
    with every edge turned.
    """
    models = environment(np.random.default_rng(0), 4, 4)
    values = models.observed(np.random.default_rng(1), 8)
    data = Data(models, values, np.zeros(values.shape, bool))
    belief = np.eye(8)[positions_of(models.parents)]
    edges = edges_of(belief)
    np.testing.assert_array_equal(edges, models.parents)
    assert judged(edges, data, belief) == quality.Quality(1.0, 0.0, 0.0, 0.0)
    turned = judged(edges.mT, data, belief)
    assert turned.f1 == 0
    assert turned.shd == pytest.approx(models.parents.sum((1, 2)).mean())
    assert distance(np.zeros_like(models.parents), models.parents).sum() == models.parents.sum()


def test_a_way_is_set_beside_random_interventions_with_its_own_belief():
    """At the end, and as a mean over the rounds without what was before them."""
    flat = lambda *rounds: regret.Curve(np.repeat(np.array(rounds)[:, None], 3, axis=1))
    rows = {
        "network": flat(9.0, 3.0, 1.0),
        "random": flat(9.0, 5.0, 4.0),
        "enumeration": flat(9.0, 0.5, 0.25),
        "enumeration-random": flat(9.0, 2.5, 0.75),
    }
    out = Console(file=io.StringIO(), width=160)
    out.print(regret.table({3: rows}))
    text = out.file.getvalue().replace("3  ", "")
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    found = [[float(x) for x in re.findall(r"(-?[0-9.]+) \(", lines[name])] for name in rows]
    assert found == [[1.0, 3.0, 2.0, 2.5], [4.0, 4.5], [0.25, 0.5, 0.375, 1.25], [0.75, 1.625]]


def test_a_table_of_regrets_goes_on_where_it_broke_off(tmp_path):
    """Ways that ran with the same models, plan and weights are read; half a line is not."""
    (tmp_path / "weights").write_bytes(b"1")
    given = tmp_path / "regret.jsonl", (3,), 2, Plan(rounds=1), tmp_path / "weights"
    log = regret.Log(*given)
    assert log.read() == {}
    log.add("random", regret.Curve(np.array([[0.5, 0.25], [0.1, 0.0]])))
    with log.path.open("a") as file:
        file.write(log.path.read_text()[:-5].replace("random", "network"))
    (found,) = log.read().items()
    assert found[0] == "random"
    np.testing.assert_array_equal(found[1].values, [[0.5, 0.25], [0.1, 0.0]])
    log.add("oracle", found[1])
    assert [*log.read()] == ["random", "oracle"]
    assert regret.Log(*given[:3], Plan(rounds=2), given[4]).read() == {}
    given[4].write_bytes(b"2")
    assert regret.Log(*given).read() == {}


def test_an_interval_is_that_of_a_mean():
    """Of many numbers, 1.96 standard errors to each side."""
    values = np.random.default_rng(0).normal(size=400)
    low, high = regret.interval(values)
    error = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.2 * error)


@pytest.mark.parametrize(("name", "level"), [("PC", 0.01), ("GES", 0.5)])
def test_a_classical_method_finds_a_collider(name, level):
    """Two causes of one variable are independent, and so their edges have directions: [child,
    parent]. Beside a chain, of which it finds two edges.
    """
    pytest.importorskip("causallearn")
    x = np.random.default_rng(0).normal(size=(2, 2000, 3))
    x[0, :, 2] += x[0, :, 0] + x[0, :, 1]
    x[1, :, 1] += x[1, :, 0]
    x[1, :, 2] += x[1, :, 1]
    collider, chain = _classical.METHODS[name].edges(x, level)
    assert np.argwhere(collider).tolist() == [[2, 0], [2, 1]]
    linked = chain | chain.T
    assert np.argwhere(np.triu(linked)).tolist() == [[0, 1], [1, 2]]
    assert chain.sum() == 2


def test_edges_are_said_above_a_threshold():
    """A lower one says more: here all that are there, and the F1 of that."""
    models = environment(np.random.default_rng(0), 4, 4)
    values = models.observed(np.random.default_rng(1), 8)
    data = Data(models, values, np.zeros(values.shape, bool))
    edges = np.where(models.parents, 0.3, 0.1)
    assert judged(edges, data).f1 == 0
    assert judged(edges, data, threshold=0.2).f1 == 1


def test_a_campaign_says_at_which_samples_programs_were_made():
    """Where the count of traces rises, the first one too."""
    curve = regret.Curve(np.zeros((5, 2)))
    counts = np.array([16, 18, 20, 22]), np.array([1, 1, 2, 2])
    assert campaign.Played(curve, *counts, np.ones(4)).retraced == [16, 20]
