"""Measurements of known truth, of any mode: all pairs of some frames, and noise."""

from collections.abc import Mapping

import jax
import numpy as np

from jitney import optimize

from ._measurement import Measurement
from ._modes import MODES, Mode, Physical
from .model import Points, Scalar, Setup

TRUTH: dict[str, dict[str, float]] = {
    "static_isotropic": {"D0": 1e4, "alpha": -0.4, "D_offset": 500.0},
    "static_anisotropic": {"D0": 1e4, "alpha": -0.4, "D_offset": 500.0},
    "laminar_flow": {
        "D0": 1e4,
        "alpha": -0.4,
        "D_offset": 500.0,
        "gamma0": 3e-4,
        "beta": -0.3,
        "gamma_offset": 3e-5,
        "phi0": 0.15,
    },
    "two_component": {
        "D0_ref": 2e3,
        "alpha_ref": 0.3,
        "D_offset_ref": 300.0,
        "D0_sample": 1e4,
        "alpha_sample": -0.3,
        "D_offset_sample": 800.0,
        "v0": 260.0,
        "beta": 0.2,
        "v_offset": 40.0,
        "f0": 0.35,
        "f1": -0.15,
        "f2": 0.0,
        "f3": 0.25,
        "phi0": 0.15,
    },
}


@optimize(vmap="phi", precision="f64")
def decay(
    mode: Mode, physical: Physical, setup: Setup, phi: Scalar, t1: Points, t2: Points
) -> Points:
    """The mode at all angles, without contrast and offset."""
    return mode.shape(physical, setup, phi, t1, t2)


def synthetic(
    name: str,
    *,
    frames: int = 100,
    angles: int = 6,
    noise: float = 0.01,
    seed: int = 0,
    frame: float = 0.1,
    truth: Mapping[str, float] | None = None,
    contrast: np.ndarray | float = 0.3,
    offset: np.ndarray | float = 1.0,
) -> Measurement:
    """A measurement, of which the noise is known.

    Args:
        name: The mode.
        frames: Of which all pairs are taken.
        angles: How many, over half a turn.
        noise: Standard deviation of a point.
        seed: Of the noise.
        frame: Seconds between frames.
        truth: Parameters in place of those of `TRUTH`.
        contrast: Of all angles, or of each.
        offset: Of all angles, or of each.
    """
    mode, setup = MODES[name], Setup()
    values = {**TRUTH[name], **(truth or {})}
    first, second = np.triu_indices(frames, 1)
    t1, t2 = frame * (first + 1.0), frame * (second + 1.0)
    phi = np.linspace(-np.pi / 2, np.pi / 2, angles, endpoint=False)
    with jax.enable_x64(True):
        physical = np.array([values[each] for each in mode.names])
        shape = np.asarray(decay(mode, physical, setup, phi, t1, t2))
    # a static mode has one shape for all angles
    shape = np.broadcast_to(shape, (angles, t1.size))
    optics = [np.broadcast_to(each, (angles,))[:, None] for each in (contrast, offset)]
    drawn = np.random.default_rng(seed).normal(0, noise, shape.shape)
    return Measurement(t1, t2, optics[1] + optics[0] * shape + drawn, phi, setup)
