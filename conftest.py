"""Set up every test, of the package and of the examples: no user folder is touched, and runs repeat."""

import os
import tempfile
from collections import Counter

import hypothesis
import pytest

pytest_plugins = ["pytester"]  # the tests of the pytest plugin run pytest

# Before JAX or jitney is imported anywhere. A worker of pytest-xdist inherits the controller's folder.
if "JITNEY_TEST_CACHE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="jitney-tests-")
    os.environ["JITNEY_TEST_CACHE"] = _folder.name
os.environ["JITNEY_CACHE_DIR"] = os.environ["JITNEY_TEST_CACHE"]
# JITNEY_VERIFY stays: the tests run under it too, each new program compared with the plain function.
for _name in ("CACHE", "DEBUG_NANS", "DISABLE", "THREADS", "MEMORY", "PLATFORM"):
    os.environ.pop(f"JITNEY_{_name}", None)
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
os.environ.setdefault("MPLBACKEND", "agg")

# `--hypothesis-profile=full` on the command line wins over the default below.
_compiles = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=25, deadline=None, suppress_health_check=_compiles)
hypothesis.settings.register_profile("full", max_examples=1000, deadline=None, suppress_health_check=_compiles, print_blob=True)
hypothesis.settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What both ends of the supported versions are tested with."""
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="of the cases of each test, the first and every N-th behind it")
    parser.addoption("--sweeps-one-in", type=int, default=1, metavar="N", help="the same of the tests that are marked as sweeps")


@pytest.hookimpl(trylast=True)  # behind `-m`, which may leave out the first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each test, with one of so many of its cases."""
    whole, sweeps = config.getoption("--one-in"), config.getoption("--sweeps-one-in")
    seen = Counter[str]()
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        every = max(whole, sweeps if item.get_closest_marker("sweep") else 1)
        (left if seen[test] % every else kept).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
