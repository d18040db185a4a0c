"""Run the tests of a mutation in a copy of the project, and judge it."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutations._mutation import Mutation

ROOT = Path(__file__).parents[2]
Verdict = Literal["killed", "survived", "broken"]

# All that a test of the core may read. Files that are made (`__pycache__`, environments) stay out.
_TAKES = (
    "src", "tests", "examples", "docs", "conda", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE",
    "SECURITY.md", "pyproject.toml", "conftest.py", "noxfile.py", "mkdocs.yml",
)  # fmt: skip
_WHOLE = ("tests", "examples")
_LONGEST = 900  # seconds of a run of a few tests; the whole core may take longer
_ALL_PASSED, _SOME_FAILED = 0, 1  # pytest.ExitCode
_FAILED = re.compile(r"\b(\d+) failed\b")


@dataclass(frozen=True)
class Judged:
    """What became of a mutation: the verdict, the seconds of CPU that its tests took, and what pytest printed."""

    verdict: Verdict
    seconds: float
    printed: str


def copied(to: Path) -> Path:
    """Copy what the tests need of the project into a folder."""
    for name in _TAKES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        elif source.exists():
            shutil.copy2(source, to / name)
    return to


def judged(mutation: Mutation, copy: Path, *, whole: bool = False) -> Judged:
    """Make a mutation in a copy, run its tests (or the `whole` core), and take it back."""
    with mutation.made_in(copy):
        return run(copy, _WHOLE if whole else mutation.tests, longest=None if whole else _LONGEST)


def run(copy: Path, tests: Sequence[str], *, longest: float | None = _LONGEST) -> Judged:
    """Run tests of the core in a copy until the first fails."""
    command = [sys.executable, "-m", "pytest", "--core", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    path = os.pathsep.join(filter(None, [str(copy / "src"), os.environ.get("PYTHONPATH")]))
    left_out = ("JITNEY_TEST_CACHE", "JITNEY_TESTS_TAKE", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")  # of the run that asks
    env = {name: value for name, value in os.environ.items() if name not in left_out} | {"PYTHONPATH": path}
    before = _cpu()
    try:
        done = subprocess.run(
            command, cwd=copy, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return Judged("broken", _cpu() - before, f"{printed}\nnot done in {longest} seconds")
    return Judged(_verdict(done.returncode, done.stdout), _cpu() - before, done.stdout)


def _verdict(status: int, printed: str) -> Verdict:
    """A failed test kills. What pytest could not collect, find or run is no judgement."""
    if status == _ALL_PASSED:
        return "survived"
    return "killed" if status == _SOME_FAILED and _FAILED.search(printed) else "broken"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
