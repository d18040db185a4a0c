"""Published solutions as data, and how far ours are from them."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data"


@lru_cache(maxsize=16)
def load(name: str) -> dict[str, Any]:
    """A file of `data/`."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def renamed(name: str) -> str:
    """Our name for a variable of Dynare: `lambda` is a word of Python, and productivity is held as
    its logarithm.
    """
    return {"lambda": "lam", "A": "a"}.get(name, name)


def policy(linear: Any, data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Our solution in the form of `ghx` and `ghu`, for states of yesterday: productivity of today
    is rho times that and the shock.
    """
    rho = linear.steady.rho[0]
    by_state, by_shock = [], []
    for name in map(renamed, data["row_order"]):
        to_K, to_a = (0.0, 1.0) if name == "a" else (linear[name][0][0], linear[name][1][0])
        by_state.append([{"K": to_K, "A": rho * to_a}[state] for state in data["state_cols"]])
        by_shock.append([to_a])
    return np.array(by_state), np.array(by_shock)


def responses(
    response: dict[str, np.ndarray], data: dict[str, Any], shock: str
) -> tuple[np.ndarray, np.ndarray]:
    """Our impulse responses and Dynare's, a row for each variable; capital of Dynare's date is that
    of our next.
    """
    ours, theirs = [], []
    for name in data["endo"]:
        path = np.array(data["irfs"][f"{name}_{shock}"])
        own = response[renamed(name)]
        ours.append(own[1 : path.size + 1] if name == "K" else own[: path.size])
        theirs.append(path)
    return np.array(ours), np.array(theirs)


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference, relative to the largest number of each row."""
    ours, theirs = np.atleast_2d(np.asarray(ours, float)), np.atleast_2d(np.asarray(theirs, float))
    sizes = np.max(np.abs(theirs), axis=-1, keepdims=True)
    return float(np.max(np.abs(ours - theirs) / np.where(sizes > 0, sizes, 1.0)))
