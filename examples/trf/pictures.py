"""Pictures of a fit: data and curve, residuals, correlations of the parameters; and the corner of a
bootstrap. Each is a figure of matplotlib, to be shown or saved.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ._curve import Residual
from ._fail import fail
from ._held import parameter_names
from ._result import Result

INK, FAINT, BLUE, ORANGE = "#1b1b1b", "#9a9a9a", "#0b6e99", "#c2571a"
FINE = 600  # points of a curve
BINS = 30


def draw_fit(result: Result, names: Sequence[str] = ()) -> Figure:
    """Data with the curve, residuals, and correlations of the parameters.

    Args:
        result: Of one fit. Without a curve over one `t` (`least_squares`, or more than one number
            for each point) residuals are drawn over their index, and no data.
        names: Of the parameters; those of the model's arguments unless given.
    """
    _one(result)
    figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
    setup, data = result.programs.setup, result.data
    left, right = figure.subfigures(1, 2, width_ratios=(1.5, 1))
    counts = result.counts
    t = np.arange(result.fun.size)
    over_t = isinstance(setup.fun, Residual) and np.shape(data.args[0]) == result.fun.shape
    if over_t:
        t = np.asarray(data.args[0])
        top, bottom = left.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
        _data(top, result, t, counts)
    else:
        bottom = left.subplots()
    bottom.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
    # the residual is the curve less the data: drawn is how far the data are above it
    bottom.scatter(t[counts], -result.fun[counts], s=9, color=BLUE)
    scaled = over_t and data.args[2] is not None
    bottom.set_ylabel("residual / sigma" if scaled else "residual")
    bottom.set_xlabel("t" if over_t else "point")
    draw_correlations(right.subplots(), result, names)
    return figure


def draw_correlations(axes: Axes, result: Result, names: Sequence[str] = ()) -> None:
    """Correlations of the parameters as a matrix; blank where one is not determined."""
    _one(result)
    k = result.x.size
    names = list(names) or parameter_names(result.programs.setup.fun, k)
    matrix = result.correlations
    axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    for i, j in np.argwhere(np.isfinite(matrix)).tolist() if k <= 12 else []:
        ink = "white" if abs(matrix[i, j]) > 0.6 else INK
        axes.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(k), names, rotation=45, fontsize=8)
    axes.set_yticks(range(k), names, fontsize=8)
    axes.set_title("correlations", fontsize=9)


def draw_corner(
    x: Float[np.ndarray, "draw k"],
    names: Sequence[str] = (),
    at: Sequence[float] | None = None,
) -> Figure:
    """Each parameter's distribution, and each pair's.

    Args:
        x: A row for each draw, such as `bootstrap(fit).x`.
        names: Of the parameters.
        at: Where lines are drawn, such as `fit.x`.
    """
    k = x.shape[1]
    names = list(names) or [f"p[{i}]" for i in range(k)]
    figure = Figure(figsize=(1.9 * k + 0.6, 1.9 * k + 0.4), dpi=120, layout="constrained")
    grid = figure.subplots(k, k, sharex="col", squeeze=False)
    for i in range(k):
        for j in range(k):
            axes = grid[i, j]
            if j > i:
                axes.set_axis_off()
                continue
            if i == j:
                axes.hist(x[:, i], bins=BINS, color=BLUE, alpha=0.7)
                axes.set_yticks([])
            else:
                axes.plot(x[:, j], x[:, i], ".", markersize=1.5, alpha=0.4, color=BLUE)
            if at is not None:
                axes.axvline(at[j], color=ORANGE, linewidth=0.8)
                if i != j:
                    axes.axhline(at[i], color=ORANGE, linewidth=0.8)
            axes.tick_params(labelsize=7)
            if i == k - 1:
                axes.set_xlabel(names[j], fontsize=9)
            if j == 0 and i > 0:
                axes.set_ylabel(names[i], fontsize=9)
    return figure


def _one(result: Result) -> None:
    if np.ndim(result.cost):
        fail(
            "The result is of a batch.",
            "A picture shows one fit.",
            "take one: `fits[0]`.",
        )


def _data(axes: Axes, result: Result, t: np.ndarray, counts: np.ndarray) -> None:
    _, y, sigma = (None if part is None else np.asarray(part) for part in result.data.args[:3])
    spread = result.programs.setup.fun.whiten == "vector"
    error = np.broadcast_to(sigma, y.shape)[counts] if spread else None
    look = {"markersize": 3, "color": INK, "ecolor": FAINT, "elinewidth": 0.8, "linestyle": "none"}
    axes.errorbar(t[counts], y[counts], error, marker="o", **look, label="data")
    if not counts.all():
        axes.plot(t[~counts], y[~counts], "x", markersize=4, color=FAINT, label="left out")
    fine = np.linspace(t.min(), t.max(), FINE)
    axes.plot(fine, _curve(result, fine), color=BLUE, linewidth=1.6, zorder=4, label="fit")
    axes.set_ylabel("y")
    axes.legend(frameon=False, fontsize=8)


def _curve(result: Result, t: np.ndarray) -> np.ndarray:
    model, held = result.programs.setup.fun.model, result.data.args[3:]
    if held:
        model = eqx.combine(held[0][0], model)
    with jax.enable_x64(True):
        return np.broadcast_to(np.asarray(model(t, *result.x)), t.shape)
