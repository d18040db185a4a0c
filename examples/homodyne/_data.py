"""Synthetic measurements on disk: the model with known parameters, and noise. No real data are used
here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jitney import optimize

from .model import Parameters, Points, Scalar, Setup, c2

TRUTH = np.array([1e4, -0.4, 500.0, 3e-4, -0.3, 3e-5, 0.15, 0.3, 1.0])
FRAME = 0.1  # seconds between frames
NOISE = 0.01  # standard deviation of a point
_BLOCK = 2**20  # pairs that are made at a time


@optimize(vmap="phi", precision="f64")
def correlation(
    vector: Float[Array, "9"], setup: Setup, phi: Scalar, t1: Points, t2: Points
) -> Points:
    """The model at all angles."""
    return c2(Parameters.of(vector), setup, phi, t1, t2)


@dataclass(frozen=True)
class Data:
    """Pairs of times, and what was measured at each angle and pair; `.npy` files in one folder.

    Args:
        folder: Where they are.
        frames: How many were taken, `FRAME` seconds apart; there is a point for each pair of
            different ones.
        angles: How many, over half a turn.
    """

    folder: Path
    frames: int
    angles: int

    @property
    def pairs(self) -> int:
        """Points at one angle."""
        return self.frames * (self.frames - 1) // 2

    @property
    def points(self) -> int:
        """Points in all."""
        return self.pairs * self.angles

    @property
    def phi(self) -> np.ndarray:
        """The angles, in radians."""
        return np.linspace(-np.pi / 2, np.pi / 2, self.angles, endpoint=False)

    def path(self, name: str) -> Path:
        """The file of `t1`, `t2` or `measured`."""
        return self.folder / f"{name}.npy"

    def mapped(self, name: str) -> np.ndarray:
        """The array of that file, read when it is used."""
        return np.load(self.path(name), mmap_mode="r")

    @classmethod
    def make(
        cls,
        folder: Path,
        points: int,
        angles: int = 8,
        seed: int = 0,
        advance: Callable[[int], None] = lambda n: None,
    ) -> "Data":
        """Write the files, unless they are there already.

        Args:
            folder: Where; made if it is missing.
            points: About how many, in all.
            angles: How many.
            seed: Of the noise.
            advance: Called with the number of points written.
        Raises:
            ValueError: There are too few points, or no angle.
        """
        if angles < 1 or points < 3 * angles:
            raise ValueError(
                f"{points} points at {angles} angles: each angle takes 3 points at least."
            )
        frames = int((1 + np.sqrt(1 + 8 * points / angles)) / 2)
        data = cls(folder, frames, angles)
        described = json.dumps(
            {
                "frames": frames,
                "angles": angles,
                "seed": seed,
                "truth": TRUTH.tolist(),
                "noise": NOISE,
            }
        )
        note = folder / "data.json"
        if note.exists() and note.read_text() == described:
            return data
        folder.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        data._write(seed, advance)
        note.write_text(described)
        return data

    def _write(self, seed: int, advance: Callable[[int], None]) -> None:
        open_file: Any = np.lib.format.open_memmap
        times = [
            open_file(self.path(name), "w+", np.float32, (self.pairs,)) for name in ("t1", "t2")
        ]
        measured = open_file(self.path("measured"), "w+", np.float32, (self.angles, self.pairs))
        for start, stop in self._blocks():
            first, second = pair(np.arange(start, stop), self.frames)
            for file, frame in zip(times, (first, second), strict=True):
                file[start:stop] = FRAME * (frame + 1)
            noise = np.random.default_rng([seed, start]).normal(
                0, NOISE, (self.angles, stop - start)
            )
            measured[:, start:stop] = (
                at(self, TRUTH, times[0][start:stop], times[1][start:stop]) + noise
            )
            advance(self.angles * (stop - start))
        for file in (*times, measured):
            file.flush()

    def _blocks(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.pairs, _BLOCK):
            yield start, min(start + _BLOCK, self.pairs)


def at(data: Data, vector: np.ndarray, t1: np.ndarray, t2: np.ndarray) -> np.ndarray:
    """The model at all angles and some pairs of times, in float64."""
    with jax.enable_x64(True):
        return np.asarray(
            correlation(vector, Setup(), data.phi, np.asarray(t1, float), np.asarray(t2, float))
        )


def pair(index: np.ndarray, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """The frames of a pair from its place in the files, where those of the first frame come
    first.
    """
    first = np.floor((2 * frames - 1 - np.sqrt((2 * frames - 1.0) ** 2 - 8.0 * index)) / 2).astype(
        np.int64
    )
    first -= place(first, first + 1, frames) > index  # the root is rounded
    first += place(first + 1, first + 2, frames) <= index
    return first, index - place(first, first + 1, frames) + first + 1


def place(first: np.ndarray, second: np.ndarray, frames: int) -> np.ndarray:
    """The place in the files of a pair of frames, the first before the second."""
    return first * frames - first * (first + 1) // 2 + second - first - 1
