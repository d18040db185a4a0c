"""Coverage of the posterior: shares of the sets, and the table of all."""

import sys
from argparse import Namespace

import jax
import numpy as np
import pytest

from examples.homodyne import _posterior, coverage
from examples.homodyne._posterior import Chain

TINY = ("--frames", "12", "--angles", "2", "--draws", "40", "--chains", "2", "--parts")


def normal(aim, key, start, warmup, draws):
    """Draws of what the posterior nearly is."""
    return Chain(np.asarray(jax.random.normal(key, (draws, aim.size))), 0)


def run(monkeypatch, *words):
    monkeypatch.setattr(_posterior, "nuts", lambda: normal)
    monkeypatch.setattr(sys, "argv", ["coverage", *map(str, words)])
    return coverage.main()


@pytest.mark.rest
def test_shares_are_put_together(tmp_path, monkeypatch, capsys):
    """Two commands, each with its sets, and a third that prints what one alone would."""
    run(monkeypatch, *TINY, "--sets", 4)
    alone = capsys.readouterr().out
    for first in (0, 2):
        run(monkeypatch, *TINY, "--sets", 2, "--first", first, "--keep", tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(coverage, "drawn", None)
    run(monkeypatch, *TINY, "--sets", 4, "--keep", tmp_path)
    assert capsys.readouterr().out == alone
    assert "static_isotropic, 4 sets" in alone


@pytest.mark.rest
def test_sets_of_another_kind_are_refused(tmp_path, monkeypatch):
    """They are not of one table."""
    run(monkeypatch, *TINY, "--sets", 1, "--keep", tmp_path)
    with pytest.raises(ValueError, match="Sets of one table are of one kind"):
        run(monkeypatch, *TINY, "--sets", 1, "--keep", tmp_path, "--noise", 0.01)


def test_intervals_that_never_hold_the_truth_are_wrong(capsys):
    """And those that do as often as they say are right."""
    chosen = Namespace(mode="static_isotropic")
    rng = np.random.default_rng(0)
    for scale, right in ((1.0, True), (2.0, False)):
        z = scale * rng.normal(size=(200, 2))
        sets = [
            coverage.Held(
                ["a", "b"],
                [(np.abs(row) < wide).tolist() for wide in (0.9945, 1.96)],
                row.tolist(),
                1.0,
                100.0,
                0,
            )
            for row in z
        ]
        assert coverage.table(sets, chosen) is right
    capsys.readouterr()
