"""`jitney.devices(benchmark=True)` and `configure(platform="fastest")`."""

import json
import logging

import jax
import numpy as np
import pytest

import jitney
from jitney._devices import configure, speeds
from jitney.errors import OptionError
from jitney.types import DeviceSpeed


@pytest.fixture
def quick(monkeypatch):
    """Arrays and matrices that take no time."""
    monkeypatch.setattr(speeds, "_ON_CPU", 2**16)
    monkeypatch.setattr(speeds, "_LEAST", 8)
    monkeypatch.setattr(speeds, "_LONG", 0.0)
    monkeypatch.setattr(speeds, "_CALLS", 3)


def test_each_kind_of_device_is_measured_once(quick):
    """Eight virtual devices are one kind; figures are positive, and data for JSON."""
    machine = jitney.devices(benchmark=True)
    (speed,) = machine.speeds
    assert speed.kind == jax.devices()[0].device_kind
    assert list(speed.products) == ["f64", "f32", "tf32", "bf16", "fp16"]
    assert min(speed.bandwidth, speed.latency, *speed.products.values()) > 0
    assert json.loads(json.dumps(machine.to_dict()))["speeds"][0]["name"] == speed.name
    assert "products of bfloat16" in str(machine)
    assert jitney.devices().speeds == ()


@pytest.mark.rest
def test_a_type_that_the_device_refuses_is_left_out(quick, monkeypatch):
    def multiply(x):
        if x.dtype == np.float16:
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: dot of f16")
        return x @ x

    monkeypatch.setattr(speeds, "_multiply", multiply)
    assert "fp16" not in jitney.devices(benchmark=True).speeds[0].products


@pytest.mark.rest
def test_a_device_that_fails_is_not_read_as_one_without_the_type(quick, monkeypatch):
    def multiply(x):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(speeds, "_multiply", multiply)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        jitney.devices(benchmark=True)


def test_the_fastest_device_becomes_the_default_one(monkeypatch, caplog):
    """By products of float32; the figures are in the log."""
    device = jax.devices()[0]
    slow = DeviceSpeed("slow", "a", 1e9, {"tf32": 1e9, "f64": 9e9}, 1e-6)
    fast = DeviceSpeed(str(device), "b", 1e9, {"tf32": 2e9}, 1e-6)
    monkeypatch.setattr(configure, "speeds", lambda: (slow, fast))
    before = jax.config.jax_default_device
    try:
        with caplog.at_level(logging.INFO, logger="jitney"):
            jitney.configure(platform="fastest")
        assert jax.config.jax_default_device is device
    finally:
        jax.config.update("jax_default_device", before)
    assert f"the default device is {device}" in caplog.text
    assert "slow  products of float32  1 GFLOP/s" in caplog.text


@pytest.mark.rest
def test_the_fastest_is_no_platform_among_others():
    with pytest.raises(OptionError, match="is not known"):
        jitney.configure(platform="fastest,cpu")
