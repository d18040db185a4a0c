"""What a change asks to be checked (`tests/changed.py`)."""

import subprocess

import pytest

from tests import changed


@pytest.mark.parametrize(
    ("file", "core"),
    [
        ("src/jitney/_stream/steps.py", {"tests/stream"}),
        ("src/jitney/_extent.py", {"tests/test_extent.py"}),
        ("tests/axes/_cases.py", {"tests/axes"}),
        ("examples/trf/_solver.py", {"examples/trf"}),
        ("README.md", {"tests/test_docs.py::test_code_of_a_page_runs[README.md]"}),
        ("noxfile.py", set(changed.ABOUT_ALL)),
        (".ci/run", set(changed.ABOUT_ALL)),
    ],
)
def test_a_file_asks_for_the_tests_of_its_folder(file, core):
    """The core's cases of them."""
    assert core <= changed.checks_of([file]).core


def test_a_test_file_that_changed_runs_whole():
    """With the cases that are not in the core."""
    checks = changed.checks_of(["tests/view/test_view.py", "src/jitney/_view/view.py"])
    assert checks.whole == {"tests/view/test_view.py"}


def test_who_imports_a_module_is_tested_and_typed_too():
    """Its tests lie in other folders."""
    checks = changed.checks_of(["src/jitney/_stream/steps.py"])
    assert "tests/analysis" in checks.core
    assert {"src/jitney/_stream/steps.py", "src/jitney/_analysis/strategy.py"} <= checks.types


def test_where_half_the_package_hangs_on_it_what_is_left_out_is_said():
    """The tests of its own folder run."""
    checks = changed.checks_of(["src/jitney/_errors.py"])
    assert "tests/test_errors.py" in checks.core
    assert "tests/stream" not in checks.core
    (sentence,) = checks.left_out
    assert "hang on jitney._errors; `nox -s tests` has them" in sentence


def test_a_file_that_is_gone_asks_for_no_path_that_is_not_there():
    """pytest would stop at it."""
    checks = changed.checks_of(
        ["tests/view/test_gone.py", "docs/gone.md", "src/jitney/_view/gone.py"]
    )
    assert checks.whole == set()
    assert all((changed.ROOT / path).exists() for path in checks.core | checks.types)


def test_files_that_changed_are_those_of_git(tmp_path, monkeypatch):
    """Committed since the base, changed in the working tree, and new."""
    monkeypatch.setattr(changed, "ROOT", tmp_path)

    def git(*command):
        who = ["-c", "user.name=n", "-c", "user.email=n@host.org"]
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    for name in ("kept", "committed", "edited"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    (tmp_path / "committed").write_text("2")
    git("commit", "--quiet", "-am", "two")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "new").write_text("2")
    assert changed.changed_files("HEAD~1") == ["committed", "edited", "new"]
