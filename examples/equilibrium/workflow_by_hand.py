"""The workflow of `benchmark.py` on the sectors alone, by hand.

Derivatives are written out (`sectors_by_hand.py`), in one jitted function of many dates; Newton's
method and the linear systems are those of `before.py`, in NumPy.
"""

from typing import Any

import jax
import numpy as np

from ._model import NAMES, Model
from .before import Before
from .sectors_by_hand import SECTORS, SLOPES, places, written_out

# derivatives that are the same everywhere
FIXED = (
    ("Tobin's q", "q", 1.0),
    ("capital", "inv", -1.0),
    ("marginal product", "mp", 1.0),
    ("output", "y", 1.0),
    ("resources", "c", 1.0),
    ("resources", "y", -1.0),
    ("return", "ret", 1.0),
    ("return", "mp", -1.0),
)
BETA = 1  # its place among the parameters
RET_AHEAD = slice(176, 190)  # its places among the inputs


class ByHand(Before):
    """One economy of these sectors."""

    def __init__(self, model: Model):
        self.model, self.traces = model, 0
        self.rows, self.columns = places()

        def evaluate(columns: Any) -> Any:
            self.traces += 1
            return jax.vmap(written_out)(columns)

        self.evaluate = jax.jit(evaluate)

    def at(self, place: Any, names: tuple[str, ...]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Residuals and Jacobian blocks at one place."""
        F, by = self.at_each([each[None] for each in place])
        return F[0], {name: by[name][0] for name in names}

    def at_each(self, place: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same at many."""
        dates = len(place[1])
        theta = np.broadcast_to(place[0], (dates, place[0].shape[-1]))
        column = np.concatenate([theta, *place[1:]], axis=1)
        F, slopes = map(np.asarray, self.evaluate(column))
        sizes = self.model.sizes
        by = {name: np.zeros((dates, F.shape[1], sizes[name])) for name in NAMES}
        for equation, name, value in FIXED:
            self._put(by, equation, name, value)
        for i, (equation, name) in enumerate(SLOPES):
            self._put(by, equation, name, slopes[:, i])

        # of output by its shock, and of Euler's equation by beta
        at_z, at_ret = SLOPES.index(("output", "logK")), SLOPES.index(("Euler", "ret ahead"))
        by_z = slopes[:, at_z] / theta[:, :1]
        by["z"][:, self.rows["output"], np.arange(SECTORS)] = by_z
        by_beta = slopes[:, at_ret] * column[:, RET_AHEAD] / theta[:, [BETA]]
        by["theta"][:, self.rows["Euler"], BETA] = by_beta
        return F, by

    def _put(self, by: dict[str, np.ndarray], equation: str, name: str, values: Any) -> None:
        group, at = self.columns[name]
        by[group][:, self.rows[equation], at] = values
