"""Skip where there are not eight devices."""

import jax
import pytest


def pytest_collection_modifyitems(items):
    mine = [item for item in items if "tests/devices" in item.path.as_posix()]
    if mine and len(jax.devices()) < 8:
        for item in mine:
            item.add_marker(pytest.mark.skip(reason="needs 8 devices: nox -s tests-cpu8"))
