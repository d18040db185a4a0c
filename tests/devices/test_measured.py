"""`jitney.measure(devices=)`: one function on several devices, with equal results first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney.errors import VerificationError

X = np.linspace(0.0, 1.0, 8, dtype=np.float32)
QUICK = {"seconds": 0.02, "rounds": 8}


def test_a_function_is_called_on_each_device():
    """Its arguments are there, and so is what it makes itself."""
    seen = {}

    def f(x):
        y = x + jnp.ones(8)
        seen[str(x.devices())] = x.devices() == y.devices()
        return y

    found = jitney.measure(f, X, devices=["cpu:0", jax.devices()[1]], **QUICK)
    assert list(seen.values()) == [True, True]
    assert [each.of.name for each in found.devices] == ["f on cpu:0", "f on cpu:1"]
    assert found.devices[1].against == found.of
    assert found.devices[1].apart == 0
    assert len(found.devices[1].ratios) >= 8
    assert "f on cpu:1" in str(found)


def test_other_results_on_a_device_are_an_error():
    """Before anything is timed."""

    def f(x):
        return x + len(seen.append(1) or seen)

    seen = []
    with pytest.raises(VerificationError, match="cpu:1"):
        jitney.measure(f, X, devices=["cpu:0", "cpu:1"], **QUICK)
    assert len(seen) == 2


def test_a_decorated_function_is_compiled_for_each():
    """As a method too."""
    f = jitney.optimize(lambda x: jnp.sum(jnp.sin(x)))
    found = f.measure(X, devices=["cpu:0", "cpu:1"], **QUICK)
    np.testing.assert_allclose(f(X), np.sin(X).sum(), rtol=1e-6)
    assert [each.of.is_new for each in found.devices] == [True, True]
