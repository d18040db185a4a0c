"""Each test keeps its programs in a folder of its own."""

from pathlib import Path

import jax
import pytest

from jitney._serialized import request


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all tests of a run."""
    return tmp_path_factory.mktemp("lasting")


@pytest.fixture
def shared(lasting: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept by one test after the other."""
    if len(jax.devices()) != 1:
        pytest.skip("programs are kept on one device")
    monkeypatch.setattr(request, "own", lambda: lasting)
    return lasting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept during one test."""
    if len(jax.devices()) != 1:
        pytest.skip("programs are kept on one device")
    base = tmp_path / "kept"
    base.mkdir(mode=0o700)
    monkeypatch.setattr(request, "own", lambda: base)
    return base
