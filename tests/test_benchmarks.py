"""The page of benchmarks is made of data, row by row: of commands that fail, of runs that are
interrupted, of figures that a page lacks.
"""

import json
import shlex
from pathlib import Path

import pytest

from tests.perf import page
from tests.perf._rows import ROWS, Row

OLD = {
    "figure": "7 ms",
    "beside": "9 by hand",
    "command": "once",
    "jax": "0.1",
    "machine": "two cores",
    "day": "2020-02-03",
}
RECORD = """
import json, os
assert os.environ["LETTER"] == "x"
open(os.environ["JITNEY_BENCH_FIGURES"], "w").write(json.dumps({"ms": MS, "hand": {"all of it": 8.04}}))
"""


def row(name: str, code: str, **more: bool) -> Row:
    """A benchmark of some Python."""
    command = f"LETTER=x python -c {shlex.quote(code)}"
    return Row(
        name,
        f"docs/{name}.md",
        f"what {name} takes",
        command,
        "{ms:.1f} ms",
        "{hand[all of it]:.1f} by hand",
        **more,
    )


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project with three benchmarks, of which one was measured before."""
    rows = tuple(row(name, RECORD.replace("MS", str(i))) for i, name in enumerate("abc"))
    monkeypatch.setattr(page, "ROWS", rows)
    (tmp_path / "docs").mkdir()
    (tmp_path / page.DATA).write_text(json.dumps({"a": OLD}))
    (tmp_path / page.PAGE).write_text(f"Before\n\n{page.BEGIN}{page.END}\n\nBehind\n")
    for each in rows:
        (tmp_path / each.page).write_text("8.0 by hand, and 10.0 ms")
    return tmp_path


def entries(root: Path) -> dict[str, page.Entry]:
    return json.loads((root / page.DATA).read_text())


def with_rows(monkeypatch: pytest.MonkeyPatch, **codes: str) -> None:
    monkeypatch.setattr(
        page,
        "ROWS",
        tuple(
            row(each.name, codes[each.name]) if each.name in codes else each for each in page.ROWS
        ),
    )


def test_rows_are_measured_and_written(root):
    """With the decimals of their cells, the day, and what measured them; text around the table
    stays.
    """
    assert page.main([], root) == 0
    found = entries(root)
    assert [each["figure"] for each in found.values()] == ["0.0 ms", "1.0 ms", "2.0 ms"]
    assert {each["beside"] for each in found.values()} == {"8.0 by hand"}
    assert {"jax", "python", "machine", "day", "seconds"} <= set(found["b"])
    text = (root / page.PAGE).read_text()
    assert text == f"Before\n\n{page.BEGIN}{page.table(found)}{page.END}\n\nBehind\n"


def test_a_named_row_is_measured_alone(root):
    """The others stay as they are."""
    assert page.main(["b"], root) == 0
    assert entries(root) == {"a": OLD, "b": entries(root)["b"]}


def test_rows_of_one_command_are_measured_together(root, monkeypatch):
    """It runs once."""
    code = f"open('ran', 'a').write('x')\n{RECORD.replace('MS', '1')}"
    with_rows(monkeypatch, a=code, b=code)
    assert page.main([], root) == 0
    assert (root / "ran").read_text() == "x"


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(3)",
        "pass",
        RECORD.replace("MS", "'text'"),
        RECORD.replace('"ms": MS', '"s": 1'),
    ],
)
def test_a_command_that_fails_keeps_the_old_row(root, monkeypatch, capsys, code):
    """It ends with an error, or records nothing, or not what the row is made of. The rest is
    measured, and the next run tries it again.
    """
    with_rows(monkeypatch, a=code)
    assert page.main([], root) == 1
    assert entries(root)["a"] == OLD
    assert list(entries(root)) == ["a", "b", "c"]
    assert "failed, its rows are as they were: a: " in capsys.readouterr().out
    with_rows(monkeypatch, a=RECORD.replace("MS", "4"), b="raise SystemExit(1)")
    assert page.main([], root) == 0
    assert entries(root)["a"]["figure"] == "4.0 ms"


def test_several_runs_have_a_range(root, monkeypatch):
    """Their median is the figure, and the range of it stands beside it."""
    count = "import pathlib\npathlib.Path('ran').open('a').write('x')\n"
    ms = RECORD.replace("MS", "len(pathlib.Path('ran').read_text()) ** 2 / 2")
    with_rows(monkeypatch, b=count + ms)
    assert page.main(["b", "--runs", "3"], root) == 0
    found = entries(root)["b"]
    assert (found["figure"], found["range"], found["runs"]) == ("2.0 ms", ["0.5 ms", "4.5 ms"], 3)
    assert "| 2.0 ms (0.5 ms to 4.5 ms in 3 runs) | 8.0 by hand |" in page.table(entries(root))


def test_an_interrupted_run_goes_on(root, monkeypatch):
    """With the row that it was at; a run after that begins with the first."""
    ran: list[str] = []
    measured = page.measured

    def interrupted(row, root):
        ran.append(row.name)
        if ran == ["a", "b"]:
            raise KeyboardInterrupt
        return measured(row, root)

    monkeypatch.setattr(page, "measured", interrupted)
    assert page.main([], root) == 130
    assert entries(root)["a"]["figure"] == "0.0 ms"
    assert page.table(entries(root)) in (root / page.PAGE).read_text()
    assert page.main([], root) == 0
    assert page.main([], root) == 0
    assert ran == ["a", "b", "b", "c", "a", "b", "c"]


def test_an_interrupted_run_begins_with_the_first_row_where_asked(root, monkeypatch):
    """By `--anew`."""
    (root / page.DONE).parent.mkdir()
    (root / page.DONE).write_text("a\nb\n")
    assert page.main(["--anew"], root) == 0
    assert entries(root)["a"] != OLD


def test_the_longest_rows_are_measured_where_asked(root, monkeypatch):
    """With `--full`, or by name."""
    monkeypatch.setattr(
        page, "ROWS", (*page.ROWS[:2], row("c", RECORD.replace("MS", "1"), long=True))
    )
    page.main([], root)
    assert "c" not in entries(root)
    page.main(["--full"], root)
    assert "c" in entries(root)


def test_numbers_that_the_page_of_a_row_lacks_are_told(root, capsys):
    """Whole ones: 10.0 is not 0.0."""
    page.main(["a"], root)
    assert (
        "docs/a.md has no 0.0 of row a: 0.0 ms; 8.0 by hand. Write it there."
        in capsys.readouterr().out
    )


def test_the_page_is_a_function_of_the_data(root):
    """Day, month and year; the load where it is known; a row without data says so."""
    text = page.table({"a": OLD, "b": {**OLD, "load": 1.5}})
    assert (
        "| [what a takes](a.md) | 7 ms | 9 by hand | 0.1 | 2020-02-03 | two cores | `once` |"
        in text
    )
    assert "| two cores, load 1.5 |" in text
    assert "| [what c takes](c.md) | not measured yet |" in text


def test_a_name_that_no_row_has_is_refused(root, capsys):
    """Before anything runs."""
    with pytest.raises(SystemExit):
        page.main(["a", "z"], root)
    assert "no rows of these names: z" in capsys.readouterr().err


def test_the_commands_of_the_rows_are_there():
    """A module of the repository, and the page that its figure stands on."""
    assert [each.name for each in ROWS if not is_there(each)] == []


def is_there(row):
    words = shlex.split(row.command)
    module = Path(words[words.index("-m") + 1].replace(".", "/"))
    has_module = (page.ROOT / f"{module}.py").is_file() or (
        page.ROOT / module / "__main__.py"
    ).is_file()
    return has_module and (page.ROOT / row.page).is_file()


def test_names_are_of_one_row_each():
    """They are what the data are kept by."""
    assert len({each.name for each in ROWS}) == len(ROWS)
