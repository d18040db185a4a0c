"""Heat maps of some angles: what was measured, what was fitted, and the difference."""

from pathlib import Path

import numpy as np

from ._data import FRAME, NOISE, Data, at, place
from ._maps import two_times

SHOWN, SIDE = 4, 300  # angles, frames a side


def draw(data: Data, vector: np.ndarray, path: Path) -> None:
    """Save the picture as a PNG."""
    angles = np.unique(np.linspace(0, data.angles - 1, SHOWN).round().astype(int))
    frames = np.unique(np.linspace(0, data.frames - 1, min(SIDE, data.frames)).astype(int))
    i, j = np.triu_indices(frames.size, 1)
    where = place(frames[i], frames[j], data.frames)
    t1, t2 = data.mapped("t1")[where], data.mapped("t2")[where]
    fitted = at(data, vector, t1, t2)
    columns = []
    for angle in angles:
        measured = np.asarray(data.mapped("measured")[angle][where], float)
        squares = []
        for part in (measured, fitted[angle], (measured - fitted[angle]) / NOISE):
            square = np.full((frames.size, frames.size), np.nan)
            square[i, j] = square[j, i] = part
            squares.append(square)
        columns.append((f"phi = {np.degrees(data.phi[angle]):.1f} deg", squares))
    figure = two_times(
        columns,
        ("measured", "fitted", "residual / noise"),
        (0.0, FRAME * data.frames),
        (0.98, 1.32),
        4.0,
        f"Two-time correlation, {data.points:,} points (synthetic)",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
