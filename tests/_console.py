"""What a run of the tests prints: how long it takes, skips, and how to run a failure alone.

A pytest plugin that `conftest.py` names.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter

import pytest

# Of the options and variables of a run, those that may decide a test: a failure is run again with
# them.
_OPTIONS = ("--quick-xla", "--shuffle")
_VARIABLES = ("JITNEY_VERIFY", "JITNEY_TEST_PROCESSES", "JAX_PLATFORMS", "XLA_FLAGS")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say before anything is imported how long it takes."""
    about = os.environ.get("JITNEY_TESTS_TAKE")
    return (
        [f"{about}; the first results come when the tests are collected, in a quarter of a minute"]
        if about
        else []
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skips by their reason, and a command for each failure."""
    stats, line = terminalreporter.stats, terminalreporter.write_line
    reasons = Counter(_reason(report) for report in stats.get("skipped", ()))
    if reasons:
        line(
            "skipped: " + "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        )
    failures = dict.fromkeys(
        report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())
    )
    if failures:
        terminalreporter.section("to run one alone")
        for nodeid in failures:
            line(command(terminalreporter.config, nodeid))


def _reason(report: pytest.TestReport) -> str:
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")


def command(config: pytest.Config, nodeid: str) -> str:
    """Run a test as this run does, in one line."""
    options = [
        f"{name}={value}"
        for name in _OPTIONS
        if (value := config.getoption(name, None)) is not None
    ]
    words = [*options, nodeid]
    if session := os.environ.get("JITNEY_NOX_SESSION"):
        return shlex.join(["python", "-m", "nox", "-s", session, "--", *words])
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return shlex.join([*variables, "python", "-m", "pytest", *words])
