"""How good the belief is on models that no training saw: `python -m examples.surrogate.quality`.

For each number of variables, edges of whole graphs from 16 observations and 16 answers to random
interventions; each way gives a probability to each edge, and predicts those above one half where
nothing else is said.

    network        the trained network, a belief over the parent sets of each variable
    network, F1    the same, edges above the threshold that gives the best F1 on other models
    steps          the network's belief after a few gradient steps on the samples
    steps, F1      the same, by the threshold of the best F1 on other models
    steps alone    such steps from the prior, without a network
    enumeration    the exact posterior over all graphs (up to five variables)
    PC, GES        the PC algorithm and greedy equivalence search, by causal-learn where that is
                   installed; with the level, or the penalty, of the best F1 on other models
    correlation    pairs whose correlation is above a threshold, in a random direction
    chance         an edge as often as in training

F1 of the edges; the structural Hamming distance (SHD), in which a reversed edge counts once; the
mean log probability of a variable's true parents, in nats; and how far stated probabilities of
edges are from how often these are there (a mean over bins).
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from . import _classical, _enumerated, _trained
from ._data import positions_of, tables
from ._environment import Environment, environment
from ._loop import by_parts
from ._round import Believer, believed
from ._trained import seen
from ._tuned import Ignorant, refined
from ._validate import calibration

HELD_OUT = 2**32 - 3  # the seed of the models here is one that no training has
ANSWERS = 16
KINDS = {
    "as in training": ("mixed", "gaussian"),
    "linear": ("linear", "gaussian"),
    "linear, noise of Laplace": ("linear", "laplace"),
    "linear, noise of Student": ("linear", "student"),
    "neural": ("neural", "gaussian"),
}
THRESHOLDS = np.arange(0.05, 0.95, 0.05)


@dataclass(frozen=True)
class Data:
    """Models and samples of each."""

    models: Environment
    values: Float[np.ndarray, "task samples vars"]
    intervened: Bool[np.ndarray, "task samples vars"]


@dataclass(frozen=True)
class Quality:
    """Of one way on some models; None where it gives no probabilities."""

    f1: float
    shd: float
    log_likelihood: float | None
    error: float | None


def data_of(count: int, variables: int, kind: str, part: int = 0) -> Data:
    """Models of a kind; another part has others."""
    rng = np.random.default_rng([HELD_OUT, part, variables])
    models = environment(rng, count, variables, *KINDS[kind])
    return Data(models, *seen(rng, models, ANSWERS))


def edges_of(belief: Float[np.ndarray, "task vars sets"]) -> Float[np.ndarray, "task vars vars"]:
    """The probability of each edge, [child, parent]."""
    index, mask = tables(belief.shape[1])
    found = np.zeros((len(belief), belief.shape[1], belief.shape[1]))
    for child in range(belief.shape[1]):
        for member in range(index.shape[2]):
            rows = np.flatnonzero(mask[child, :, member])
            np.add.at(
                found, (slice(None), child, index[child, rows, member]), belief[:, child, rows]
            )
    return found


def judged(
    edges: Float[np.ndarray, "task vars vars"],
    data: Data,
    belief: Float[np.ndarray, "task vars sets"] | None = None,
    sure: bool = False,
    threshold: float = 0.5,
) -> Quality:
    """The figures.

    Args:
        edges: The probability of each edge.
        data: With the truth.
        belief: The probability of each parent set, if there is one.
        sure: Whether edges are no probabilities.
        threshold: Edges above it are predicted.
    """
    said, true = edges > threshold, data.models.parents
    likely = None
    if belief is not None:
        chosen = np.take_along_axis(belief, positions_of(data.models.parents)[:, :, None], 2)
        likely = float(np.log(np.maximum(chosen, 1e-12)).mean())
    off = ~np.eye(true.shape[1], dtype=bool)
    error = None if sure else calibration(edges[:, off].ravel(), true[:, off].ravel())[0]
    return Quality(f1_of(said, true), float(distance(said, true).mean()), likely, error)


def f1_of(said: Bool[np.ndarray, "*any"], true: Bool[np.ndarray, "*any"]) -> float:
    """Of all edges together."""
    return float(2 * (said & true).sum() / max(said.sum() + true.sum(), 1))


def distance(
    said: Bool[np.ndarray, "task vars vars"], true: Bool[np.ndarray, "task vars vars"]
) -> Float[np.ndarray, "task"]:
    """The structural Hamming distance: pairs of variables with an edge missing, added or turned."""
    differs = said != true
    return np.triu(differs | differs.mT, 1).sum((1, 2))


def by_network(model: Believer, data: Data) -> np.ndarray:
    """The belief."""
    sets = tables(data.values.shape[2])
    found = by_parts(lambda *g: believed(model, *g, *sets), data.values, data.intervened)
    return np.exp(found.astype(float))


def by_steps(model: Believer, data: Data) -> np.ndarray:
    """The belief after gradient steps."""
    return np.exp(refined(model, data.values, data.intervened).astype(float))


def by_enumeration(data: Data) -> np.ndarray:
    """The exact posterior over graphs, for each parent set."""
    chance = _enumerated.posterior(data.values, data.intervened)
    return _enumerated.marginals(chance, data.values.shape[2])


def by_correlation(data: Data, threshold: float) -> np.ndarray:
    """Edges between variables that correlate, in a random direction."""
    found = np.zeros((len(data.values), *[data.values.shape[2]] * 2))
    rng = np.random.default_rng(0)
    for each, values in zip(found, data.values, strict=True):
        linked = np.triu(np.abs(np.corrcoef(values.T)) > threshold, 1)
        turned = rng.random(linked.shape) < 0.5
        each[:] = (linked & turned) | (linked & ~turned).T
    return found


def tuned(data: Data) -> float:
    """The threshold with the best F1, on models of another part."""
    found = [judged(by_correlation(data, each), data, sure=True).f1 for each in THRESHOLDS]
    return float(THRESHOLDS[int(np.argmax(found))])


def by_method(method: _classical.Method, data: Data, tuning: Data) -> np.ndarray:
    """Edges, by the level with the best F1 on models of another part; an eighth of these, as these
    methods run model by model.
    """
    true = tuning.models.parents[::8]
    found = [f1_of(method.edges(tuning.values[::8], each), true) for each in method.levels]
    return method.edges(data.values, method.levels[int(np.argmax(found))]).astype(float)


def row(
    model: Believer, data: Data, tuning: Data
) -> tuple[dict[str, Quality], dict[str, np.ndarray]]:
    """Each way on some models, and the network's belief about them, without steps and with."""
    variables, found, beliefs = data.values.shape[2], dict[str, Quality](), {}
    for name, believes in (("network", by_network), ("steps", by_steps)):
        belief, other = (believes(model, each) for each in (data, tuning))
        beliefs[name] = belief
        found[name] = judged(edges_of(belief), data, belief)
        best = threshold_of(edges_of(other), tuning)
        found[f"{name}, F1"] = judged(edges_of(belief), data, sure=True, threshold=best)
    alone = by_steps(Ignorant(), data)
    found["steps alone"] = judged(edges_of(alone), data, alone)
    if variables <= _enumerated.MOST:
        exact = by_enumeration(data)
        found["enumeration"] = judged(edges_of(exact), data, exact)
    if _classical.HERE:
        for name, method in _classical.METHODS.items():
            found[name] = judged(by_method(method, data, tuning), data, sure=True)
    found["correlation"] = judged(by_correlation(data, tuned(tuning)), data, sure=True)
    rate = tuning.models.parents.sum() / (tuning.models.parents.size * (1 - 1 / variables))
    guess = np.random.default_rng(0).random(data.models.parents.shape) < rate
    guess &= ~np.eye(variables, dtype=bool)
    found["chance"] = judged(guess.astype(float), data, sure=True)
    return found, beliefs


def threshold_of(edges: Float[np.ndarray, "task vars vars"], data: Data) -> float:
    """The one with the best F1."""
    found = [judged(edges, data, sure=True, threshold=each).f1 for each in THRESHOLDS]
    return float(THRESHOLDS[int(np.argmax(found))])


def table(found: dict[tuple[str, int], dict[str, Quality]]) -> Table:
    """A line for each way."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("models", "variables", "way", "F1", "SHD", "log likelihood", "calibration error"):
        left = name in ("models", "way")
        out.add_column(name, justify="left" if left else "right", no_wrap=True)
    for (kind, variables), rows in found.items():
        for at, (name, each) in enumerate(rows.items()):
            head = ("", "") if at else (kind, str(variables))
            numbers = f"{each.f1:.2f}", f"{each.shd:.2f}"
            out.add_row(*head, name, *numbers, _cell(each.log_likelihood), _cell(each.error))
        out.add_section()
    return out


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def draw(found: dict[int, tuple[Data, dict[str, np.ndarray]]], path: Path) -> None:
    """Save the calibration of edges as a picture, a line for each number of variables."""
    figure = Figure(figsize=(8.4, 4.0), dpi=130, layout="constrained")
    titles = {"network": "The network on held-out models", "steps": "After gradient steps"}
    for axes, (name, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="0.8", lw=1, zorder=0)
        for variables, (data, beliefs) in found.items():
            off = ~np.eye(variables, dtype=bool)
            edges = edges_of(beliefs[name])[:, off].ravel()
            bins = calibration(edges, data.models.parents[:, off].ravel())[1]
            said, true, _ = np.array(bins).T
            axes.plot(said, true, ".-", lw=1, label=f"{variables} variables")
        axes.set(xlabel="probability of an edge", ylabel="how often it is there")
        axes.set_title(title, fontsize=10, loc="left")
    figure.axes[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.surrogate.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", default=(3, 4, 5, 8, 12, 20), help="numbers of variables")
    add("--models", type=int, default=100, help="of each size and kind (default: %(default)s)")
    add("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="(default: all)")
    add("--weights", type=Path, help="(default: those that are best for each size)")
    add("--out", type=Path, default=Path("out/surrogate"), help="folder (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge, print, draw, and keep the figures as JSON."""
    chosen, console = options(arguments), Console(width=110)
    found, beliefs = {}, {}
    if not _classical.HERE:
        console.print("causal-learn is not installed: PC and GES are left out", highlight=False)
    for kind in chosen.kinds:
        for variables in chosen.sizes:
            model = _trained.load(chosen.weights or _trained.best_for(variables))
            data, tuning = (data_of(chosen.models, variables, kind, part) for part in (0, 1))
            found[kind, variables], belief = row(model, data, tuning)
            beliefs.setdefault(variables, (data, belief))
            keep(found, chosen.out)
            console.print(f"{kind}, {variables} variables: done", highlight=False)
    console.print(table(found))
    draw(beliefs, chosen.out / "calibration.svg")
    console.print(f"Picture: {(chosen.out / 'calibration.svg').resolve()}", soft_wrap=True)


def keep(found: dict[tuple[str, int], dict[str, Quality]], folder: Path) -> None:
    """Write all figures as JSON."""
    kept = [
        {"models": kind, "variables": variables, "way": name, **vars(each)}
        for (kind, variables), rows in found.items()
        for name, each in rows.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quality.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
