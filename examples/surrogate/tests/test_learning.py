"""Training on what is drawn on the device, and what comes next in it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.surrogate import _stream, learn
from examples.surrogate._data import positions_of, tables
from examples.surrogate._environment import environment
from examples.surrogate._learning import Session, judge_of, steps_of
from examples.surrogate._learning import learn as trained
from examples.surrogate._stages import Curriculum, Look, Mixture, Stage
from examples.surrogate._trained import best_for, load, save
from examples.surrogate.model import parameters
from examples.surrogate.reader import Reader

TINY = Session(
    hidden=8,
    depth=1,
    after=1,
    rows=6,
    steps=2,
    dispatches=4,
    seconds=None,
    looks=2,
    held_out=4,
    schedule=Mixture((3,), (1.0,)),
)


def test_a_curriculum_moves_on_where_held_out_quality_stands_still():
    """A stage that gets better stays; looks at other stages count for nothing."""
    first, second, other = Stage(3, linear=1.0), Stage(3), Stage(5)
    curriculum = Curriculum((first, second), 0.01, Mixture((3, 5), (1.0, 1.0)))
    better = [Look(first, value, 0.0) for value in (1.0, 0.9, 0.8, 0.7)]
    assert curriculum.level(better) == 0
    assert curriculum.watched(better) == first
    stands = [*better, Look(other, 0.1, 0.0), Look(first, 0.7, 0.0), Look(first, 0.699, 0.0)]
    assert curriculum.level(stands) == 1
    rng = np.random.default_rng(0)
    chosen = {curriculum.choose(rng, stands) for _ in range(50)}
    assert chosen == {second, Stage(3)}
    done = [*stands, *(Look(second, 0.5, 0.0) for _ in range(3))]
    assert curriculum.level(done) == 2
    assert curriculum.watched(done) is None
    assert {curriculum.choose(rng, done) for _ in range(50)} == {Stage(3), Stage(5)}


def test_a_stage_that_has_not_begun_to_learn_is_not_done():
    """Its quality stands still with no edge found; it is done once enough are found."""
    first = Stage(3)
    curriculum = Curriculum((first,), 0.01, Mixture((3,), (1.0,)), least=0.1)
    lies = [Look(first, 1.1, 0.0) for _ in range(5)]
    assert curriculum.level(lies) == 0
    learned = [*lies, *(Look(first, value, 0.4) for value in (0.7, 0.65))]
    assert curriculum.level(learned) == 0
    assert curriculum.level([*learned, Look(first, 0.649, 0.4), Look(first, 0.65, 0.4)]) == 1


def test_a_session_begins_with_the_weights_of_a_file(tmp_path):
    """Rounded as the file has them, of the same sizes, and no other file goes on with it."""
    save(replace(TINY, seed=5).model(), TINY, tmp_path / "weights")
    begun = replace(TINY, begin=tmp_path / "weights")
    for ours, theirs in zip(
        *map(jax.tree.leaves, (begun.model(), load(tmp_path / "weights"))), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    before = begun.made_of()
    assert before != TINY.made_of()
    save(TINY.model(), TINY, tmp_path / "weights")
    assert begun.made_of() != before
    with pytest.raises(ValueError, match="give the sizes it has"):
        replace(begun, hidden=12).model()


def test_a_session_ends_by_time_or_by_dispatches_and_its_rate_goes_up_and_down():
    """Whichever comes first."""
    both = replace(TINY, dispatches=10, seconds=100.0)
    assert both.part(5, 80.0, 100.0) == 0.8
    assert both.part(9, 80.0, 100.0) == 0.9
    assert TINY.part(2, 1e6, None) == 0.5
    rates = [TINY.rate_at(part) for part in (0.0, 0.015, 0.03, 0.515, 1.0)]
    np.testing.assert_allclose(rates, [1e-5, 5.05e-4, 1e-3, 5.05e-4, 1e-5], rtol=1e-9)


def test_the_command_refuses_a_session_without_an_end(capsys):
    """And shares that belong to no size."""
    for given, said in (
        (["--seconds", "0"], "no end"),
        (["--sizes", "3", "4", "--shares", "1"], "as many --shares"),
        (["--sizes", "21"], "3 to 20"),
    ):
        with pytest.raises(SystemExit):
            learn.options(given)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("variables", [8, 9])
def test_the_weights_that_are_kept_are_those_of_a_network(variables):
    """As many as the page says, and all of them numbers; a file each for few variables and for
    many.
    """
    model = load(best_for(variables))
    assert parameters(model) == 49_184
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model))


@pytest.mark.rest
def test_models_of_the_stream_are_those_of_the_environment():
    """How often there are how many parents, and how correlated linked variables are; observations
    have mean 0 and variance 1, and one variable is set in each answer.
    """
    models = environment(np.random.default_rng(0), 2000, 4)
    seen = jax.jit(lambda key: _stream.campaigns(key, 2000, 4, _stream.Difficulty.of()))(
        jax.random.key(0)
    )
    parents, values = np.asarray(seen.parents), np.asarray(seen.values)
    often = [np.bincount(p.sum(2).ravel(), minlength=4) / 8000 for p in (parents, models.parents)]
    np.testing.assert_allclose(*often, atol=0.03)
    linked = []
    for rows, edges in (
        (values[:, : _stream.OBSERVED], parents),
        (models.observed(np.random.default_rng(1), _stream.OBSERVED), models.parents),
    ):
        found = np.abs(np.array([np.corrcoef(each.T) for each in rows]))
        linked.append(found[edges | edges.mT].mean())
    assert linked[0] == pytest.approx(linked[1], abs=0.03)
    assert values[:, : _stream.OBSERVED].mean() == pytest.approx(0, abs=0.02)
    assert values[:, : _stream.OBSERVED].std() == pytest.approx(1, abs=0.03)
    flags = np.asarray(seen.intervened)
    assert not flags[:, : _stream.OBSERVED].any()
    assert np.all(flags[:, _stream.OBSERVED :].sum(2) == 1)
    true = np.asarray(jax.vmap(_stream.truth)(seen.parents))
    np.testing.assert_array_equal(true.argmax(2), positions_of(parents))
    assert np.all(true.sum(2) == 1)


@pytest.mark.rest
def test_easy_models_are_linear_with_few_parents_and_long_campaigns():
    """In the program of all others."""
    easy = Stage(4, linear=1.0, spread=8.0, most=1, least=20).difficulty
    seen = jax.jit(lambda key: _stream.campaigns(key, 300, 4, easy))(jax.random.key(1))
    assert np.asarray(seen.parents).sum(2).max() == 1
    assert np.all(seen.there)


@pytest.mark.rest
def test_samples_that_are_not_there_do_not_matter():
    """A belief from six samples, and from ten of which four are not there."""
    model, rng = Reader(8, 1, 1, key=jax.random.key(0)), np.random.default_rng(0)
    index, mask = tables(3)
    values, flags = rng.normal(size=(10, 3)).astype(np.float32), rng.random((10, 3)) < 0.3
    there = np.arange(10) < 6
    belief = jax.jit(lambda *given: model.beliefs(*given))
    short = belief(values[:6], flags[:6], index, mask)
    np.testing.assert_allclose(belief(values, flags, index, mask, there), short, atol=1e-5)
    np.testing.assert_allclose(np.exp(short).sum(1), 1, rtol=1e-5)


@pytest.mark.rest
def test_a_session_that_broke_off_goes_on_to_the_same_weights(tmp_path):
    """To the bit, and its steps are one program; the weights that are kept are these in half
    precision.
    """
    whole = trained(TINY)

    def breaks(model, notes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(TINY, tmp_path / "run", breaks)
    done = trained(TINY, tmp_path / "run")
    for ours, theirs in zip(*map(jax.tree.leaves, (done.model, whole.model)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [note.dispatches for note in done.notes] == [2, 4]
    assert [note.loss for note in done.notes] == [note.loss for note in whole.notes]
    assert steps_of(3, 2, 2).stats.traces == 1
    assert judge_of(3, 4).stats.traces == 1
    save(done.model, TINY, tmp_path / "weights")
    for ours, theirs in zip(
        *map(jax.tree.leaves, (load(tmp_path / "weights"), done.model)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
        assert ours.dtype == jnp.float32
    with pytest.raises(ValueError, match="other options"):
        trained(replace(TINY, seed=1), tmp_path / "run")
