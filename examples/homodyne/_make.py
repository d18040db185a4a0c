"""Files of known truth, laid out as beamlines lay them out, to try the command and the readers."""

from pathlib import Path

import numpy as np

from ..trf._fail import fail
from ._synthetic import TRUTH, synthetic
from ._writers import FRAME, WRITERS

SHOT = 0.5  # what a frame correlated with itself has on top


def make(
    path: Path,
    layout: str,
    mode: str,
    *,
    frames: int = 200,
    angles: int = 8,
    noise: float = 0.01,
    seed: int = 0,
) -> dict[str, float]:
    """Write a synthetic file, and give the parameters that are in it, angles in degrees.

    Args:
        path: Where; its folder is made.
        layout: A name in `readers.LAYOUTS`; those of a single map take the first angle.
        mode: The model.
        frames: How many.
        angles: How many.
        noise: Standard deviation of a point.
        seed: Of the noise.
    """
    least = {"frames": (frames, 3), "angles": (angles, 1), "noise": (noise, 0), "seed": (seed, 0)}
    for name, (value, low) in least.items():
        if not value >= low:
            fail(f"{name} is {value}.", f"It is {low} at least.", f"write --{name} {low}.")
    data = synthetic(mode, frames=frames, angles=angles, noise=noise, seed=seed, frame=FRAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    i, j = np.triu_indices(frames, 1)
    maps = np.full((angles, frames, frames), np.nan, np.float32)
    maps[:, i, j] = maps[:, j, i] = np.asarray(data.measured)
    diagonal = np.arange(frames)
    maps[:, diagonal, diagonal] = 1.3 + SHOT
    WRITERS[layout](path, maps, np.degrees(data.phi), data.setup.q)
    turned = {
        name: float(np.degrees(value)) if name == "phi0" else value
        for name, value in TRUTH[mode].items()
    }
    return {**turned, "contrast": 0.3, "offset": 1.0}
