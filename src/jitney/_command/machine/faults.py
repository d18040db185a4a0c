"""Known faults of XLA, each tested with a small program whose result is known."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np

from .checks import Check

_OFF = "--xla_cpu_experimental_ynn_fusion_type="
_ROWS = 64
_CLOSE = 1e-3


def fusion() -> Check:
    """Check for a miscompiled matrix product that ends in a reduction.

    XLA for CPUs computes wrong numbers for it in jaxlib 0.10.2 and 0.12.0.1. Delete this check, and
    its line in `docs/command-line.md`, when the oldest supported jaxlib gives the right number
    without the flag (https://github.com/jax-ml/jax/issues/39103 is such a fault).
    """
    h = np.random.default_rng(0).normal(size=(_ROWS, _ROWS)).astype(np.float32)
    wide = h.astype(np.float64)
    # The reference in NumPy and float64. A product with a matrix of ones sums each row of `sin(h)`,
    # which XLA may fuse with the mean behind it.
    want = float(np.mean((np.sin(wide) @ np.ones(h.shape)) * np.cos(wide)))
    device = jax.default_backend()

    @jax.jit
    def mean(h: jax.Array) -> jax.Array:
        product = jnp.matmul(jnp.sin(h), jnp.ones((_ROWS, _ROWS), np.float32), precision="highest")
        return jnp.mean(product * jnp.cos(h))

    got = float(mean(h))
    data = {"got": got, "want": want}
    if abs(got - want) <= _CLOSE * abs(want):
        return Check("XLA: product and reduction", f"right, on {device}", data=data)
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_OFF}".strip()
    version: str = getattr(jax.lib, "__version__")  # noqa: B009 - the stubs do not export it
    value = (
        f"{device} computes {got:.3g} for {want:.3g}: jaxlib {version} miscompiles a"
        " product that ends in a reduction"
    )
    return Check("XLA: product and reduction", value, "fail", f"export XLA_FLAGS='{flags}'", data)
