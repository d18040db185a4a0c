"""Skip where there are not eight devices."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _eight_devices():
    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices: nox -s tests-cpu8")
