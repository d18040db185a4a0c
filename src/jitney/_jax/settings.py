"""Snapshots of the JAX settings that results depend on, as they are for the current thread.

Caches of jitney outside of JAX's own (steps of a stream, checkpoints, derived fields) have them in
their keys.
"""

from __future__ import annotations

from typing import Any

import jax

_NAMES = (
    "jax_accurate_erf_inv",
    "jax_default_device",
    "jax_default_dtype_bits",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_custom_prng",
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_high_dynamic_range_gumbel",
    "jax_legacy_prng_key",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
    "jax_threefry_partitionable",
    "jax_use_hlo_logistic_lowering",
)
_config: Any = jax.config
_THERE = tuple(name for name in _NAMES if hasattr(_config, name))


def settings() -> tuple[tuple[str, Any], ...]:
    """Return name and value of each setting that this version of JAX has."""
    return tuple((name, getattr(_config, name)) for name in _THERE)


_OF_PROGRAMS = (
    "jax_accurate_erf_inv",
    "jax_debug_key_reuse",
    "jax_default_device",
    "jax_default_matmul_precision",
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
    "jax_threefry_gpu_kernel_lowering",
    "jax_threefry_partitionable",
    "jax_use_direct_linearize",
    "jax_use_shardy_partitioner",
)
_OF_PROGRAMS_THERE = tuple(name for name in _OF_PROGRAMS if hasattr(_config, name))


def settings_of_programs() -> tuple[tuple[str, Any], ...]:
    """Return the settings that are in JAX's own trace-cache key, whatever the function does (jax
    0.10.2 to 0.12.0.1): another value means a retrace.
    """
    return tuple((name, getattr(_config, name)) for name in _OF_PROGRAMS_THERE)
