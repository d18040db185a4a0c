"""Pictures of a fit: maps of some angles, and how data and model decay at each."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ._compared import Compared
from ._mode_fit import ModeFit

SHOWN = 4  # angles with maps
ROWS = ("measured", "model", "residual / std. error")
LIMIT = 4.0  # of the colours of residuals


def maps(found: Compared, phi: np.ndarray, title: str, path: Path) -> None:
    """Data, model and residuals of some angles, over the two times.

    Args:
        found: Of all angles.
        phi: These, in degrees.
        title: Above all.
        path: Of the PNG.
    """
    angles = np.unique(np.linspace(0, phi.size - 1, SHOWN).round().astype(int))
    figure = Figure(figsize=(2.6 * angles.size + 1.4, 7.6), dpi=130, layout="constrained")
    panels = figure.subplots(3, angles.size, sharex=True, sharey=True, squeeze=False)
    low, high = np.nanpercentile(found.maps[:2, angles], (0.5, 99.5))
    span = (found.edges[0], found.edges[-1]) * 2
    for column, angle in enumerate(angles):
        for row, name in enumerate(ROWS):
            axes, upper = panels[row, column], found.maps[row, angle]
            square = np.where(np.isnan(upper), upper.T, upper)
            least, most, colours = (-LIMIT, LIMIT, "RdBu_r") if row == 2 else (low, high, "viridis")
            image = axes.imshow(
                square,
                origin="lower",
                extent=span,
                vmin=least,
                vmax=most,
                cmap=colours,
                interpolation="nearest",
            )
            axes.tick_params(labelsize=8)
            if column == 0:
                axes.set_ylabel(f"{name}\nt2 (s)", fontsize=9)
            if row == 0:
                axes.set_title(f"phi = {phi[angle]:.1f} deg", fontsize=9, loc="left")
            if row == 2:
                axes.set_xlabel("t1 (s)", fontsize=9)
            if column == angles.size - 1:
                figure.colorbar(image, ax=axes, shrink=0.85).ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    figure.savefig(path)


def by_angle(found: Compared, fit: ModeFit, phi: np.ndarray, title: str, path: Path) -> None:
    """The mean over lags at each angle, and how large the residuals are there."""
    figure = Figure(figsize=(10, 4.6), dpi=130, layout="constrained")
    decay, misfit = figure.subplots(1, 2, width_ratios=(3, 2))
    order = np.argsort(phi)
    for shade, angle in zip(np.linspace(0, 1, phi.size), order, strict=True):
        colour = (0.15 + 0.75 * shade, 0.3, 0.85 - 0.7 * shade)
        seen, fitted = found.by_lag[:, angle]
        label = f"{phi[angle]:.1f} deg" if phi.size <= 10 else None
        decay.plot(found.lag, seen, ".", markersize=3, color=colour)
        decay.plot(found.lag, fitted, "-", linewidth=1.2, color=colour, label=label)
    decay.set_xscale("log")
    decay.set_xlabel("t2 - t1 (s)")
    decay.set_ylabel("mean of c2: data (points), model (lines)")
    if phi.size <= 10:
        decay.legend(fontsize=8, frameon=False)
    misfit.plot(phi[order], fit.reduced_by_angle[order], "o", color="black", markersize=4)
    misfit.axhline(1, color="grey", linewidth=0.8)
    misfit.set_ylim(bottom=0)
    misfit.set_xlabel("phi (deg)")
    misfit.set_ylabel("chi squared by point")
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    figure.savefig(path)
