"""When circles of objects are collected: `--collector`.

JAX catches errors while it traces; the frames of such an error are a circle that holds the arrays
of the call until Python collects it. When it does hangs on all that ran before, so a test that
counts what is alive collects first. Runs that never collect, and runs that do so all the time, find
those that do not.

What importing all files has left is never garbage, so it is not looked at again: half of the time
of collecting.
"""

from __future__ import annotations

import gc

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "never collect circles of objects, or after each few hundred objects"
    parser.getgroup("the tests of jitney").addoption(
        "--collector", choices=["off", "often"], help=text
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the collector."""
    match config.getoption("--collector"):
        case "off":
            gc.disable()
        case "often":
            gc.set_threshold(200, 5, 5)
        case _:
            pass


def pytest_collection_finish() -> None:
    """Leave out of every collection what is alive before the first test."""
    gc.collect()
    gc.freeze()
