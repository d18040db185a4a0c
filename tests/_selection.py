"""Which cases a run takes: the core, all but the core, a part of these, in a random order.

A pytest plugin that `conftest.py` names.

The core is what one waits for: each behaviour once. A test belongs to it with all its cases, unless
it (or its file) is marked `rest` or `sweep`. Of a test with many cases those belong to it that
`@pytest.mark.core("one id", "ids that begin so*")` names, or that are marked `core` themselves.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable

import pytest

CORE = pytest.mark.core


def params(cases: Iterable[object], *core: str) -> list[object]:
    """`cases` for `parametrize`, each with its `name` as its id; those in the core are named, or
    say `core` themselves.
    """
    cases = list(cases)
    unknown = set(core) - {case.name for case in cases}
    assert not unknown, f"no case is named {unknown}"
    return [
        pytest.param(
            case,
            id=case.name,
            marks=[CORE] if case.name in core or getattr(case, "core", False) else [],
        )
        for case in cases
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what the sessions of `noxfile.py` ask for."""
    group = parser.getgroup("the tests of jitney")
    group.addoption("--core", action="store_true", help="the core alone: each behaviour once")
    group.addoption("--rest", action="store_true", help="all but the core")
    group.addoption(
        "--part",
        type=part_of,
        metavar="K/N",
        help="of the cases, the K-th of N parts, by a checksum of their ids",
    )
    group.addoption(
        "--sweeps",
        type=part_of,
        metavar="K/N",
        help="the same, of those that are marked `sweep` alone",
    )
    group.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run in a random order; files and their tests are mixed",
    )


def part_of(text: str) -> tuple[int, int]:
    """`1/4`, the first part of four, as numbers."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"{text} is not a part, as 1/4 is, the first of four")
    return int(part), int(parts)


@pytest.hookimpl(trylast=True)  # behind `-m` and `-k`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what the options ask for, and mix it."""
    core, rest, part, sweeps = (
        config.getoption(name) for name in ("--core", "--rest", "--part", "--sweeps")
    )
    named = {_test(item) for item in items if item.get_closest_marker("core")}
    if core and not config.option.keyword and not any("[" in path for path in config.args):
        _unknown(items)
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        in_core = _in_core(item, named)
        is_left = (
            (core and not in_core)
            or (rest and in_core)
            or not _falls_into(part, item)
            or (item.get_closest_marker("sweep") is not None and not _falls_into(sweeps, item))
        )
        (left if is_left else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    if config.getoption("--shuffle") is not None:
        random.Random(config.getoption("--shuffle")).shuffle(items)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _in_core(item: pytest.Item, named: set[str]) -> bool:
    if item.get_closest_marker("rest") or item.get_closest_marker("sweep"):
        return False
    return _test(item) not in named or any(_names(mark, item) for mark in item.iter_markers("core"))


def _names(mark: pytest.Mark, item: pytest.Item) -> bool:
    """A mark without ids stands at the case itself."""
    return not mark.args or any(_fits(name, item) for name in mark.args)


def _fits(name: str, item: pytest.Item) -> bool:
    pattern = re.escape(name).replace(r"\*", ".*")
    return re.fullmatch(pattern, _case(item), flags=re.DOTALL) is not None


def _case(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[2].removesuffix("]")


def _unknown(items: list[pytest.Item]) -> None:
    """A name that fits no case is a mistake: the case that it stood for is gone from the core."""
    tests = dict[str, list[pytest.Item]]()
    for item in items:
        if item.get_closest_marker("core"):
            tests.setdefault(_test(item), []).append(item)
    for test, cases in tests.items():
        names = {name for item in cases for mark in item.iter_markers("core") for name in mark.args}
        if lost := [name for name in sorted(names) if not any(_fits(name, item) for item in cases)]:
            raise pytest.UsageError(
                f"{test}: no case has the id {', '.join(map(repr, lost))} that `core` names"
            )


def _falls_into(part: tuple[int, int] | None, item: pytest.Item) -> bool:
    return part is None or zlib.crc32(item.nodeid.encode()) % part[1] == part[0] - 1
