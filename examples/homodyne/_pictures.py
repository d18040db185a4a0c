"""Pictures of a fit: maps of some angles, and how data and model decay at each."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from ._compared import Compared
from ._maps import two_times
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
    low, high = np.nanpercentile(found.maps[:2, angles], (0.5, 99.5))
    columns = [
        (
            f"phi = {phi[angle]:.1f} deg",
            [np.where(np.isnan(upper), upper.T, upper) for upper in found.maps[:, angle]],
        )
        for angle in angles
    ]
    edges = (found.edges[0], found.edges[-1])
    two_times(columns, ROWS, edges, (low, high), LIMIT, title).savefig(path)


def by_angle(found: Compared, fit: ModeFit, phi: np.ndarray, title: str, path: Path) -> None:
    """The mean over lags at each angle, and how large the residuals are there."""
    figure = Figure(figsize=(10, 4.6), dpi=130, layout="constrained")
    decay, misfit = figure.subplots(1, 2, width_ratios=(3, 2))
    order = np.argsort(phi)
    colours = colormaps["turbo"](np.linspace(0.05, 0.95, phi.size))
    for colour, angle in zip(colours, order, strict=True):
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
    misfit.set_ylim(0, 1.15 * max(1.0, float(fit.reduced_by_angle.max())))
    misfit.set_xlabel("phi (deg)")
    misfit.set_ylabel("chi squared by point")
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    figure.savefig(path)
