"""The main job from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow  # `nox -s demo` runs it too
def test_the_main_job_compares_and_draws(tmp_path):
    """Exit code 0 when all comparisons are within their limits, and a picture for each model."""
    command = [
        sys.executable,
        "-m",
        "examples.equilibrium",
        "--draws",
        "20",
        "--out",
        str(tmp_path),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert {path.stem for path in tmp_path.glob("*.png")} >= {
        "brock_mirman",
        "gali",
        "an_schorfheide",
        "dynare_basic_rbc",
        "sectors",
    }


@pytest.mark.rest
def test_draws_must_be_positive():
    """A usage error."""
    command = [sys.executable, "-m", "examples.equilibrium", "--draws", "0"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "take one draw at least" in run.stderr
