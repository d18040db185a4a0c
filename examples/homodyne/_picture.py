"""Heat maps of some angles: what was measured, what was fitted, and the difference."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ._data import FRAME, NOISE, Data, at, place

SHOWN, SIDE = 4, 300  # angles, frames a side


def draw(data: Data, vector: np.ndarray, path: Path) -> None:
    """Save the picture as a PNG."""
    angles = np.unique(np.linspace(0, data.angles - 1, SHOWN).round().astype(int))
    frames = np.unique(np.linspace(0, data.frames - 1, min(SIDE, data.frames)).astype(int))
    i, j = np.triu_indices(frames.size, 1)
    where = place(frames[i], frames[j], data.frames)
    t1, t2 = data.mapped("t1")[where], data.mapped("t2")[where]
    fitted = at(data, vector, t1, t2)
    figure = Figure(figsize=(2.6 * angles.size + 1, 7.4), dpi=130, layout="constrained")
    rows = figure.subplots(3, angles.size, sharex=True, sharey=True, squeeze=False)
    span = FRAME * data.frames
    for column, angle in enumerate(angles):
        measured = np.asarray(data.mapped("measured")[angle][where], float)
        parts = (measured, fitted[angle], (measured - fitted[angle]) / NOISE)
        for row, (part, name) in enumerate(
            zip(parts, ("measured", "fitted", "residual / noise"), strict=True)
        ):
            axes, square = rows[row, column], np.full((frames.size, frames.size), np.nan)
            square[i, j] = square[j, i] = part
            low, high, colours = (-4, 4, "RdBu_r") if row == 2 else (0.98, 1.32, "viridis")
            image = axes.imshow(
                square,
                origin="lower",
                extent=(0, span, 0, span),
                vmin=low,
                vmax=high,
                cmap=colours,
                interpolation="nearest",
            )
            axes.tick_params(labelsize=8)
            if column == 0:
                axes.set_ylabel(f"{name}\nt2 (s)", fontsize=9)
            if row == 0:
                axes.set_title(
                    f"phi = {np.degrees(data.phi[angle]):.1f} deg", fontsize=9, loc="left"
                )
            if row == 2:
                axes.set_xlabel("t1 (s)", fontsize=9)
            if column == angles.size - 1:
                figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=8)
    figure.suptitle(
        f"Two-time correlation, {data.points:,} points (synthetic)", fontsize=12, x=0.02, ha="left"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
