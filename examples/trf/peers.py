"""Peers that the port does not need: where NLSQ or jaxopt is installed, the benchmark times it.

Each is used as its documentation says: of NLSQ one `CurveFit` that is used again, which is its
quicker form, with its log off; of jaxopt one jitted `LevenbergMarquardt` that keeps its Jacobian.
"""

import importlib
import importlib.metadata
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

TOLERANCE = 1e-8
NAMES = ("nlsq", "jaxopt")


def versions() -> str:
    """Those that are installed, for a heading."""
    return "".join(
        f", {name} {importlib.metadata.version(name)}" for name in NAMES if find_spec(name)
    )


def solvers(
    model: Callable[..., Array], t: Array, y: Array, start: np.ndarray, box: Any = None
) -> dict[str, Callable[[], np.ndarray]]:
    """A fit of y = model(t, *p) by each that is installed, as a call that gives the parameters.

    jaxopt's method has no bounds, so it is left out where there are some.
    """
    found = {}
    if find_spec("nlsq"):
        found["NLSQ"] = by_nlsq(model, np.asarray(t), np.asarray(y), start, box)
    if find_spec("jaxopt") and box is None:
        found["jaxopt LM"] = by_jaxopt(model, t, y, start)
    return found


def by_nlsq(
    model: Callable[..., Array], t: np.ndarray, y: np.ndarray, start: np.ndarray, box: Any
) -> Callable[[], np.ndarray]:
    """One `nlsq.CurveFit`, of which the first call compiles."""
    logging.disable(logging.WARNING)  # it logs each turn, by default
    curve = importlib.import_module("nlsq").CurveFit()
    options = dict.fromkeys(("ftol", "xtol", "gtol"), TOLERANCE)
    if box is not None:
        options["bounds"] = tuple(np.asarray(side, float) for side in box)
    return lambda: np.asarray(curve.curve_fit(model, t, y, p0=start, **options).popt)


def by_jaxopt(
    model: Callable[..., Array], t: Array, y: Array, start: np.ndarray
) -> Callable[[], np.ndarray]:
    """`jaxopt.LevenbergMarquardt` under one `jax.jit`."""
    solver = importlib.import_module("jaxopt").LevenbergMarquardt(
        residual_fun=lambda p, t, y: model(t, *p) - y,
        maxiter=100,
        materialize_jac=True,
        solver="cholesky",
        tol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
    )
    run = jax.jit(lambda p, t, y: solver.run(p, t=t, y=y).params)
    return lambda: np.asarray(run(start, t, y).block_until_ready())
