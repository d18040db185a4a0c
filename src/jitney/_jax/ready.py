"""Whether the device is done with an array. JAX's public class of arrays does not say so; its arrays do (jax 0.10.0, 0.10.2 and 0.12)."""

from __future__ import annotations

from typing import Any


def is_ready(array: Any) -> bool:
    """Whether an array is computed. Nothing is waited for."""
    return array.is_ready()
