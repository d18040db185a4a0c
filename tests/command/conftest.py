"""Changes are named however little they save: programs of tests are small, and the cache may hold
them.
"""

import pytest

from jitney._command import changes


@pytest.fixture(autouse=True)
def _however_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_LEAST", 0.0)
