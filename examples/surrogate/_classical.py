"""The PC algorithm (Spirtes, Glymour and Scheines 2000), by `causal-learn`, an extra of this
example: `pip install 'jitney[examples,discovery]'`.

It takes observations and answers as one sample: tests of independence do not know what was set from
outside. What it leaves undirected gets a random direction, as the pairs of correlations do.
"""

import importlib.util
import warnings

import numpy as np
from jaxtyping import Bool, Float

LEVELS = (0.01, 0.05, 0.1, 0.2)  # of the tests of independence
HERE = importlib.util.find_spec("causallearn") is not None


def by_pc(
    values: Float[np.ndarray, "task samples vars"], level: float, seed: int = 0
) -> Bool[np.ndarray, "task vars vars"]:
    """Edges, [child, parent].

    Args:
        values: The samples of each model.
        level: Of the tests of independence, Fisher's z.
        seed: Of the directions of what PC leaves undirected.
    """
    from causallearn.search.ConstraintBased.PC import pc  # it takes seconds

    rng = np.random.default_rng(seed)
    found = np.zeros((len(values), *[values.shape[2]] * 2), bool)
    for each, rows in zip(found, values, strict=True):
        with warnings.catch_warnings():
            # of few samples, and of divisions by zero inside
            warnings.simplefilter("ignore")
            graph = pc(rows.astype(float), level, show_progress=False).G.graph
        # -1 is a tail and 1 an arrow; [i, j] is the mark at i of the edge to j
        into = (graph == 1) & (graph.T == -1)
        undirected = np.triu((graph == -1) & (graph.T == -1), 1)
        undirected |= np.triu((graph == 1) & (graph.T == 1), 1)
        turned = rng.random(into.shape) < 0.5
        each[:] = into | (undirected & turned) | (undirected & ~turned).T
    return found
