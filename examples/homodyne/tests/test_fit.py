"""The three ways to one fit, what a broken one leaves, and the data."""

import sys

import jax
import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given
from hypothesis import strategies as st

import jitney
from examples.homodyne import (
    NAMES,
    Data,
    Journal,
    __main__,
    before,
    by_hand,
    fit,
    in_memory,
    streamed,
)
from examples.homodyne._data import TRUTH, correlation, pair, place
from examples.homodyne._fit import BOUNDS, START
from examples.homodyne.model import Setup, gram, residual


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Data.make(tmp_path_factory.mktemp("homodyne"), 40_000, angles=6)


@pytest.fixture(scope="module")
def whole(data):
    return fit(in_memory(data), data)


@pytest.mark.rest
def test_in_memory_chunked_and_streamed_agree(data, whole):
    """To 1e-10 of each parameter, though each adds in another order; and so does the loop over
    angles.
    """
    chunked = jitney.optimize(vmap="phi", precision="f64", chunk={"points": 1000})(gram)
    for products in (in_memory(data, chunked), streamed(data, chunk=3000), before.products(data)):
        np.testing.assert_allclose(fit(products, data).x, whole.x, rtol=1e-10)


@pytest.mark.rest
def test_by_hand_sums_the_same(data, monkeypatch):
    """At once, in chunks with a rest, and from disk."""
    monkeypatch.setattr(by_hand, "CHUNK", 5_000)
    true = in_memory(data)(START)
    scale = np.sqrt(np.diag(true))
    for hand in (
        by_hand.in_memory(data),
        by_hand.in_memory(data, by_hand.in_chunks),
        by_hand.streamed(data, 5_000),
    ):
        np.testing.assert_allclose(
            hand(START) / np.outer(scale, scale), true / np.outer(scale, scale), atol=1e-12
        )


@pytest.mark.rest
def test_the_fit_is_scipys(data, whole):
    """From the same start, on all residuals at once, to what SciPy resolves."""
    t1, t2, measured = (np.array(data.mapped(name), float) for name in ("t1", "t2", "measured"))
    with jax.enable_x64(True):
        phi = data.phi.astype(np.float32).astype(float)
        angles = jax.jit(jax.vmap(residual, (None, None, 0, None, None, 0)))
        slopes = jax.jit(jax.vmap(jax.jacfwd(residual), (None, None, 0, None, None, 0)))
        fun = lambda x: np.asarray(angles(x, Setup(), phi, t1, t2, measured)).ravel()
        jac = lambda x: np.asarray(slopes(x, Setup(), phi, t1, t2, measured)).reshape(
            -1, len(NAMES)
        )
        theirs = scipy.optimize.least_squares(
            fun, START, jac=jac, bounds=BOUNDS, x_scale="jac", ftol=1e-14, xtol=1e-14, gtol=1e-14
        )
    assert whole.cost <= theirs.cost * (1 + 1e-9)
    assert np.all(np.abs(whole.x - theirs.x) < 1e-3 * whole.errors)
    covariance = np.linalg.inv(theirs.jac.T @ theirs.jac) * 2 * theirs.cost / (data.points - 9)
    np.testing.assert_allclose(whole.errors, np.sqrt(np.diag(covariance)), rtol=1e-3)


def test_the_truth_is_found(whole):
    """Within five standard errors."""
    assert whole.success
    assert np.all(np.abs(whole.x - TRUTH) < 5 * whole.errors)


@pytest.mark.rest
@pytest.mark.parametrize("broken", [1, 4])
def test_a_fit_that_breaks_off_goes_on(data, tmp_path, broken):
    """From its journal and the stream's checkpoint, to the bits of an unbroken one; what was
    evaluated is not evaluated again.
    """
    path = tmp_path / "fit.npz"
    evaluated = []

    def counted(stop):
        inner = streamed(data, checkpoint=tmp_path / "products", chunk=3000)

        def products(vector):
            if len(evaluated) == stop:
                raise KeyboardInterrupt
            evaluated.append(vector)
            return inner(vector)

        return products

    with pytest.raises(KeyboardInterrupt):
        fit(Journal(path, data).surroundings(counted(broken)), data)
    first = len(evaluated)
    got = fit(Journal(path, data).surroundings(counted(-1)), data)
    unbroken = fit(streamed(data, chunk=3000), data)
    assert got.x.tobytes() == unbroken.x.tobytes()
    assert len(evaluated) <= unbroken.nfev
    assert first == broken


def test_a_journal_of_other_data_is_put_aside(data, tmp_path):
    """Its products are not used."""
    path = tmp_path / "fit.npz"
    other = Data.make(tmp_path / "other", 5000, angles=6)
    Journal(path, other).surroundings(lambda x: np.ones((2, 2)))(np.ones(1))
    assert Journal(path, other).known
    assert not Journal(path, data).known


def test_data_are_written_once(tmp_path):
    """Again where they are of something else."""
    written = []
    small = Data.make(tmp_path, 1000, angles=2, advance=written.append)
    assert sum(written) == small.points
    Data.make(tmp_path, 1000, angles=2, advance=written.append)
    assert sum(written) == small.points
    Data.make(tmp_path, 1000, angles=2, seed=1, advance=written.append)
    assert sum(written) == 2 * small.points


def test_data_are_the_model_and_noise(data):
    """Of the standard deviation that is stated, without bias."""
    with jax.enable_x64(True):
        t1, t2 = (np.array(data.mapped(name), float) for name in ("t1", "t2"))
        rest = np.asarray(data.mapped("measured")) - np.asarray(
            correlation(TRUTH, Setup(), data.phi, t1, t2)
        )
    assert rest.std() == pytest.approx(0.01, rel=0.02)
    assert abs(rest.mean()) < 5 * 0.01 / np.sqrt(data.points)


@pytest.mark.parametrize(("points", "angles"), [(1, 1), (10, 4), (100, 0)])
def test_too_little_is_refused(tmp_path, points, angles):
    """With a sentence."""
    with pytest.raises(ValueError, match="at least"):
        Data.make(tmp_path, points, angles)


def places_of(frames):
    last = frames * (frames - 1) // 2 - 1
    return st.tuples(st.just(frames), st.lists(st.integers(0, last), min_size=1, max_size=20))


@given(st.integers(2, 10**5).flatmap(places_of))
@example(frames_and_places=(2, [0]))
@example(frames_and_places=(3, [2, 0, 1, 2]))
# the ends of the first row, the second row, the last two rows
@example(frames_and_places=(100, [0, 98, 99, 100, 4948, 4949]))
@example(
    frames_and_places=(10**5, [0, 99998, 99999, 4999949996, 4999949997, 4999949998, 4999949999])
)
def test_a_place_is_that_of_its_pair(frames_and_places):
    """For any number of frames."""
    frames, places = frames_and_places
    index = np.array(places)
    first, second = pair(index, frames)
    assert np.all((first >= 0) & (first < second) & (second < frames))
    np.testing.assert_array_equal(place(first, second, frames), index)


@pytest.mark.slow  # `nox -s demo` runs it too
def test_the_demo_fits_three_ways_and_draws(data, tmp_path, monkeypatch, capsys):
    """Exit code 0 says that the ways agree."""
    words = f"homodyne --points 40000 --angles {data.angles} --memory auto --out".split()
    monkeypatch.setattr(sys, "argv", [*words, str(tmp_path)])
    assert __main__.main() == 0
    said = capsys.readouterr().out
    assert "->  in memory" in said
    assert "Largest relative difference between the ways" in said
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_names_what_is_wrong(monkeypatch, capsys):
    """Too few points are an error of the command line."""
    monkeypatch.setattr(sys, "argv", ["homodyne", "--points", "10"])
    with pytest.raises(SystemExit, match="2"):
        __main__.main()
    assert "100 points" in capsys.readouterr().err
