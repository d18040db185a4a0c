"""A thousand fits of a decay: a Python loop over them, against one mapped call of `examples.trf`.

The loop of today calls a fit that is compiled once; another line has the loop over SciPy's
`curve_fit` (MINPACK) of the function in NumPy. By hand it is `jax.jit` of `jax.vmap` of the same
fit.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from .._timing import assert_equal, in_turn, seconds_of
from ..trf import curve_fit
from ..trf._curve import Residual
from ..trf._problem import Data, Setup
from ..trf._program import SCALARS, fitted
from ._gain import Gain, Line

FITS, POINTS = 1000, 100
START = np.array([1.0, 1.0, 0.1])
CONTROLS = np.array([1e-8, 1e-8, 1e-8, 1.0, 300.0])  # as `curve_fit` has them by default
FOUND = slice(len(SCALARS), len(SCALARS) + START.size)


def decay(t: Float[Array, "points"], a: Array, b: Array, c: Array) -> Float[Array, "points"]:
    """Exponential decay to a constant."""
    return a * jnp.exp(-b * t) + c


def measured() -> tuple[np.ndarray, np.ndarray]:
    """Times, and a noisy measurement a row."""
    t, noise = np.linspace(0, 4, POINTS), np.random.default_rng(0).normal(size=(FITS, POINTS))
    return t, 2.5 * np.exp(-1.3 * t) + 0.5 + 0.05 * noise


def one_fit(t: np.ndarray, y: Array) -> Array:
    """The parameters of one fit, a function of JAX."""
    setup = Setup(
        Residual(decay, "no"), None, "linear", bounded=False, scale_by_jac=True, records=None
    )
    data = Data(None, None, None, CONTROLS, None, (t, y, None), {})
    return fitted(setup, jnp.asarray(START), data)[0][FOUND]


def by_scipy(t: np.ndarray, y: np.ndarray) -> Callable[[], np.ndarray]:
    """The loop over SciPy's solver."""

    def model(t: np.ndarray, a: float, b: float, c: float) -> np.ndarray:
        return a * np.exp(-b * t) + c

    return lambda: np.stack([scipy.optimize.curve_fit(model, t, row, START)[0] for row in y])


def measure() -> Gain:
    """Compare, then time."""
    t, y = measured()
    with jax.enable_x64(True):
        alone, mapped = jax.jit(lambda y: one_fit(t, y)), jax.jit(jax.vmap(lambda y: one_fit(t, y)))
        compile_s = {"loop": seconds_of(lambda: alone(y[0]))[0]}
        sides = {
            "loop": lambda: np.stack([np.asarray(alone(row)) for row in y]),
            "by hand": lambda: np.asarray(mapped(y)),
            "jitney": lambda: curve_fit(decay, t, y, START).x,
        }
        results = {"loop": sides["loop"]()}
        for name in ("by hand", "jitney"):
            compile_s[name], results[name] = seconds_of(sides[name])
        scipys = by_scipy(t, y)
        results["SciPy"] = scipys()
        assert_equal(results, rtol=1e-5)
        ms = {name: 1e3 * taken for name, taken in in_turn(sides, seconds=0.5).items()}
        scipy_ms = 1e3 * min(seconds_of(scipys)[0] for _ in range(2))
    return Gain(
        "fits",
        f"{FITS:,} fits of {POINTS} points",
        "a Python loop over a fit that jax.jit has compiled; then over SciPy's curve_fit",
        "jax.jit(jax.vmap(fit))",
        "one call of curve_fit, which maps the axis `fit`; it checks its data too",
        "parameters to 1e-5",
        (
            Line("loop of jax.jit, ms", *ms.values()),
            Line("loop of SciPy, ms", scipy_ms, ms["by hand"], ms["jitney"]),
            Line("first call (of the loop, one fit), s", *compile_s.values()),
        ),
    )
