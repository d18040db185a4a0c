"""What `python -m examples.trf` does, on one set; and the solver that it replaced."""

import re
import signal
import sys

import jax
import numpy as np
import pytest
import scipy.optimize
from rich.console import Console

from examples import __main__ as summary
from examples._summary import Watch, counted
from examples.trf import before
from examples.trf.__main__ import fits, for_scipy, main, until_interrupted
from examples.trf.nist import load


def demo(monkeypatch, *arguments):
    """Run the demo as from the command line, in this process, whose programs are compiled."""
    monkeypatch.setattr(sys, "argv", ["trf", *map(str, arguments)])
    return main()


@pytest.mark.rest
def test_demo_reports_draws_and_sums_up(tmp_path, monkeypatch, capsys):
    """The demo fits a set from both starts, reports its digits and leaves a picture; the summary
    has its times, and a page with that picture.
    """
    assert demo(monkeypatch, "--out", tmp_path / "trf", "Misra1a") == 0
    assert "2 of 2 fits" in capsys.readouterr().out
    assert (tmp_path / "trf" / "Misra1a.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(sys, "argv", ["examples", "--out", str(tmp_path)])
    monkeypatch.setattr(summary, "measure", lambda *_: None)
    assert summary.main() == 0
    out = capsys.readouterr().out
    assert re.search(r"a fit of Misra1a +[0-9.]+ +[0-9.]+", out)
    assert f"1 picture: {tmp_path / 'index.html'}" in out
    assert 'src="trf/Misra1a.png"' in (tmp_path / "index.html").read_text()


def test_a_summary_of_nothing_says_what_to_run(tmp_path, monkeypatch, capsys):
    """Before any job."""
    monkeypatch.setattr(sys, "argv", ["examples", "--out", str(tmp_path)])
    assert summary.main() == 1
    assert "run `python -m nox -s demo` first" in capsys.readouterr().out


def test_programs_and_those_from_the_cache_are_counted():
    """One that is compiled, and none when it is called again; counts of another watch begin
    anew.
    """
    watch, add = Watch(), jax.jit(lambda x: x + 12.5)
    add(np.ones(7))
    asked = counted()["programs"] - watch.before["programs"]
    assert asked == 1
    again = Watch()
    add(np.ones(7))
    assert counted()["programs"] == again.before["programs"]


def test_a_comparison_of_unequal_results_is_refused():
    """Only equal results are worth timing."""
    with pytest.raises(AssertionError):
        Watch().compare("sums", lambda: np.float64(1.0), lambda: np.float64(1.1))


def test_demo_names_what_is_wrong(tmp_path, monkeypatch, capsys):
    """An unknown set or a folder that cannot be made is an error of the command line, not a
    traceback.
    """
    (tmp_path / "file").touch()
    for arguments, words in (
        (["Misra1x"], "no such set"),
        (["--out", tmp_path / "file" / "fits"], "cannot make the folder"),
    ):
        with pytest.raises(SystemExit, match="2"):
            demo(monkeypatch, *arguments)
        assert words in capsys.readouterr().err


@pytest.mark.rest
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
