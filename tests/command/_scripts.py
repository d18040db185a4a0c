"""Programs that are run as they are, and what plain Python makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import pytest

jax_explains = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 1),
    reason="jax 0.10.0 can fail in its own explanations: they are off",
)
LAUNCH = Path(__file__).parents[2] / "src" / "jitney" / "_command" / "launch.py"


@dataclass(frozen=True)
class Done:
    """How a process ended."""

    status: int
    out: str
    err: str


def plainly(folder: Path, *typed: str) -> Done:
    """`python ...`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    env = {**clean, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, *typed], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def watched(folder: Path, *typed: str, report: str = "", memory: str = "") -> Done:
    """What `python -m jitney run ...` becomes, which a test of its own shows."""
    as_module = typed[0] == "-m"
    return plainly(
        folder,
        str(LAUNCH),
        report,
        memory,
        "module" if as_module else "file",
        *typed[as_module:],
    )
