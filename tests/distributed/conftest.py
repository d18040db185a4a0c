"""Skip where real processes are not asked for: each costs seconds."""

import os

import pytest


def pytest_collection_modifyitems(config, items):
    if "JITNEY_TEST_PROCESSES" not in os.environ:
        for item in items:
            if "tests/distributed" in item.path.as_posix():
                item.add_marker(
                    pytest.mark.skip(reason="needs processes: nox -s tests-distributed")
                )
