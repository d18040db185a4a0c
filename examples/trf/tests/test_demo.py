"""What `python -m examples.trf` does, on one set; and the solver that it replaced."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from rich.console import Console

from examples.trf import before
from examples.trf.__main__ import fits, for_scipy, until_interrupted
from examples.trf.nist import load

ROOT = Path(__file__).parents[3]


def test_demo_reports_and_draws(tmp_path):
    """The demo fits a set from both starts, reports its digits and leaves a picture."""
    command = [sys.executable, "-m", "examples.trf", "--out", str(tmp_path), "Misra1a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 fits" in done.stdout
    assert (tmp_path / "Misra1a.png").read_bytes().startswith(b"\x89PNG")


def test_demo_names_what_is_wrong(tmp_path):
    """An unknown set or a folder that cannot be made is an error of the command line, not a traceback."""
    (tmp_path / "file").touch()
    for arguments, words in ((["Misra1x"], "no such set"), (["--out", str(tmp_path / "file" / "fits")], "cannot make the folder")):
        command = [sys.executable, "-m", "examples.trf", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 2
        assert words in done.stderr


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
