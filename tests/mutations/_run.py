"""Run the tests of a mutation in a copy of the project, and judge it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutations._mutation import Mutation

ROOT = Path(__file__).parents[2]
Verdict = Literal["killed", "survived", "broken"]

# All that a test of the core may read. Folders that tools make (`.git`, environments) stay out.
_COPIED = [
    *("src", "tests", "examples", "docs", "conda"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", "SECURITY.md"),
    *("pyproject.toml", "conftest.py", "noxfile.py", "mkdocs.yml"),
]
_CORE = ("tests", "examples")
_PYTEST = ("-m", "pytest", "--core", "-x", "-q", "-p", "no:cacheprovider", "--no-header")
_OF_THE_CALLER = ("JITNEY_TEST_CACHE", "JITNEY_TESTS_TAKE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
_LONGEST = 900  # seconds of a run of a few tests; the whole core may take longer
_ALL_PASSED, _SOME_FAILED = 0, 1  # pytest.ExitCode
_FAILED = re.compile(r"\b\d+ failed\b")


@dataclass(frozen=True)
class Judged:
    """What became of a mutation.

    Args:
        verdict: It is broken if pytest could not run its tests.
        seconds: Of CPU, that its tests took.
        printed: By pytest.
    """

    verdict: Verdict
    seconds: float
    printed: str


def copied(to: Path) -> Path:
    """Copy what the tests need of the project into a folder."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        elif source.exists():
            shutil.copy2(source, to / name)
    return to


def judged(mutation: Mutation, copy: Path, *, whole: bool = False) -> Judged:
    """Make a mutation in a copy, run its tests (or the `whole` core), and undo it."""
    with mutation.made_in(copy):
        return run(copy, _CORE) if whole else run(copy, mutation.tests, longest=_LONGEST)


def run(copy: Path, tests: Sequence[str], *, longest: float | None = None) -> Judged:
    """Run tests of the core in a copy until the first fails."""
    before = _cpu()
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *tests],
            cwd=copy,
            env=_environment(copy),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=longest,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Judged("broken", _cpu() - before, f"{tests} were not done in {longest} seconds")
    return Judged(_verdict(done.returncode, done.stdout), _cpu() - before, done.stdout)


def _environment(copy: Path) -> Mapping[str, str]:
    """The caller's variables, with the source of the copy in front."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    paths = [str(copy / "src"), os.environ.get("PYTHONPATH")]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _verdict(status: int, printed: str) -> Verdict:
    """A failed test kills. What pytest could not collect, find or run is no judgement."""
    if status == _ALL_PASSED:
        return "survived"
    return "killed" if status == _SOME_FAILED and _FAILED.search(printed) else "broken"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
