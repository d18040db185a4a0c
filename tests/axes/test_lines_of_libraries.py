"""Where a library does what cannot be padded or cut, the message names the user's line first, and
then the library's, with its package.
"""

import importlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._axes import Refused, trace
from jitney.errors import AxisError

SOURCE = """
import jax
import jax.numpy as jnp

@jax.jit
def transform(x):
    return jnp.fft.fft(x).real
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A package that is installed."""
    folder = tmp_path / "site-packages" / "spectral"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "core.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder.parent)
    yield importlib.import_module("spectral.core")
    for name in ("spectral", "spectral.core"):
        del sys.modules[name]


def with_numpy(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * np.ones(x.shape[0])


LINE = with_numpy.__code__.co_firstlineno + 1


def test_the_users_line_stands_before_numpys():
    """NumPy turns the size into text on its way; whoever handed it the size can change that."""
    avals = lambda sizes: [jax.ShapeDtypeStruct((sizes["d0"],), np.float32)]
    with pytest.raises(
        Refused,
        match=(
            rf"test_lines_of_libraries.py:{LINE} \(with_numpy; numpy's numeric.py:\d+\) turns the"
            r" size d0"
        ),
    ):
        trace(lambda x: [with_numpy(x)], avals, {"d0": (5, 5)}, {"d0": 5}, examples=False)


def test_the_users_line_stands_before_that_of_a_jitted_function_of_a_library(library):
    """JAX knows of what is jitted the lines inside alone."""

    @optimize(chunk={"n": 2})
    def f(x: Float[Array, "n"]):
        return library.transform(x)

    line = f.__wrapped__.__code__.co_firstlineno + 2
    with pytest.raises(
        AxisError, match=rf"test_lines_of_libraries.py:{line} \(f; spectral's core.py:7\)"
    ):
        f(jnp.ones(5))
