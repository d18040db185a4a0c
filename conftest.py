"""Set up every test, of the package and of the examples: no user folder is touched, and runs
repeat.
"""

import os
import sys
import tempfile
import weakref
from typing import Any

import hypothesis
import numpy as np
import pytest

# The tests of the pytest plugin run pytest; the others are of these tests: which run, how XLA
# compiles for them, when Python
# collects circles of objects, what they print.
pytest_plugins = [
    "pytester",
    "tests._selection",
    "tests._compiles",
    "tests._garbage",
    "tests._console",
]

# Before JAX or jitney is imported anywhere. A worker of pytest-xdist inherits the controller's
# folder.
if "JITNEY_TEST_CACHE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="jitney-tests-")
    os.environ["JITNEY_TEST_CACHE"] = _folder.name
os.environ["JITNEY_CACHE_DIR"] = os.environ["JITNEY_TEST_CACHE"]
# JITNEY_VERIFY stays: the tests run under it too, each new program compared with the plain
# function.
for _name in ("CACHE", "DEBUG_NANS", "DISABLE", "THREADS", "MEMORY", "PLATFORM"):
    os.environ.pop(f"JITNEY_{_name}", None)
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
os.environ.setdefault("MPLBACKEND", "agg")

# By default a property is tried on its table of examples (`@example`) alone, so that a run depends
# on
# the commit and on nothing else: what hypothesis draws hangs, even when it is derandomised, on the
# constants in all modules that are imported. `--hypothesis-profile=full` draws.
_compiles = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
_ALWAYS = {"deadline": None, "suppress_health_check": _compiles, "print_blob": True}
hypothesis.settings.register_profile(
    "table", phases=(hypothesis.Phase.explicit,), database=None, **_ALWAYS
)
hypothesis.settings.register_profile("full", max_examples=1000, **_ALWAYS)
hypothesis.settings.load_profile("table")

_GENERATORS = list[tuple[np.random.Generator, Any]]()
"""Each generator of random numbers that a module of the tests or examples holds, and its state
behind the module's import."""


def pytest_collection_finish() -> None:
    """Note the generators of all modules: a test may draw from that of another module, by a
    function that it imports.
    """
    held = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.startswith(("tests.", "examples."))
        for value in vars(module).values()
        if isinstance(value, np.random.Generator)
    }
    _GENERATORS[:] = [(value, value.bit_generator.state) for value in held.values()]


_DECORATED = weakref.WeakSet[Any]()
"""What has been decorated so far and lives, in modules most of all."""


@pytest.hookimpl(tryfirst=True)  # before fixtures draw
def pytest_runtest_setup() -> None:
    """Let no test hang on which ran before: the modules' generators are wound back, and what is
    decorated is decorated anew.
    """
    programs = sys.modules.get("jitney._program.registry")
    # equal functions share a program, with its counts and its warnings, which come once
    if programs is not None:
        variety = sys.modules["jitney._diagnosis.static_variety"].Variety
        _DECORATED.update(programs.REGISTRY.cores())
        programs.REGISTRY.clear()
        for core in _DECORATED:  # functions of a module are decorated when it is imported
            core.counters.warned.clear()
            core._variety = variety(core.where, core.positions)
    for generator, state in _GENERATORS:
        generator.bit_generator.state = state
