"""Solutions over their references, a panel for each variable, and chains."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from ._checks import Result
from ._estimation import Chains

INK, REFERENCE = "#1f4e79", "#d98b2b"


def draw(result: Result, path: Path) -> None:
    """Save the picture of one model as a PNG."""
    count = len(result.curves)
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(3.4 * columns + 0.4, 2.4 * rows + 0.9), dpi=130, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, (ours, theirs)) in zip(panels, result.curves.items(), strict=False):
        at = np.arange(ours.size)
        if result.marks:
            axes.bar(at, ours, color=INK, alpha=0.55, label="here")
            axes.plot(at, theirs, "o", color=REFERENCE, ms=5, label="reference")
            axes.set_xticks(at, ["R", "g", "z", "e_g", "e_z", "e_r"][: ours.size])
        else:
            axes.plot(at, ours, color=INK, lw=2, label="here")
            axes.plot(at[::2], theirs[::2], "o", color=REFERENCE, ms=3, label="reference")
        if np.min(ours) < 0.0:
            axes.axhline(0.0, color="0.8", lw=0.7, zorder=0)
        axes.set_title(
            f"{name} (apart by {np.max(np.abs(ours - theirs)):.0e})", fontsize=9, loc="left"
        )
        axes.tick_params(labelsize=8)
    for axes in panels[count:]:
        axes.set_visible(False)
    if not result.marks:
        panels[count - 1].set_xlabel("date", fontsize=8)
    panels[0].legend(fontsize=8, frameon=False)
    figure.suptitle(result.title, fontsize=11, x=0.02, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_sectors(curves: np.ndarray, path: Path) -> None:
    """Save a picture of capital over that of the steady state, by date and sector."""
    figure = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    shades = [(0.12 + 0.05 * i, 0.31 + 0.03 * i, 0.47 + 0.02 * i) for i in range(curves.shape[1])]
    for i, shade in enumerate(shades):
        axes.plot(100 * (curves[:, i] - 1), color=shade, lw=1.4)
    axes.set(xlabel="date", ylabel="capital, per cent off its steady state")
    axes.set_title(
        "Fourteen sectors after a loss of capital and a boom: darker sectors are less productive",
        fontsize=10,
        loc="left",
    )
    axes.axhline(0.0, color="0.8", lw=0.7, zorder=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_chains(chains: Chains, path: Path) -> None:
    """Save a picture of draws: for each parameter the chains over time, and their distributions
    over the prior.
    """
    names = tuple(chains.values)
    size = (8.4, 1.8 * len(names) + 0.7)
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    panels = figure.subplots(len(names), 2, squeeze=False, width_ratios=(2, 1))
    for (trace, marginal), name in zip(panels, names, strict=True):
        rows = chains.values[name]
        edges = np.histogram_bin_edges(rows, bins=40)
        for row, away, shade in zip(rows, chains.diverged, _shades(len(rows)), strict=True):
            trace.plot(row, color=shade, lw=0.6)
            trace.plot(np.flatnonzero(away), row[away], "|", color=REFERENCE, ms=8)
            marginal.hist(row, edges, density=True, histtype="step", color=shade)
        grid = np.linspace(edges[0], edges[-1], 200)
        with jax.enable_x64(True):
            density = np.exp(jax.device_get(chains.priors[name].log_density(grid)))
        marginal.plot(grid, density, color=REFERENCE, lw=1.2, label="prior")
        told = f"{name}: R-hat {chains.rhat[name]:.3f}, as good as {chains.ess[name]:,.0f} draws"
        trace.set_title(f"{told} of {rows.size:,}", fontsize=9, loc="left")
        marginal.set_yticks([])
        for axes in (trace, marginal):
            axes.tick_params(labelsize=8)
    panels[-1][0].set_xlabel("draw", fontsize=8)
    panels[0][1].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _shades(count: int) -> list[tuple[float, float, float]]:
    """Blues from dark to light."""
    parts = np.linspace(0.0, 1.0, count)
    return [(0.12 + 0.5 * part, 0.31 + 0.4 * part, 0.47 + 0.4 * part) for part in parts]
