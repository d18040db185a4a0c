"""A machine without a clock."""

from collections.abc import Iterator

import pytest

from jitney._program.auto import choice_record
from tests._machine import Machine, run_by


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Every run of a call takes the seconds of this machine."""
    it = Machine()
    with run_by(it):
        yield it


@pytest.fixture(autouse=True)
def _no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice is found by a later test; what XLA has compiled is."""
    monkeypatch.setattr(choice_record, "folder", lambda _: None)
