"""A machine without a clock."""

from collections.abc import Iterator

import pytest

from tests._machine import Machine, run_by


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Every run of a call takes the seconds of this machine."""
    it = Machine()
    with run_by(it):
        yield it
