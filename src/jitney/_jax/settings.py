"""Snapshots of the JAX settings that results depend on, as they are for the current thread.

Caches of jitney outside of JAX's own (steps of a stream, checkpoints, derived fields) have them in
their keys.
"""

from __future__ import annotations

from typing import Any

import jax

# JAX makes the attributes of its configuration when it is imported.
_CONFIG: Any = jax.config
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
_THERE = tuple(name for name in _NAMES if hasattr(_CONFIG, name))


def x64_is_on() -> bool:
    """Return whether JAX computes in 64 bits in this thread."""
    return bool(_CONFIG.jax_enable_x64)


def looks_for_nans() -> bool:
    """Return whether JAX itself looks at the results of each program in this thread."""
    return bool(_CONFIG.jax_debug_nans or _CONFIG.jax_debug_infs)


def default_platform() -> str:
    """Return the platform of arrays that nobody has put elsewhere, in this thread."""
    device = _CONFIG.jax_default_device
    return str(getattr(device, "platform", device) or jax.default_backend())


def platforms_setting() -> str | None:
    """Return the platforms that JAX is to start, as text, if the setting names any."""
    return _CONFIG.jax_platforms


def settings() -> tuple[tuple[str, Any], ...]:
    """Return name and value of each setting that this version of JAX has."""
    return tuple((name, getattr(_CONFIG, name)) for name in _THERE)


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
_OF_PROGRAMS_THERE = tuple(name for name in _OF_PROGRAMS if hasattr(_CONFIG, name))


def settings_of_programs() -> tuple[tuple[str, Any], ...]:
    """Return the settings that are in JAX's own trace-cache key, whatever the function does (jax
    0.10.2 to 0.12.0.1): another value means a retrace.
    """
    return tuple((name, getattr(_CONFIG, name)) for name in _OF_PROGRAMS_THERE)
