"""Plugin for pytest: the fixture `compiles`, the marker `budget`, and the option `--jitney-report`.

It stands beside the package and not inside it, since pytest loads it wherever jitney is installed,
and every module of jitney imports JAX. Nothing of jitney is imported until a test uses the fixture
or the marker, or the report is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import jitney

_LIMITS = ("compiles", "traces", "temp_mb")
_MARKER = (
    "budget(compiles=..., traces=..., temp_mb=...): what the test itself, without its fixtures, may"
    " compile and trace at most, and how many megabytes of temporaries a program may take that it"
    " compiles (jitney)"
)
# Key in the properties of a test's report, which workers of pytest-xdist send to the main process.
_REPORT = "jitney"
_SHOWN = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--jitney-report`."""
    group = parser.getgroup("jitney")
    group.addoption(
        "--jitney-report",
        action="store_true",
        help="print the seconds that each test traces, lowers and compiles",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker, and register the report if it is asked for."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--jitney-report"):
        config.pluginmanager.register(_Report(), "jitney-report")


@pytest.fixture
def compiles(request: pytest.FixtureRequest) -> Generator[jitney.types.Watch]:
    """Record of JAX's work from here to the end of the test, as of `jitney.watch`.

    `compiles.traces`, `compiles.lowers`, `compiles.compiles` are counts, and `compiles.work` has
    the functions and lines. In a test that has the fixture `benchmark` of pytest-benchmark too, its
    file has the counts in `extra_info`, under "jitney".
    """
    import jitney

    # Before the record begins, so that it is still there when the record ends.
    benchmark: Any = (
        request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    )
    with jitney.watch() as seen:
        yield seen
    if benchmark is not None:
        counts = seen.to_dict()
        del counts["work"]
        benchmark.extra_info["jitney"] = counts


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose budget is not valid."""
    for marker in item.iter_markers("budget"):
        _check(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the test, and fail it if it exceeds its budget."""
    # `iter_markers` begins with the closest marker, which is to win over those of class and module.
    limits = {
        name: value
        for marker in reversed(list(item.iter_markers("budget")))
        for name, value in marker.kwargs.items()
    }
    if not limits:
        return (yield)
    import jitney
    from jitney.testing import Temporaries

    with (
        jitney.watch() as seen,
        Temporaries() if "temp_mb" in limits else contextlib.nullcontext() as temporaries,
    ):
        result = yield
    over = _over(limits, seen, temporaries)
    if over:
        rule = (
            "A program that the persistent cache holds counts as compiled, and what is traced"
            " inside of another is part of it."
        )
        fix = (
            "what is compiled for every size or static value shares programs under `pad=`; or allow"
            " more."
        )
        pytest.fail(
            f"{item.nodeid}: over its budget: {'; '.join(over)}.\n{rule}\nFix: {fix}\n{seen}",
            pytrace=False,
        )
    return result


def _over(limits: dict[str, float], seen: jitney.types.Watch, temporaries: Any) -> list[str]:
    """Return the limits that were exceeded, in words."""
    # Programs from the persistent cache count too: a budget must not depend on its contents.
    counts = {"compiles": seen.compiles + seen.cache_hits, "traces": seen.traces}
    over = [
        f"{count} {name}, where {limits[name]} are allowed"
        for name, count in counts.items()
        if count > limits.get(name, count)
    ]
    if temporaries is not None and temporaries.largest is not None:
        took, place = (
            temporaries.largest.temp_bytes / 1e6,
            f"{temporaries.largest.name} at {temporaries.largest.place}",
        )
        if took > limits["temp_mb"]:
            over.append(
                f"{took:.4g} MB of temporaries in {place}, where {limits['temp_mb']} are allowed"
            )
    return over


def _check(marker: pytest.Mark) -> None:
    """Fail the test if a limit cannot be counted."""
    known = ", ".join(f"`{name}`" for name in _LIMITS)
    if "transfers" in marker.kwargs:
        pytest.fail(
            "@pytest.mark.budget: `transfers` cannot be counted.\nJAX reports no transfers between"
            " host and device, and its guard is silent on CPUs: a budget that never fails would say"
            " what nobody has seen.\nFix: remove it; on accelerators"
            ' `jax.transfer_guard("disallow")` forbids them.',
            pytrace=False,
        )

    unknown = [name for name in marker.kwargs if name not in _LIMITS]
    if marker.args or unknown or not marker.kwargs:
        what = f"`{unknown[0]}` is not known" if unknown else "it takes limits by name"
        pytest.fail(
            f"@pytest.mark.budget: {what}.\nIts limits are {known}.\nFix: write"
            " `@pytest.mark.budget(compiles=1)`.",
            pytrace=False,
        )

    for name, value in marker.kwargs.items():
        # `not >=` rejects NaN too.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            pytest.fail(
                f"@pytest.mark.budget: {name}={value!r} is not a limit.\nIt is a number, 0 or"
                " more.\nFix: correct it.",
                pytrace=False,
            )


class _Report:
    """Seconds of compiling by test, for `--jitney-report`."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[float, int, int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch a test, with its fixtures."""
        import jitney

        with jitney.watch() as seen:
            item.stash[_WATCH] = seen
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the figures so far to the report of each phase."""
        report = yield
        seen = item.stash[_WATCH]
        report.user_properties.append((_REPORT, (seen.seconds, seen.compiles, seen.cache_hits)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the figures of a phase; the last phase of a test overwrites the others."""
        properties: list[tuple[str, Any]] = report.user_properties
        for name, row in properties:
            if name == _REPORT:
                seconds, compiled, cached = row
                self.rows[report.nodeid] = float(seconds), int(compiled), int(cached)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        rows = sorted(((row, name) for name, row in self.rows.items() if any(row)), reverse=True)
        terminalreporter.section("seconds of tracing, lowering and compiling, by test (jitney)")
        terminalreporter.write_line(f"{'seconds':>9} {'compiled':>9} {'cached':>9}")
        for (seconds, compiled, cached), name in rows[:_SHOWN]:
            terminalreporter.write_line(f"{seconds:9.2f} {compiled:9} {cached:9}  {name}")
        total = [sum(row[i] for row, _ in rows) for i in range(3)]
        more = f" ({len(rows) - _SHOWN} of them not shown)" if len(rows) > _SHOWN else ""
        terminalreporter.write_line(
            f"{total[0]:9.2f} {total[1]:9} {total[2]:9}  in {len(rows)} tests{more}"
        )


_WATCH = pytest.StashKey["jitney.types.Watch"]()
