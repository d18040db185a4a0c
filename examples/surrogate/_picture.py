"""Loss and calibration of a training run, side by side."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

INK, SOFT, REFERENCE = "#1f4e79", "#9db8d2", "#d98b2b"
Bins = list[tuple[float, float, int]]


def draw(history: np.ndarray, bins: Bins, exact: Bins, path: Path) -> None:
    """Save the picture as a PNG.

    Args:
        history: Loss of each step, in its first column.
        bins: Of the network: what it said, how often that was true, of how many.
        exact: The same of the exact posterior.
        path: Where.
    """
    figure = Figure(figsize=(9.2, 4.0), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    loss = history[:, 0]
    window = max(len(loss) // 40, 1)
    smooth = np.convolve(loss, np.ones(window) / window, "valid")
    left.plot(np.arange(1, len(loss) + 1), loss, color=SOFT, lw=0.7)
    left.plot(np.arange(len(smooth)) + (window + 1) / 2, smooth, color=INK, lw=2)
    left.set(xlabel="step", ylabel="loss (nats)", ylim=(0, None))
    left.set_title("Loss of each batch, and its running mean", fontsize=10, loc="left")
    right.plot([0, 1], [0, 1], color="0.8", lw=1, zorder=0)
    for each, colour, name in ((exact, REFERENCE, "exact posterior"), (bins, INK, "network")):
        said, true, count = np.array(each).T
        right.plot(said, true, "-", color=colour, lw=1)
        right.scatter(said, true, s=8 + 160 * count / count.sum(), color=colour, label=name)
    right.set(
        xlabel="probability given to the top parent set",
        ylabel="how often it is the true one",
        xlim=(0, 1.03),
        ylim=(0, 1.03),
    )
    right.set_title("Calibration, up to six variables", fontsize=10, loc="left")
    right.legend(fontsize=8, frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_posterior(rows: list[tuple[str, float]], true: int | None, path: Path) -> None:
    """Save the likeliest parent sets of one variable as bars, the true one in another colour.

    Args:
        rows: Members of each set, and its posterior probability.
        true: Which row is the true set, if it is among them.
        path: Where.
    """
    figure = Figure(figsize=(5.6, 2.8), dpi=130, layout="constrained")
    axes = figure.subplots()
    names, values = zip(*reversed(rows), strict=True)
    colours = [REFERENCE if i == true else INK for i in reversed(range(len(rows)))]
    axes.barh(names, values, color=colours)
    axes.set(xlabel="posterior probability", xlim=(0, 1))
    axes.set_title(
        "Likeliest parent sets" + (", the true one in orange" if true is not None else ""),
        fontsize=10,
        loc="left",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
