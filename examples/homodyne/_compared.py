"""Data and model next to each other, summed over all points in one pass, so that memory does not
grow with them: by angle, by lag, and in the cells of a map.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize

from ._measurement import Measurement
from ._mode_fit import ModeFit
from ._modes import Mode, Physical
from .model import Points, Scalar, Setup

BLOCK = 2**18  # pairs at a time
SIDE = 200  # cells of a map, along each time
LAGS = 200


@optimize(vmap="phi", precision="f64", pad={"points": "pow2"})
def modelled(
    mode: Mode,
    physical: Physical,
    optics: Float[Array, "2"],
    setup: Setup,
    phi: Scalar,
    t1: Points,
    t2: Points,
) -> Points:
    """The correlation at all angles."""
    contrast, offset = optics
    return offset + contrast * mode.shape(physical, setup, phi, t1, t2)


@dataclass(frozen=True)
class Compared:
    """Means over the points of a cell; NaN where there are none.

    Args:
        count: Points of each angle.
        mean: Of the residuals, data minus model, of each angle.
        rms: Of the residuals, of each angle.
        lag: Middle of the cells of lag, seconds.
        by_lag: Data and model, of each angle and cell: (2, angles, lags).
        edges: Of the cells of a map, seconds.
        maps: Data, model and residual in standard errors: (3, angles, cells, cells), in the first
            of which the first time is along the rows.
    """

    count: np.ndarray
    mean: np.ndarray
    rms: np.ndarray
    lag: np.ndarray
    by_lag: np.ndarray
    edges: np.ndarray
    maps: np.ndarray


def compare(data: Measurement, fit: ModeFit, mode: Mode, frame_time: float) -> Compared:
    """Go through all points once.

    Args:
        data: What was fitted.
        fit: The result.
        mode: Its model.
        frame_time: Seconds between frames, the least that a cell is wide.
    """
    arrays = data.opened()
    first, last = float(np.min(arrays.t1)), float(np.max(arrays.t2))
    frames = round((last - first) / frame_time) + 1
    side, lags = min(SIDE, frames), min(LAGS, frames - 1)
    edges = np.linspace(first - frame_time / 2, last + frame_time / 2, side + 1)
    steps = np.unique(np.geomspace(1, frames, lags + 1).round()) - 0.5
    steps = steps * frame_time
    angles, cells = data.angles, side * side
    maps, by_lag = np.zeros((3, angles, cells)), np.zeros((2, angles, steps.size - 1))
    in_map, in_lag = np.zeros((angles, cells)), np.zeros((angles, steps.size - 1))
    sums = np.zeros((3, angles))
    optics = fit.layout.optics(fit.x, angles)
    physical = fit.x[: len(mode.names)]
    for start in range(0, arrays.t1.shape[0], BLOCK):
        t1, t2 = (np.array(each[start : start + BLOCK], float) for each in (arrays.t1, arrays.t2))
        values = np.array(arrays.measured[:, start : start + BLOCK], float)
        model = _model(mode, physical, optics, data, t1, t2)
        places = [np.clip(np.searchsorted(edges, t) - 1, 0, side - 1) for t in (t1, t2)]
        cell = places[0] * side + places[1]
        lag = np.clip(np.searchsorted(steps, t2 - t1) - 1, 0, steps.size - 2)
        for angle in range(angles):
            there = np.isfinite(values[angle])
            seen, fitted = values[angle, there], model[angle, there]
            rest = seen - fitted
            sums[:, angle] += rest.size, rest.sum(), rest @ rest
            for out, place, parts, count in (
                (maps, cell[there], (seen, fitted, rest), in_map),
                (by_lag, lag[there], (seen, fitted), in_lag),
            ):
                size = count.shape[1]
                count[angle] += np.bincount(place, minlength=size)
                for k, part in enumerate(parts):
                    out[k, angle] += np.bincount(place, part, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        maps[:2] /= in_map
        maps[2] /= np.sqrt(in_map) * fit.sigma[:, None]
        by_lag /= in_lag
        count, total, squares = sums
        mean, rms = total / count, np.sqrt(squares / count)
    return Compared(
        count.astype(int),
        mean,
        rms,
        (steps[1:] + steps[:-1]) / 2,
        by_lag,
        edges,
        maps.reshape(3, angles, side, side),
    )


def _model(
    mode: Mode, physical: Any, optics: np.ndarray, data: Measurement, t1: Any, t2: Any
) -> np.ndarray:
    phi = np.asarray(data.phi, float)
    with jax.enable_x64(True):
        found = np.asarray(modelled(mode, physical, optics, data.setup, phi, t1, t2))
    return np.broadcast_to(found, (phi.size, t1.size))
