"""What `python -m examples.trf` does, on one set; and the solver that it replaced."""

import signal
import sys

import numpy as np
import pytest
import scipy.optimize
from rich.console import Console

from examples.trf import before
from examples.trf.__main__ import fits, for_scipy, main, until_interrupted
from examples.trf.nist import load


def demo(monkeypatch, *arguments):
    """Run the demo as from the command line, in this process, whose programs are compiled."""
    monkeypatch.setattr(sys, "argv", ["trf", *map(str, arguments)])
    return main()


def test_demo_reports_and_draws(tmp_path, monkeypatch, capsys):
    """The demo fits a set from both starts, reports its digits and leaves a picture."""
    assert demo(monkeypatch, "--out", tmp_path, "Misra1a") == 0
    assert "2 of 2 fits" in capsys.readouterr().out
    assert (tmp_path / "Misra1a.png").read_bytes().startswith(b"\x89PNG")


def test_demo_names_what_is_wrong(tmp_path, monkeypatch, capsys):
    """An unknown set or a folder that cannot be made is an error of the command line, not a traceback."""
    (tmp_path / "file").touch()
    for arguments, words in ((["Misra1x"], "no such set"), (["--out", tmp_path / "file" / "fits"], "cannot make the folder")):
        with pytest.raises(SystemExit, match="2"):
            demo(monkeypatch, *arguments)
        assert words in capsys.readouterr().err


def test_demo_stops_when_interrupted(tmp_path):
    """Ctrl-C ends the demo after the fit at hand; a second one ends it at once."""
    with until_interrupted() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        rows = list(fits(["Misra1a", "MGH17"], tmp_path, Console(quiet=True), interrupted))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [row.reference.name for row in rows] == ["Misra1a"]


@pytest.mark.parametrize("name", ["Misra1a", "MGH09", "Kirby2"])
def test_loop_before_is_scipys(name):
    """The NumPy loop that the README starts from takes SciPy's steps."""
    reference = load(name)
    fun, jac = for_scipy(reference)
    mine = before.least_squares(fun, reference.starts[0], jac)
    theirs = scipy.optimize.least_squares(fun, reference.starts[0], jac=jac)
    assert (mine.nfev, mine.status) == (theirs.nfev, theirs.status)
    np.testing.assert_allclose(mine.cost, theirs.cost, rtol=1e-9)
