"""A function with arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True)
class Case:
    """What is called.

    Args:
        style: Whose documentation calls functions so.
        fn: The function.
        make: Makes its arguments: arrays, trees of them, modules. To make them compiles, so whoever
            imports the cases does not.
    """

    style: str
    fn: Callable[..., Any]
    make: Callable[[], tuple[Any, ...]]

    @functools.cached_property
    def args(self) -> tuple[Any, ...]:
        """The same ones each time."""
        return self.make()

    @property
    def name(self) -> str:
        return f"{self.style}: {self.fn.__name__}"


def normal(*shape: int, seed: int = 0) -> Any:
    """The same numbers each time."""
    return jax.device_put(
        np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)
    )


def positive(*shape: int, seed: int = 0) -> Any:
    """The same, above 0.1."""
    return jax.device_put(np.abs(normal(*shape, seed=seed)) + np.float32(0.1))
