"""How XLA compiles what the tests run: in full, as users have it, or quickly.

A pytest plugin that `conftest.py` names.

Most programs of the tests run once, and XLA spends more on their code than they take. What measures
time or memory, or reads compiled programs, is marked `real_xla`, and so that nothing is seen under
quick compiles alone a share of all files is compiled in full, another one in each session. A file
has one way, since its tests share programs.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import jax
import pytest

from tests._selection import part_of

_DEFAULT = "jax_disable_most_optimizations"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the sessions."""
    text = (
        "compile quickly, but for files that are marked `real_xla` and the K-th of N parts of the"
        " others"
    )
    parser.getgroup("the tests of jitney").addoption("--quick-xla", metavar="K/N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Read the option while a mistake in it is still a sentence."""
    part_of(config.getoption("--quick-xla") or "1/1")


@pytest.hookimpl(tryfirst=True)  # before fixtures compile
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the compiler's flags for the file of this test."""
    jax.config.update(_DEFAULT, is_quick(item))


def compiles_quickly() -> bool:
    """The flag that is set now. What is compiled once for several files keeps a program for each
    value: JAX's caches do not look at it.
    """
    return bool(jax.config.read(_DEFAULT))


def is_quick(item: pytest.Item) -> bool:
    """The choice for the file of `item`; the same whatever else runs."""
    asked = item.config.getoption("--quick-xla")
    if asked is None:
        return False
    part, parts = part_of(asked)
    file = Path(item.nodeid.partition("::")[0]).as_posix()
    in_full = zlib.crc32(file.encode()) % parts == part - 1
    return not in_full and item.get_closest_marker("real_xla") is None
