"""One commit against another: pairs that take turns, a verdict for each figure, equal results
first.
"""

import json
from pathlib import Path

import pytest

import tests.perf.commits.__main__ as command
from tests.perf.commits import judged, pairs, saved

PAIRS = 8
RESULT = [1.0, 2.0]


class Side:
    """A process that was not started: every figure of the other commit is one second."""

    def __init__(self, src: Path):
        is_other = src.name == "other"
        self.seconds = 1.0 if is_other else float(src.name)
        self.imported = 1.0
        self.answers = {"seconds": self.seconds, "programs": 1, "functions": 9, "result": RESULT}
        self.answers |= {} if is_other else CHANGED

    def ask(self, command: str):
        return self.answers if command.startswith("first") else {"seconds": self.seconds}

    def close(self):
        pass


CHANGED: dict[str, object] = {}


@pytest.fixture
def outcomes(monkeypatch):
    """What comes of a commit whose calls take so many seconds, and which answers otherwise."""

    def measured(seconds, **changed):
        monkeypatch.setattr(pairs, "Worker", Side)
        monkeypatch.setattr("tests.test_commits.CHANGED", changed)
        return pairs.measure((Path("other"), Path(seconds)), ["warm"], PAIRS)

    return measured


def verdicts(outcomes):
    return {line.name: (line.text, line.is_worse) for line in judged.lines(outcomes)}


@pytest.mark.parametrize(
    ("seconds", "verdict", "is_worse"),
    [
        ("2", "slower by 2 to 2 times", True),
        ("0.5", "faster by 2 to 2 times", False),
        ("1.01", "no difference seen (within 1.0%)", False),
    ],
)
def test_each_figure_has_a_verdict(outcomes, seconds, verdict, is_worse):
    """The import took the same on both sides."""
    found = verdicts(outcomes(seconds))
    assert list(found) == ["import", "warm, first call", "warm, warm call"]
    assert found["warm, warm call"][0].endswith(f"now: {verdict}")
    assert found["warm, warm call"][1] == is_worse
    assert not found["import"][1]


def test_times_of_other_results_are_not_compared(outcomes):
    """That is worse than any time."""
    (text, is_worse) = verdicts(outcomes("0.5", result=[1.0, 2.1]))["warm"]
    assert text.startswith("results differ by 4.8e-02")
    assert is_worse
    assert verdicts(outcomes("0.5", result=[1.0]))["warm"][1]


def test_a_benchmark_that_fails_is_told(outcomes):
    """On this side that is a failure; an older commit may lack what it calls."""
    (text, is_worse) = verdicts(outcomes("1", error="TypeError: no"))["warm"]
    assert (text, is_worse) == ("not measured. this one: TypeError: no", True)


def test_one_program_more_is_worse_at_any_speed(outcomes):
    """Counts are exact, so no interval is needed."""
    found = verdicts(outcomes("1", programs=2, functions=8))
    assert found["warm, programs"] == ("1 before, 2 now: more", True)
    assert found["warm, functions"] == ("9 before, 8 now: fewer", False)


def test_the_figures_are_files_of_pytest_benchmark(outcomes, tmp_path):
    """With the machine, and the interval of the ratio in what is extra."""
    files = saved.save(tmp_path, outcomes("2"), ("abc", "def+"))
    against, this = (json.loads(file.read_text()) for file in files)
    assert this["machine_info"]["cpu"]["brand_raw"]
    assert this["commit_info"] == {"id": "def+", "dirty": True}
    assert [each["stats"]["median"] for each in this["benchmarks"]] == [1.0, 2.0, 2.0]
    assert {each["stats"]["median"] for each in against["benchmarks"]} == {1.0}
    assert this["benchmarks"][2]["extra_info"]["ratio_interval"] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--against", "no-such-commit"], "git knows no such commit here"),
        (["--against", "HEAD", "--pairs", "7"], "fewer than 8 have no interval"),
        (["--against", "HEAD", "cold"], "no benchmark is named cold; there are warm, model"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(capsys, words, told):
    """With the exit code of argparse."""
    with pytest.raises(SystemExit) as stopped:
        command.main(words)
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.rest
def test_every_benchmark_runs_on_this_source():
    """In a process of its own, which imports this source."""
    worker = pairs.Worker(pairs.ROOT / "src")
    for name in command.BENCHES:
        first = worker.ask(f"first {name}")
        assert first["programs"] >= 1
        assert worker.ask(f"lap {name}")["seconds"] > 0
    worker.close()
