"""Speed of each kind of device, measured in a few seconds: bandwidth of its memory, products of
matrices by type, and what a call costs that does nothing.

    read and write 256 MiB   products of n x n, n doubled until one takes 20 ms   y = x + 1
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from .._jax.devices import LocalDevice, local_devices
from .._public import public_in

_ARRAY, _ON_CPU = 2**28, 2**26
"""Bytes of the array that is read and written, which no cache holds; on a CPU a quarter of it."""
_LEAST, _MOST = 512, 8192
"""Rows of the matrices, at least and at most."""
_LONG = 20e-3
"""Seconds of a product that are long enough to be measured."""
_ROUNDS, _CALLS = 5, 100
_LABELS: Mapping[str, str] = {
    "f64": "float64",
    "f32": "float32, precision highest",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}
_DEFAULT = "tf32"
_REFUSALS = ("UNIMPLEMENTED", "INVALID_ARGUMENT")
"""How the message begins where a device does not have an operation of a type."""
_PRODUCTS: Mapping[str, tuple[str, str | None]] = {
    "f64": ("float64", "highest"),
    "f32": ("float32", "highest"),
    "tf32": ("float32", None),
    "bf16": ("bfloat16", None),
    "fp16": ("float16", None),
}
"""Name in `jitney.simulation.Device.peak` -> dtype of the factors, and JAX's precision of products;
None is the default one.
"""


@public_in("jitney.types")
@dataclass(frozen=True)
class DeviceSpeed:
    """Measured speed of one device.

    Args:
        name: JAX's printed name.
        kind: Model of the device.
        bandwidth: Bytes a second that are read and written, of an array in its memory.
        products: Operations a second of products of square matrices, by type: "f64", "f32"
            (precision "highest"), "tf32" (float32 at JAX's default precision), "bf16", "fp16". A
            type that the device refuses is left out.
        latency: Seconds of a call that adds one to a number, until the result is there.
    """

    name: str
    kind: str
    bandwidth: float
    products: Mapping[str, float]
    latency: float

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain data, for JSON."""
        return {**vars(self), "products": dict(self.products)}

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """The figures as text: device, what was measured, how much."""
        rates = [
            (f"products of {_LABELS[kind]}", f"{rate / 1e9:,.4g} GFLOP/s")
            for kind, rate in self.products.items()
        ]
        figures = [
            ("memory, read and written", f"{self.bandwidth / 1e9:,.3g} GB/s"),
            *rates,
            ("a call", f"{self.latency * 1e6:,.3g} us"),
        ]
        return [(self.name, what, how_much) for what, how_much in figures]


def fastest(measured: Sequence[DeviceSpeed]) -> DeviceSpeed:
    """Return the device with the fastest products of float32 at JAX's default precision."""
    return max(measured, key=lambda each: each.products.get(_DEFAULT, 0.0))


def device_of(speed: DeviceSpeed) -> object:
    """Return JAX's device that was measured."""
    return next(each for each in _one_of_each() if str(each) == speed.name)


def speeds() -> tuple[DeviceSpeed, ...]:
    """Measure one device of each kind of this process, of all of JAX's platforms."""
    return tuple(speed_of(device, tuple(_PRODUCTS)) for device in _one_of_each())


def _one_of_each() -> list[LocalDevice]:
    found: dict[tuple[str, str], LocalDevice] = {}
    for device in local_devices():
        found.setdefault((device.platform, device.device_kind), device)
    return list(found.values())


def speed_of(
    device: LocalDevice,
    types: Sequence[str],
) -> DeviceSpeed:
    """Measure a device, with the products of these types.

    Raises:
        jax.errors.JaxRuntimeError: The device failed, for another reason than the type.
    """
    with jax.default_device(device):
        rates = {name: _product_rate(*_PRODUCTS[name]) for name in types}
        return DeviceSpeed(
            str(device),
            device.device_kind,
            _bandwidth(device),
            {name: rate for name, rate in rates.items() if rate is not None},
            _latency(),
        )


def _bandwidth(device: LocalDevice) -> float:
    size = _ON_CPU if device.platform == "cpu" else _ARRAY
    stats = device.memory_stats() or {}
    size = min(size, stats.get("bytes_limit", 8 * size) // 8)
    x = jnp.zeros(size // 4, np.float32)
    return 2 * size / _least_seconds(jax.jit(_add_one), x)


def _latency() -> float:
    f, x = jax.jit(_add_one), jnp.zeros((), np.float32)
    jax.block_until_ready(f(x))
    seconds: list[float] = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        jax.block_until_ready(f(x))
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[_CALLS // 2]


def _product_rate(dtype: str, precision: str | None) -> float | None:
    """Operations a second; None if the device does not multiply this type."""
    x64 = jax.enable_x64
    with x64(dtype == "float64"), jax.default_matmul_precision(precision):
        rows = _LEAST
        while True:
            x = jnp.ones((rows, rows), dtype)
            try:
                seconds = _least_seconds(jax.jit(_multiply), x)
            except jax.errors.JaxRuntimeError as error:
                if str(error).startswith(_REFUSALS):
                    return None
                raise
            if seconds >= _LONG or rows >= _MOST:
                return 2 * rows**3 / seconds
            # As many rows as take that long, by the cube.
            while rows < _MOST and seconds < _LONG:
                rows, seconds = 2 * rows, 8 * seconds


def _least_seconds(f: Callable[..., object], x: jax.Array) -> float:
    jax.block_until_ready(f(x))
    seconds: list[float] = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(f(x))
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _add_one(x: jax.Array) -> jax.Array:
    return x + 1


def _multiply(x: jax.Array) -> jax.Array:
    return x @ x
