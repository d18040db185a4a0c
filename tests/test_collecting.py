"""Collecting the tests compiles nothing. Each worker of pytest-xdist collects all of them before it
runs the first.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN = """
import jax

COMPILED = []


def compiled(event, seconds, **about):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(about.get("fun_name", "a program"))


def pytest_collectreport(report):
    for name in COMPILED:
        print(f"compiled at collection: {report.nodeid}, {name}")
    COMPILED.clear()


jax.monitoring.register_event_duration_secs_listener(compiled)
"""


@pytest.mark.rest
def test_collecting_the_tests_compiles_nothing(tmp_path):
    """Arrays at the top of a file come from `tests/_arrays.py`; models are made when a test asks
    for them.
    """
    (tmp_path / "listens_to_compiles.py").write_text(PLUGIN)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))),
    }
    asked = (
        "-p",
        "listens_to_compiles",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--collect-only",
        "-q",
        "tests",
        "examples",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert [
        line for line in done.stdout.splitlines() if line.startswith("compiled at collection")
    ] == []
