"""The PC algorithm (Spirtes, Glymour and Scheines 2000) and greedy equivalence search (GES,
Chickering 2002), by `causal-learn`, an extra of this example:
`pip install 'jitney[examples,discovery]'`.

Both take observations and answers as one sample: neither knows what was set from outside. What they
leave undirected gets a random direction, as the pairs of correlations do.
"""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

HERE = importlib.util.find_spec("causallearn") is not None
Edges = Bool[np.ndarray, "task vars vars"]


def by_pc(values: Float[np.ndarray, "task samples vars"], level: float, seed: int = 0) -> Edges:
    """Edges, [child, parent].

    Args:
        values: The samples of each model.
        level: Of the tests of independence, Fisher's z.
        seed: Of the directions of what PC leaves undirected.
    """
    from causallearn.search.ConstraintBased.PC import pc  # it takes seconds

    return _each(lambda rows: pc(rows, level, show_progress=False).G.graph, values, seed)


def by_ges(values: Float[np.ndarray, "task samples vars"], penalty: float, seed: int = 0) -> Edges:
    """Edges, [child, parent].

    Args:
        values: The samples of each model.
        penalty: Of the score: so many times the logarithm of the number of samples for each
            parent; 0.5 is the Bayesian information criterion.
        seed: Of the directions of what GES leaves undirected.
    """
    from causallearn.search.ScoreBased.GES import ges  # it takes seconds

    given = {"score_func": "local_score_BIC", "parameters": {"lambda_value": penalty}}
    return _each(lambda rows: ges(rows, **given)["G"].graph, values, seed)


def _each(
    graph_of: Callable[[np.ndarray], Any], values: Float[np.ndarray, "task samples vars"], seed: int
) -> Edges:
    """The edges of the graphs that causal-learn finds, model by model."""
    rng = np.random.default_rng(seed)
    found = np.zeros((len(values), *[values.shape[2]] * 2), bool)
    for each, rows in zip(found, values, strict=True):
        with warnings.catch_warnings():
            # of few samples, and of divisions by zero inside
            warnings.simplefilter("ignore")
            graph = graph_of(rows.astype(float))
        # -1 is a tail and 1 an arrow; [i, j] is the mark at i of the edge to j
        into = (graph == 1) & (graph.T == -1)
        undirected = np.triu((graph == -1) & (graph.T == -1), 1)
        undirected |= np.triu((graph == 1) & (graph.T == 1), 1)
        turned = rng.random(into.shape) < 0.5
        each[:] = into | (undirected & turned) | (undirected & ~turned).T
    return found


@dataclass(frozen=True)
class Method:
    """A way to edges with one number that is tuned on other models."""

    edges: Callable[[np.ndarray, float], Edges]
    levels: tuple[float, ...]


METHODS = {
    "PC": Method(by_pc, (0.01, 0.05, 0.1, 0.2)),  # of the tests of independence
    "GES": Method(by_ges, (0.25, 0.5, 1.0, 2.0)),
}
