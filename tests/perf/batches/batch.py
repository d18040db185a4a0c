"""A program that runs for each element of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

# XLA may hang where two threads run LAPACK on more numbers than this at once, of plain JAX too.
_MOST_NUMBERS = 4096

Make = Callable[[np.random.Generator, int], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Batch:
    """A program as one writes it under `jax.jit(jax.vmap(...))`.

    Args:
        body: What is computed for one element.
        make: Makes the arrays of so many elements.
        size: Elements of the benchmark.
        lapack: Numbers of an element that LAPACK takes at once.
    """

    body: Callable[..., object]
    make: Make
    size: int
    lapack: int = 0

    def arrays(self, size: int | None = None) -> tuple[np.ndarray, ...]:
        """The same at each call: of the benchmark, or of so many elements."""
        return self.make(np.random.default_rng(0), size or self.size)

    def may_thread(self, width: int) -> bool:
        """Whether two threads may run so many elements at a time."""
        return width * self.lapack <= _MOST_NUMBERS


def normal(*shape: int) -> Make:
    """One array of normal numbers, of this shape for each element."""
    return lambda rng, size: (rng.standard_normal((size, *shape), np.float32),)


def plain(batch: Batch) -> Callable[..., object]:
    """The program as it is written."""
    return jax.jit(jax.vmap(batch.body))
