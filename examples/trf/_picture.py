"""A picture of one fit: data and curve above, residuals below."""

from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._result import Result
from .nist import Reference

INK, FAINT = "#1b1b1b", "#9a9a9a"
SERIES = ("#0b6e99", "#c2571a", "#4b7f2c", "#8a4fa3")


def draw(reference: Reference, result: Result, path: Path) -> None:
    """Save data, fitted curve and residuals as a PNG."""
    figure = Figure(figsize=(7, 5.6), dpi=150, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    if reference.x.ndim == 1:
        _one_predictor(top, bottom, reference, result)
    else:
        _by_temperature(top, bottom, reference, result)
    figure.suptitle(
        f"{reference.name}: {reference.model.__name__.replace('_', ' ')}",
        fontsize=13,
        x=0.02,
        ha="left",
        color=INK,
    )
    top.set_title(_summary(reference, result), fontsize=8.5, loc="left", color="#555555")
    bottom.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    bottom.set_ylabel("residual")
    limit = 1.15 * np.abs(result.fun).max()
    bottom.set_ylim(-limit, limit)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8.5)
    figure.align_ylabels()
    figure.savefig(path)


def _one_predictor(top: Axes, bottom: Axes, reference: Reference, result: Result) -> None:
    x, y = reference.x, reference.y
    margin = 0.03 * np.ptp(x)
    fine = np.linspace(x.min() - (margin if x.min() > margin else 0), x.max() + margin, 600)
    dense = x.size > 60
    top.plot(
        fine,
        _curve(reference, fine, result.x),
        color=SERIES[0],
        linewidth=1.6,
        label="fit",
        zorder=4 if dense else 2,
    )
    size = 9 if dense else 22
    top.scatter(
        x,
        y,
        s=size,
        facecolor="white",
        edgecolor=INK,
        linewidth=0.8,
        zorder=3,
        label=f"{x.size} observations",
    )
    # The curve is y - misfit, and the residual of a fit is the misfit's negative.
    bottom.vlines(x, 0, -result.fun, color=SERIES[0], linewidth=0.8, alpha=0.6)
    bottom.scatter(x, -result.fun, s=0.6 * size, color=SERIES[0], zorder=3)
    top.set_ylabel("y")
    bottom.set_xlabel("x")
    top.legend(frameon=False, fontsize=9)


def _by_temperature(top: Axes, bottom: Axes, reference: Reference, result: Result) -> None:
    weeks, celsius = reference.x
    fine = np.linspace(0, 1.03 * weeks.max(), 300)
    levels = np.unique(celsius)
    for i, level in enumerate(levels):
        colour, here = SERIES[i % len(SERIES)], celsius == level
        # weeks, so that equal times do not hide each other
        aside = (i - (len(levels) - 1) / 2) * 0.5
        top.plot(
            fine,
            _curve(reference, np.stack([fine, np.full_like(fine, level)]), result.x),
            color=colour,
            linewidth=1.4,
        )
        top.scatter(
            weeks[here] + aside, reference.y[here], s=12, color=colour, label=f"{level:.0f} °C"
        )
        bottom.scatter(weeks[here] + aside, -result.fun[here], s=9, color=colour)
    top.set_ylabel("log of breakdown strength")
    bottom.set_xlabel("weeks")
    top.legend(frameon=False, fontsize=9, title="aged at", title_fontsize=9, loc="lower left")


def _curve(reference: Reference, x: np.ndarray, b: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(reference.model(x, *b))


def _summary(reference: Reference, result: Result) -> str:
    deviations = np.sqrt(np.diag(result.covariance))
    values = [
        f"b{i + 1} = {_with_error(b, s)}"
        for i, (b, s) in enumerate(zip(result.x, deviations, strict=True))
    ]
    lines = ["   ".join(values[i : i + 4]) for i in range(0, len(values), 4)]
    lines[-1] += f"   |   {reference.digits(result.x):.1f} certified digits"
    return "\n".join(lines)


def _with_error(value: float, error: float) -> str:
    """A value to two digits of its error, as in 1.234(56)e-3."""
    exponent = int(np.floor(np.log10(abs(value))))
    if -3 <= exponent <= 4:
        exponent = 0
    value, error = value / 10**exponent, error / 10**exponent
    places = max(0, 1 - int(np.floor(np.log10(error))))
    scaled = round(error * 10**places)
    return f"{value:.{places}f}({scaled})" + (f"e{exponent}" if exponent else "")
