"""Numbers for the models: different ones in each place, so that an element that is left out or
counted twice shows.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

# `jax.random.key(7)`, which would compile on import
KEY = jax.random.wrap_key_data(np.uint32([0, 7]))


def normal(*shape: int, seed: int = 0) -> Any:
    """Numbers as of a standard normal distribution."""
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def uniform(*shape: int, seed: int = 0, high: float = 1.0) -> Any:
    """Numbers from 0 to `high`."""
    return np.random.default_rng((seed, *shape)).uniform(0.0, high, size=shape).astype(np.float32)


def whole(*shape: int, below: int, seed: int = 0) -> Any:
    """Whole numbers below a bound."""
    return np.random.default_rng((seed, *shape)).integers(0, below, size=shape).astype(np.int32)
