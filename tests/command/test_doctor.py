"""`doctor`: what it looks at, and its exit status."""

import json
import warnings

import jax
import numpy as np
import pytest

from jitney import JitneyWarning
from jitney._command.arguments import main
from jitney._command.machine import checks, doctor
from jitney._command.machine.checks import Check
from jitney._devices import speeds
from jitney._jax.compile_cache import entries as cache_entries
from jitney.types import CacheFacts


def test_all_that_is_looked_at_is_there_as_data(capsys, monkeypatch):
    """Each with a state; what is no ok has a line to paste."""
    monkeypatch.setattr(doctor.checks, "fusion", lambda: Check("XLA", "right"))
    assert main(["doctor", "--json", "--no-measure"]) == 0
    found = json.loads(capsys.readouterr().out)["checks"]
    assert [check["name"] for check in found[:7]] == [
        "versions",
        "devices",
        "threads",
        "memory",
        "cache",
        "float64",
        "XLA_FLAGS",
    ]
    assert all(check["state"] == "ok" or check["fix"] for check in found)
    assert found[0]["data"]["jax"] == jax.__version__
    assert (
        sum(device["platform"] == jax.default_backend() for device in found[1]["data"])
        == jax.local_device_count()
    )


@pytest.mark.core("fail-1", "warn-0")
@pytest.mark.parametrize(("state", "status"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_only_a_failure_has_a_status(state, status, capsys, monkeypatch):
    """The fix stands below, on a line of its own."""
    monkeypatch.setattr(
        doctor.checks, "fusion", lambda: Check("XLA", "some", state, "export XLA_FLAGS='--x= --y='")
    )
    assert main(["doctor", "--no-measure"]) == status
    assert "\n    export XLA_FLAGS='--x= --y='\n" in capsys.readouterr().out


def test_the_fault_of_fusion_is_told_by_its_number(monkeypatch):
    """What is computed is compared with NumPy in float64: another number fails, with the flags that
    were set before.
    """
    check = checks.fusion()
    assert (check.state == "ok") == bool(
        np.isclose(check.data["got"], check.data["want"], rtol=1e-3, atol=0)
    )
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")
    monkeypatch.setattr(checks.np, "mean", lambda _: 1e9)
    wrong = checks.fusion()
    assert (wrong.state, wrong.fix) == (
        "fail",
        "export XLA_FLAGS='--xla_mine=1 --xla_cpu_experimental_ynn_fusion_type='",
    )


def test_figures_are_measured(monkeypatch):
    """Of products, memory, a warm call and a compile; each is more than nothing."""
    monkeypatch.setattr(speeds, "_ON_CPU", 2**16)
    monkeypatch.setattr(speeds, "_LONG", 0.0)
    figures = checks.measurements()
    assert [check.name for check in figures] == [
        "compile",
        "matmul",
        "memory bandwidth",
        "dispatch",
    ]
    assert all(value > 0 for check in figures for value in check.data.values())


def test_damaged_entries_are_found_and_left(tmp_path):
    """Each is read whole; those that are sound are not named."""
    whole = cache_entries.CODEC.compress(b"whole" * 99)
    for name, data in (
        ("a-cache", whole),
        ("b-cache", whole[:-3]),
        ("c-cache", b""),
        ("d-atime", b""),
    ):
        (tmp_path / name).write_bytes(data)
    assert [path.name for path in cache_entries.damaged_entries(tmp_path)] == ["b-cache", "c-cache"]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_cache_that_cannot_be_trusted_is_a_warning_with_the_way_out(monkeypatch, tmp_path):
    """What the cache itself says of its folder, and the fix that it names; one that was turned off
    has its switches.
    """
    said = (
        f"the compilation cache: {tmp_path} can be written by other users\nIt is private.\nFix: set"
        " JITNEY_CACHE_DIR to a new folder."
    )
    off = CacheFacts(
        enabled=False,
        directory=None,
        size_limit=None,
        reason=f"{tmp_path} can be written by other users",
    )
    monkeypatch.setattr(doctor.cache, "facts", lambda: off)
    monkeypatch.setattr(
        doctor.cache, "ensure", lambda: warnings.warn(said, JitneyWarning, stacklevel=2)
    )
    check = doctor._cache()
    assert (check.state, check.fix) == ("warn", "set JITNEY_CACHE_DIR to a new folder.")
    assert "can be written by other users" in check.value
    monkeypatch.setattr(doctor.cache, "ensure", lambda: None)
    assert doctor._cache().fix == "unset JITNEY_CACHE JAX_ENABLE_COMPILATION_CACHE"
