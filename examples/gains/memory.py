"""Predictions of a Gaussian process at 20,000 places from 2,000 points, whose kernel takes 153 MiB
at once.

By hand it is `jax.lax.map` with `batch_size`, which works on as many places at a time.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney

from .._summary import peak
from .._timing import assert_equal, in_turn
from ._gain import Gain, Line
from ._process import run

PLACES, POINTS, CHUNK = 20_000, 2_000, 250


def predicted(
    x: Float[Array, "points"], weights: Float[Array, "points"], new: Float[Array, "places"]
) -> Float[Array, "places"]:
    """The posterior mean at new places, of a kernel of length 1."""
    return jnp.exp(-0.5 * (new[:, None] - x) ** 2) @ weights


def by_hand(x: Any, weights: Any, new: Any) -> Any:
    """The same, `CHUNK` places at a time."""

    def at(place: Any) -> Any:
        return predicted(x, weights, place[None])[0]

    return jax.lax.map(at, new, batch_size=CHUNK)


SIDES: dict[str, Callable[[], Any]] = {
    "jax.jit": lambda: jax.jit(predicted),
    "by hand": lambda: jax.jit(by_hand),
    "jitney": lambda: jitney.optimize(chunk={"places": CHUNK})(predicted),
}


def data() -> tuple[np.ndarray, ...]:
    """Points, weights, and new places."""
    rng = np.random.default_rng(0)
    x, weights = rng.uniform(0, 20, POINTS), rng.normal(size=POINTS)
    return tuple(each.astype(np.float32) for each in (x, weights, np.linspace(0, 20, PLACES)))


def one(side: str, file: Path) -> None:
    """Run one side; what it gave is in the file."""
    program, arguments = SIDES[side](), data()
    compiled = program.lower(*arguments).compile()
    temporary = compiled.memory_analysis().temp_size_in_bytes / 2**20
    best = in_turn({side: lambda: program(*arguments)}, seconds=0.5)[side]
    np.save(file, program(*arguments))
    print(json.dumps({"temporary": temporary, "peak": peak() or 0.0, "ms": 1e3 * best}))


def measure() -> Gain:
    """A process for each side, compared with each other."""
    found, results = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            file = Path(folder) / f"{side}.npy"
            found[side] = run("memory", side, str(file), JITNEY_CACHE="off")
            results[side] = np.load(file)
    assert_equal(results, rtol=1e-4, atol=1e-3)

    def line(what: str, name: str) -> Line:
        return Line(what, *(each[name] for each in found.values()))

    return Gain(
        "memory",
        f"predictions at {PLACES:,} places from {POINTS:,} points",
        "jax.jit, all at once",
        f"jax.lax.map(..., batch_size={CHUNK})",
        f'chunk={{"places": {CHUNK}}} on the function as it is',
        "predictions to 1e-4, in float32",
        (
            line("temporaries (compiler), MiB", "temporary"),
            line("peak of the process, MiB", "peak"),
            line("a warm call, ms", "ms"),
        ),
    )


if __name__ == "__main__":
    one(sys.argv[1], Path(sys.argv[2]))
