"""Copies of captured arrays, shared by the programs of a function that have captured the same
numbers.
"""

from __future__ import annotations

import weakref

import jax
import numpy as np

from .programs.large_constants import has_content


class CopyPool:
    """Copies that a program of the function still holds."""

    def __init__(self) -> None:
        # Each with the sharding that it was made for.
        self._copies: list[tuple[weakref.ref[jax.Array], jax.sharding.Sharding | None]] = []

    def copy(
        self,
        value: object,
        sharding: jax.sharding.Sharding | None,
    ) -> jax.Array:
        """Return a copy that nobody changes.

        Args:
            value: The array, of NumPy or of JAX.
            sharding: Where the copy is to be; None for the default device.
        """
        host = np.asarray(value)
        alive = [known for known in self._copies if known[0]() is not None]
        for reference, placed in alive:
            copy = reference()
            if copy is not None and placed == sharding and has_content(host, copy):
                return copy
        # JAX copies in a thread of its own, and the caller may overwrite the array next. Devices of
        # the host may hold the array that they are given, so that is a copy too.
        if sharding is None:
            copy = jax.numpy.array(host, copy=True)
        else:
            copy = jax.device_put(host.copy(), sharding)
        jax.block_until_ready(copy)
        self._copies = [*alive, (weakref.ref(copy), sharding)]
        return copy
