"""Time sparse problems against SciPy's `tr_solver="lsmr"`, in turn: `python -m
examples.trf.sparse_times [--size 10000]`.

Broyden's tridiagonal function, by `least_squares_large`, and by SciPy's call as it is and behind
the drop-in, each with the sparse Jacobian and with its structure alone. The ends are compared
before any time is taken. Milliseconds are of the wall clock, the least of the rounds.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.optimize
import scipy.sparse
from jaxtyping import Array, Float

from .._timing import in_turn, seconds_of
from . import drop_in
from .large import least_squares_large


def broyden(x: Float[Array, "k"]) -> Float[Array, "k"]:
    """The residuals in JAX."""
    f = (3 - x) * x + 1
    return f.at[1:].add(-x[:-1]).at[:-1].add(-2 * x[1:])


def in_numpy(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    f = (3 - x) * x + 1
    f[1:] -= x[:-1]
    f[:-1] -= 2 * x[1:]
    return f


def slopes(x: np.ndarray) -> Any:
    """Their sparse Jacobian."""
    ones = np.ones(x.size - 1)
    return scipy.sparse.diags_array([-ones, 3 - 2 * x, -2 * ones], offsets=(-1, 0, 1)).tocsr()


def calls(size: int) -> dict[str, Callable[[], Any]]:
    """Each way, as a call without arguments."""
    x0 = np.full(size, -1.0)
    given = {"jac": slopes, "tr_solver": "lsmr"}
    structure = {"jac_sparsity": slopes(x0)}
    theirs, ours = scipy.optimize.least_squares, drop_in.least_squares
    return {
        "least_squares_large": lambda: least_squares_large(broyden, x0),
        "SciPy, `jac` sparse": lambda: theirs(in_numpy, x0, **given),
        "the drop-in, the same": lambda: ours(in_numpy, x0, **given),
        "SciPy, `jac_sparsity`": lambda: theirs(in_numpy, x0, **structure),
        "the drop-in, of the same": lambda: ours(in_numpy, x0, **structure),
    }


def main() -> None:
    """Compare, then time in turn."""
    parser = argparse.ArgumentParser(prog="python -m examples.trf.sparse_times")
    parser.add_argument("--size", type=int, default=10_000, help="of parameters")
    named = calls(parser.parse_args().size)
    first: dict[str, float] = {}
    ends = []
    for name, call in named.items():
        first[name], end = seconds_of(call)
        ends.append(end.x)
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], rtol=1e-6)
    least = in_turn(named, seconds=60)
    print(f"jax {jax.__version__}, scipy {scipy.__version__}")
    for name in named:
        print(f"{name:26} {1e3 * least[name]:8.1f} ms, the first call {first[name]:.2f} s")


if __name__ == "__main__":
    main()
