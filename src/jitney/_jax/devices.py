"""The devices of this process, of all of JAX's platforms."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol, cast

import jax


class LocalDevice(Protocol):
    """One of JAX's devices."""

    platform: str
    id: int
    device_kind: str

    def memory_stats(self) -> Mapping[str, int] | None: ...


def local_devices() -> list[LocalDevice]:
    """Return those of the default platform, then those of the CPU."""
    found: list[object] = [*jax.local_devices()]
    # Where `jax_platforms` leaves the CPU out, JAX has none.
    with suppress(RuntimeError):
        found += [each for each in jax.local_devices(backend="cpu") if each not in found]
    return cast("list[LocalDevice]", found)
