"""Training, what it is compared with, and the command line."""

import io
from collections import Counter

import equinox as eqx
import jax
import numpy as np
import pytest
from rich.console import Console

import jitney
from examples.surrogate import __main__ as command
from examples.surrogate import _checkpoint, by_hand
from examples.surrogate._baselines import by_correlation, lasso, prior
from examples.surrogate._data import draw, parent_sets, true_sets
from examples.surrogate._expert import batch
from examples.surrogate._step import PAD
from examples.surrogate._train import train
from examples.surrogate._validate import calibration, probabilities, score
from examples.surrogate.tests._small import RUN


@pytest.mark.rest
def test_a_run_that_breaks_off_goes_on_to_the_same_weights(tmp_path):
    """To the bit, momentum included; both sizes of data share one program."""
    unbroken = train(RUN, tmp_path / "unbroken", every=2)

    def broken(done, loss):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(RUN, tmp_path / "run", every=2, progress=broken)
    resumed = train(RUN, tmp_path / "run", every=2)
    for ours, theirs in zip(*map(jax.tree.leaves, (resumed.model, unbroken.model)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(resumed.history, unbroken.history)
    assert {RUN.batch(step).x.shape[2] for step in range(RUN.recipe.steps)} == {3, 4}
    assert unbroken.step.stats.traces == 1


def test_a_checkpoint_is_used_whole_or_not_at_all(tmp_path):
    """One of another run, or with a flipped bit, is refused; without a file there is nothing to go
    on with.
    """
    path, state = tmp_path / "run", (np.arange(3.0), np.ones(2, np.int32))
    assert _checkpoint.load(path, {"a": 1}, state) is None
    _checkpoint.save(path, {"a": 1}, 7, [[1.0, 2.0]], state)
    step, history, found = _checkpoint.load(path, {"a": 1}, jax.tree.map(np.zeros_like, state))
    assert (step, history) == (7, [[1.0, 2.0]])
    np.testing.assert_array_equal(found[0], state[0])
    with pytest.raises(ValueError, match="other options"):
        _checkpoint.load(path, {"a": 2}, state)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        _checkpoint.load(path, {"a": 1}, state)
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_3_to_20_variables_share_five_programs():
    """By the buckets of variables and parent sets."""
    buckets = {name: jitney.Bucket(sizes) for name, sizes in PAD.items()}
    pairs = {
        (buckets["vars"].range(d)[1], buckets["sets"].range(len(parent_sets(d, 0)))[1])
        for d in range(3, 21)
    }
    assert len(pairs) == 5


def test_the_prior_is_that_of_the_generator():
    """As often as drawn, to within four standard errors."""
    for variables in (3, 9):
        data = batch(np.random.default_rng(0), 2, variables, samples=4)
        said = prior(data)[0]
        assert said.sum() == pytest.approx(1)
        drawn = draw(np.random.default_rng(1), 4000, variables, samples=4)
        sizes = drawn.parents[np.arange(4000), drawn.target].sum(1)
        for size, count in Counter(sizes.tolist()).items():
            p = said[data.mask[0].sum(1) == size].sum()
            assert abs(count / 4000 - p) < 4 * np.sqrt(p * (1 - p) / 4000)
        assert len(true_sets(drawn)) == 4000


def test_the_lasso_is_at_its_minimum():
    """By the conditions of Karush, Kuhn and Tucker."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(50, 6))
    design = (design - design.mean(0)) / design.std(0)
    y = design @ np.array([1.0, -0.5, 0, 0, 0.1, 0]) + rng.normal(size=50)
    weight = lasso(design, y, 0.2, turns=500)
    slope = design.T @ (y - design @ weight) / 50
    np.testing.assert_allclose(slope[weight != 0], 0.2 * np.sign(weight[weight != 0]), rtol=1e-9)
    assert np.all(np.abs(slope[weight == 0]) <= 0.2)
    assert 0 < np.count_nonzero(weight) < 6


@pytest.mark.rest
def test_correlations_above_a_threshold_are_parents():
    """All that are, up to as many as a set has; none above 1."""
    data = batch(np.random.default_rng(0), 5, 4, samples=40)
    assert by_correlation(data, 1.0) == [frozenset()] * 5
    assert [len(found) for found in by_correlation(data, 0.0)] == [3] * 5


def test_scores_are_their_definitions():
    """The posterior diverges from itself by 0; a bin is as far off as what it says is from what was
    true.
    """
    data = batch(np.random.default_rng(0), 20, 3)
    itself = score(data.expert.astype(float), data, exact=True)
    assert itself.kl == pytest.approx(0, abs=1e-6)
    uniform = score(np.full(data.expert.shape, 0.25), data, exact=True)
    entropy = -np.sum(
        np.where(data.expert > 0, data.expert * np.log(np.maximum(data.expert, 1e-30)), 0), axis=1
    )
    assert uniform.kl == pytest.approx(np.mean(np.log(4) - entropy), rel=1e-5)
    assert uniform.surprise == pytest.approx(np.log(4))
    error, bins = calibration(
        np.array([0.95, 0.95, 0.5, 0.5]), np.array([True, False, True, False])
    )
    assert error == pytest.approx((0.45 * 2 + 0 * 2) / 4)
    assert bins == [(0.5, 0.5, 2), (0.95, 0.5, 2)]


@pytest.mark.rest
def test_predictions_of_padded_sizes_are_the_networks():
    """Of 3 variables, padded to 4."""
    model, data = RUN.model(), batch(np.random.default_rng(0), 2, 3, samples=6)
    one = eqx.filter_jit(model)(*(part[0] for part in data.arrays[:3]))
    np.testing.assert_allclose(probabilities(model, data)[0], np.exp(one), rtol=1e-4)
    np.testing.assert_allclose(by_hand.predict(model, *data.arrays[:3])[0], one, rtol=1e-4)


@pytest.mark.rest
def test_the_command_line_trains_compares_and_draws(tmp_path, monkeypatch):
    """And goes on where it was; the exit code says whether the baselines are beaten."""
    monkeypatch.setattr(command, "Run", lambda *_: RUN)
    out = io.StringIO()
    chosen = command.options(
        ["train", "--vars", "3", "4", "--held-out", "20", "--out", str(tmp_path)]
    )
    assert command.training(chosen, Console(file=out, width=120)) in (0, 1)
    assert "exact posterior" in out.getvalue()
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "run.checkpoint").write_bytes(b"none")
    assert command.training(chosen, Console(file=out, width=120)) == 2
    assert "damaged" in out.getvalue()


@pytest.mark.rest
def test_the_demo_shows_a_posterior_and_a_proof(tmp_path, monkeypatch):
    """Of one model, with a picture, and of each axis of the loss; its times are for the summary of
    the demo.
    """
    monkeypatch.setattr(command, "LOOK", tmp_path / "look.png")
    out = io.StringIO()
    assert command.demo(Console(file=out, width=120)) == 0
    assert "the true one" in out.getvalue()
    for axis in ("samples", "vars", "sets", "parents"):
        assert f"{axis}: reduced" in out.getvalue()
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")
    assert "losses of 64 examples" in (tmp_path / "summary.json").read_text()


def test_the_command_line_names_what_is_wrong(capsys):
    """Too many variables."""
    with pytest.raises(SystemExit):
        command.options(["train", "--vars", "3", "21"])
    assert "3 to 20 variables" in capsys.readouterr().err
