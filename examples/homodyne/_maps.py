"""Heat maps over two times: a column for each angle, a row for data, model and residuals."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure


def two_times(
    columns: Sequence[tuple[str, Sequence[np.ndarray]]],
    rows: Sequence[str],
    edges: tuple[float, float],
    limits: tuple[float, float],
    residual: float,
    title: str,
) -> Figure:
    """The figure.

    Args:
        columns: Of each angle its title, and the maps of its rows, square.
        rows: Names of the rows; the last one is residuals.
        edges: First and last time.
        limits: Of the colours of all rows but the last.
        residual: Limit of the colours of that one, to both sides.
        title: Above all.
    """
    figure = Figure(figsize=(2.6 * len(columns) + 1.4, 7.6), dpi=130, layout="constrained")
    panels = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    for column, (angle, squares) in enumerate(columns):
        for row, (name, square) in enumerate(zip(rows, squares, strict=True)):
            axes, is_last = panels[row, column], row == len(rows) - 1
            low, high = (-residual, residual) if is_last else limits
            image = axes.imshow(
                square,
                origin="lower",
                extent=edges * 2,
                vmin=low,
                vmax=high,
                cmap="RdBu_r" if is_last else "viridis",
                interpolation="nearest",
            )
            axes.tick_params(labelsize=8)
            if column == 0:
                axes.set_ylabel(f"{name}\nt2 (s)", fontsize=9)
            if row == 0:
                axes.set_title(angle, fontsize=9, loc="left")
            if is_last:
                axes.set_xlabel("t1 (s)", fontsize=9)
            if column == len(columns) - 1:
                figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    return figure
