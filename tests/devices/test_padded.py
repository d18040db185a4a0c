"""`pad=` for arrays that were put on one of several devices. The reference is `jax.jit`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._program.runners import padded_calls, padding_recipes
from jitney._program.runners.filling import Filling


def shares(
    x: Float[Array, "n"], y: Float[Array, "n"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    return x * y / jnp.sum(x), jnp.max(y)


@pytest.mark.parametrize("near", [lambda _: True, lambda _: False], ids=["host", "program"])
@pytest.mark.parametrize("which", [None, 0, 3], ids=str)
def test_results_lie_where_those_of_jit_do(monkeypatch, near, which):
    """On the device of an argument that was put there on purpose, bound to it or not, whichever way
    it is filled; in a chain too.
    """
    filling = Filling(near, program=0)
    for module in (padded_calls, padding_recipes):
        monkeypatch.setattr(module, "FILLING", filling)
    f, plain = optimize(pad={"n": [8]})(shares), jax.jit(shares)
    x = (
        np.arange(5, dtype=np.float32)
        if which is None
        else jax.device_put(np.arange(5, dtype=np.float32), jax.devices()[which])
    )
    y = np.ones(5, np.float32)
    for _ in range(2):
        got, want = f(x, y), plain(x, y)
        for a, b in zip(got, want, strict=True):
            assert (a.devices(), a.committed) == (b.devices(), b.committed)
            np.testing.assert_allclose(a, b, rtol=1e-6)
        x = got[0]


def test_arrays_of_two_devices_are_an_error():
    """As in `jax.jit`: neither is moved in silence."""
    x, y = (jax.device_put(np.ones(5, np.float32), device) for device in jax.devices()[:2])
    with pytest.raises(ValueError, match="incompatible devices"):
        optimize(pad={"n": [8]})(shares)(x, y)
