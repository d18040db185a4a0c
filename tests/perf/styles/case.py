"""A function with arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Case:
    """What is called.

    Args:
        style: Whose documentation calls functions so.
        fn: The function.
        args: Its arguments: arrays, trees of them, modules.
    """

    style: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.style}: {self.fn.__name__}"


def normal(*shape: int, seed: int = 0) -> Any:
    """The same numbers each time."""
    return jnp.asarray(np.random.default_rng((seed, *shape)).normal(size=shape), jnp.float32)


def positive(*shape: int, seed: int = 0) -> Any:
    """The same, above 0.1."""
    return jnp.abs(normal(*shape, seed=seed)) + 0.1
