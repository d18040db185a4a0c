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
    """What runs where only a part of all cases does: at both ends of the supported versions, and in the two halves of the gate."""
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="of the cases of each test, the first and every N-th behind it")
    parser.addoption("--sweeps-one-in", type=int, default=1, metavar="N", help="the same of the tests that are marked as sweeps")
    parser.addoption("--but-one-in", type=int, default=0, metavar="N", help="what `--one-in=N` leaves, and all sweeps")
    parser.addoption("--whole", action="append", default=[], metavar="PATH", help="with --but-one-in, all cases of what lies there")


@pytest.hookimpl(trylast=True)  # behind `-m`, which may leave out the first
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each test, with one of so many of its cases; or the others."""
    one_in, sweeps, but = (config.getoption(name) for name in ("--one-in", "--sweeps-one-in", "--but-one-in"))
    whole = [config.rootpath / path for path in config.getoption("--whole")]
    seen = Counter[str]()
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        is_sweep = item.get_closest_marker("sweep") is not None
        is_first = seen[test] % max(one_in, sweeps if is_sweep else 1) == 0
        is_others = but > 0 and not is_sweep and seen[test] % but == 0 and not any(map(item.path.is_relative_to, whole))
        (kept if is_first and not is_others else left).append(item)
        seen[test] += 1
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
