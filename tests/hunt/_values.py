"""Numbers of every dtype: ordinary ones, and those at which code goes wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

FLAVOURS = ("normal", "normal", "ties", "special", "nans", "zeros", "ones", "extremes", "sorted")
SIZES = (1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 64, 0)
LONG = (100, 127, 128, 129, 255, 256, 257, 300, 1000, 4095, 4096)
LONGER = (32767, 32768, 40000, 60000, 65535, 65536, 65537, 70000)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def made(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, flavour: str
) -> np.ndarray[Any, Any]:
    """An array of a flavour; where a dtype has no NaN or no infinity, of what it has."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < {"zeros": 0.1, "ones": 0.9}.get(flavour, 0.5)
    kind = dtype.kind
    if kind == "c":
        part = np.float32 if dtype == np.complex64 else np.float64
        return (made(rng, shape, part, flavour) + 1j * made(rng, shape, part, "normal")).astype(
            dtype
        )
    if "int" in dtype.name:
        return _integers(rng, shape, dtype, flavour)
    return _floats(rng, shape, dtype, flavour)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, flavour: str) -> Any:
    info = ml_dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    if flavour == "extremes":
        return rng.choice(np.array([low, high, low + 1, high - 1, 0, 1], object), shape).astype(
            dtype
        )
    bounds = {
        "ties": (0, 3),
        "zeros": (0, 2),
        "ones": (1, 2),
        "special": (-4, 8),
        "nans": (-1, 2),
    }.get(flavour, (-8, 60))
    x = rng.integers(max(low, bounds[0]), min(high, bounds[1]), shape, endpoint=bounds[1] > high)
    return (np.sort(x, axis=0) if flavour == "sorted" and x.ndim else x).astype(dtype)


def _floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, flavour: str) -> Any:
    if flavour == "ties":
        return rng.integers(-2, 3, shape).astype(dtype)
    if flavour == "ones":
        return np.ones(shape, dtype)
    if flavour == "zeros":
        return rng.choice(np.array([0.0, -0.0, 1.0]), shape).astype(dtype)
    x = rng.normal(size=shape)
    if flavour == "sorted" and x.ndim:
        x = np.sort(x, axis=0)
    x = np.where(np.abs(x) < 1e-2, 0.5, x) * 1.5
    holes = {
        "special": [np.nan, np.inf, -np.inf, 0.0, -0.0],
        "nans": [np.nan],
        "extremes": [np.inf, -np.inf],
    }.get(flavour)
    if holes:
        x = np.where(rng.random(shape) < 0.3, rng.choice(np.array(holes), shape), x)
    if flavour == "nans" and rng.random() < 0.3:
        x = np.full(shape, np.nan)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def indices(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, size: int, flavour: str
) -> Any:
    """Positions, most of them inside, some negative, some beyond the end."""
    info = ml_dtypes.iinfo(dtype)
    x = rng.integers(0, max(size, 1), shape)
    if flavour in ("special", "extremes"):
        x = np.where(
            rng.random(shape) < 0.3,
            rng.choice(np.array([-1, -size, size, size + 3, int(info.max), -size - 2]), shape),
            x,
        )
    return np.clip(x, int(info.min), int(info.max)).astype(dtype)
