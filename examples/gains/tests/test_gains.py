"""The end of the demo from figures that are given: the tables, the page, the command line. What is
measured is run by the demo.
"""

import dataclasses
import io
import re
import sys
from urllib.parse import unquote

import pytest
from rich.console import Console

from examples import __main__ as summary
from examples._page import machine, page
from examples._steps import steps
from examples._tables import baselines, figure, gains
from examples._timing import assert_equal
from examples.gains import NAMES, TAKES
from examples.gains._gain import Gain, Line, ratio

GAIN = Gain(
    "sizes",
    "30 sizes <each once>",
    "jax.jit",
    "masks",
    "pad",
    "values to 1e-3",
    (
        Line("first time, s", 8.0, 0.5, 1.0),
        Line("again, ms", 1.5, 3.0, 3.0),
        Line("peak, MiB", 0.0, 0.0, 0.0),
    ),
)
JOB = {
    "seconds": 12.3,
    "compiled": 4,
    "from the cache": 1,
    "compiling": 5.6,
    "peak MiB": None,
    "pairs": [{"what": "a fit", "jitney": 1e-3, "plain": 2e-3}],
}


def printed(what):
    """What a console of 100 columns shows."""
    console = Console(width=100, file=io.StringIO())
    console.print(what)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("other", "ours", "said"),
    [
        (8, 1, "8 x"),
        (1500, 1, "1,500 x"),
        (1.05, 1, "as much"),
        (0.95, 1, "as much"),
        (0.5, 1, "0.5 x"),
        (0, 1, "-"),
    ],
)
def test_a_ratio_is_said_as_it_is(other, ours, said):
    """More, as much, or less; and nothing where nothing was measured."""
    assert ratio(other, ours) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.01234, "0.0123"), (16.0, "16"), (1234.5, "1,234"), (0, "-")]
)
def test_a_figure_has_three_digits(value, said):
    """Whole numbers from a hundred on."""
    assert figure(value) == said


def test_a_line_without_a_gain_stays_in_the_table():
    """What is slower has its figure too."""
    said = printed(gains([GAIN]))
    assert re.search(r"first time, s +8 +0\.5 +1 +8 x +0\.5 x", said)
    assert re.search(r"again, ms +1\.5 +3 +3 +0\.5 x +as much", said)
    assert re.search(r"peak, MiB +- +- +- +- +-", said)


def test_each_row_says_its_baseline_and_its_command():
    """Who was compared, what was equal, how to measure it again."""
    (said,) = baselines([GAIN])
    for part in ("jax.jit", "masks", "values to 1e-3", "python -m examples --only sizes"):
        assert part in said


def test_a_gain_is_read_as_it_was_written(tmp_path):
    """The page has those of earlier runs, of this machine and these versions alone."""
    here = dataclasses.replace(GAIN, machine=machine())
    here.write(tmp_path / "gains")
    assert summary.kept(tmp_path) == [here]
    dataclasses.replace(GAIN, machine="another").write(tmp_path / "gains")
    assert summary.kept(tmp_path) == []


def test_links_and_pictures_of_the_page_exist(tmp_path):
    """All by relative paths, and none to another host."""
    measured = [Gain(name, *("x",) * 5, GAIN.lines) for name in NAMES]
    pictures = {"trf": [tmp_path / "trf" / "a picture.png"]}
    pictures["trf"][0].parent.mkdir()
    pictures["trf"][0].touch()
    text = page(tmp_path, measured, {"trf": JOB}, pictures)
    links = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert len(links) > len(NAMES)
    assert all((tmp_path / unquote(link)).is_file() for link in links)
    assert "//" not in "".join(links)
    assert "@import" not in text
    assert "url(" not in text


def test_the_page_has_figures_versions_and_dark_colours(tmp_path):
    """What the terminal shows, and what it ran on."""
    text = page(tmp_path, [GAIN], {"trf": JOB}, {})
    assert "<td>8 x</td><td>0.5 x</td>" in text
    assert "30 sizes &lt;each once&gt;" in text
    assert "<td>a fit</td><td>1</td><td>2</td>" in text
    assert re.search(r"jax \d+\.\d+.*Python 3\.\d+", text)
    assert "prefers-color-scheme: dark" in text


def test_gains_have_names_and_say_how_long_they_take(monkeypatch, capsys):
    """`--only` takes these alone."""
    assert tuple(TAKES) == NAMES
    monkeypatch.setattr(sys, "argv", ["examples", "--only", "speed"])
    with pytest.raises(SystemExit, match="2"):
        summary.main()
    said = capsys.readouterr().err
    assert all(name in said for name in NAMES)


def test_only_reports_what_it_measured(tmp_path, monkeypatch, capsys):
    """No job need have run; the last line is where the page is."""
    measured = []

    def measure(names, folder, console):
        measured.extend(names)
        dataclasses.replace(GAIN, machine=machine()).write(folder / "gains")

    monkeypatch.setattr(summary, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["examples", "--only", "sizes", "--out", str(tmp_path)])
    assert summary.main() == 0
    assert measured == ["sizes"]
    said = capsys.readouterr().out
    assert "What jitney did" not in said
    assert said.splitlines()[-1].endswith(str(tmp_path / "index.html"))
    assert (tmp_path / "index.html").is_file()


def test_unequal_results_are_named():
    """Before anything is timed."""
    with pytest.raises(AssertionError, match="by hand differs from today"):
        assert_equal({"today": [1.0], "by hand": [1.1]}, rtol=1e-3)


def test_each_step_is_a_line_where_there_is_no_terminal():
    """A file or a pipe shows what has begun, as it begins."""
    console = Console(file=io.StringIO(), force_terminal=False)
    with steps(console, 2) as begins:
        begins("one")
        assert console.file.getvalue() == "1 of 2: one\n"
        begins("two")
    assert console.file.getvalue().endswith("2 of 2: two\n")
