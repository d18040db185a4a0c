"""Peak figures of devices, from their makers' tables: speed, memory, links. Nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .._errors import OptionError, name_fix
from .._jax.trees import is_number
from .._public import public_in

_TERA, _GIGA, _MICRO = 10**12, 10**9, 1e-6
# From narrow to wide: `Device.computed_in` takes the next wider type.
PEAKS = ("fp8", "int8", "bf16", "fp16", "tf32", "f32", "f64")


@public_in("jitney.simulation")
@dataclass(frozen=True)
class Device:
    """Kind of device, for `jitney.simulation.simulate`.

    Args:
        name: Name of the device.
        memory: Bytes of memory.
        bandwidth: Bandwidth of its memory, in bytes/s.
        peak: Operations a second on matrices, dense, by type: "bf16", "fp16", "tf32", "f32", "f64",
            "fp8", "int8". "tf32" is a product of float32 matrices at JAX's default precision, "f32"
            one at precision "highest".
        vector: Operations a second on everything that is not a product of matrices.
        group: Number of devices that share the fast links: those of a node, or of a pod.
        link: Bandwidth of the fast links of one device, in bytes/s in one direction.
        network: Share of one device in the links between nodes, in bytes/s in one direction.
        link_latency: Latency of one message over the fast links, in seconds.
        network_latency: Latency of one message between nodes, in seconds.
        source: Source of the figures.
    """

    name: str
    memory: int
    bandwidth: float
    peak: Mapping[str, float] = field(hash=False)
    vector: float
    group: int = 8
    link: float = 450 * _GIGA
    network: float = 50 * _GIGA
    link_latency: float = 2 * _MICRO
    network_latency: float = 5 * _MICRO
    source: str = "given"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.peak, Mapping):
            raise OptionError(
                "jitney.simulation.Device()",
                f"name={self.name!r}, peak={self.peak!r}.",
                "A device has a name, and peaks by type.",
                'write jitney.simulation.Device("mine", memory=80e9, bandwidth=2e12,'
                ' peak={"bf16": 3e14}, vector=6e13).',
                code="J208",
            )
        unknown = [name for name in self.peak if name not in PEAKS]
        numbers = [
            self.memory,
            self.bandwidth,
            self.vector,
            self.group,
            self.link,
            self.network,
            *self.peak.values(),
        ]
        if (
            unknown
            or not self.peak
            or not all(is_number(number) and number > 0 for number in numbers)
        ):
            raise OptionError(
                f"jitney.simulation.Device({self.name!r})",
                (
                    f"its peaks have an unknown type {unknown[0]!r}."
                    if unknown
                    else "a size or a speed is not above 0."
                ),
                f"Peaks are given by {', '.join(PEAKS)}, in operations a second; sizes and speeds"
                " are above 0.",
                "correct it.",
                code="J208",
            )

        object.__setattr__(self, "peak", MappingProxyType(dict(self.peak)))

    def computed_in(self, kind: str) -> str:
        """Return the type in which products of a type are computed on this device.

        It is the next wider type if the device has no peak for the given one.
        """
        wider = [name for name in PEAKS[PEAKS.index(kind) :] if name in self.peak]
        return wider[0] if wider else max(self.peak, key=PEAKS.index)

    def speed(self, kind: str) -> float:
        """Return the operations a second on matrices of a type."""
        return self.peak[self.computed_in(kind)]


def _gpu(
    name: str,
    source: str,
    memory: float,
    bandwidth: float,
    tera: Mapping[str, float],
    vector: float,
    link: float,
    network: float,
    group: int = 8,
) -> Device:
    """Return a device with figures in GB, GB/s and Tera-operations a second."""
    peak = {kind: speed * _TERA for kind, speed in tera.items()}
    return Device(
        name,
        int(memory * _GIGA),
        bandwidth * _GIGA,
        peak,
        vector * _TERA,
        group,
        link * _GIGA,
        network * _GIGA,
        source=source,
    )


def _tpu(
    name: str,
    source: str,
    memory: float,
    bandwidth: float,
    bf16: float,
    int8: float,
    link: float,
    network: float,
    pod: int,
) -> Device:
    """Return a TPU with figures in GB, GB/s and Tera-operations a second.

    TPUs multiply bfloat16; a float32 product takes one such pass at JAX's default precision, and
    six at "highest". The speed of the vector unit is not published: a sixteenth of the matrix
    unit's is assumed.
    """
    peak = {"int8": int8, "bf16": bf16, "fp16": bf16, "tf32": bf16, "f32": bf16 / 6}
    return _gpu(name, source, memory, bandwidth, peak, bf16 / 16, link, network, pod)


_HOPPER = {
    "fp8": 1979,
    "int8": 1979,
    "bf16": 989.5,
    "fp16": 989.5,
    "tf32": 494.7,
    "f32": 67,
    "f64": 67,
}
_GOOGLE = "Google Cloud documentation, system architecture of"
_ALL = (
    _gpu(
        "h100",
        "NVIDIA H100 Tensor Core GPU datasheet, SXM, 2023, without sparsity; DGX H100 datasheet,"
        " one 400 Gb/s port a GPU",
        80,
        3350,
        _HOPPER,
        67,
        450,
        50,
    ),
    _gpu(
        "h200",
        "NVIDIA H200 Tensor Core GPU datasheet, SXM, 2024, without sparsity; DGX H200 datasheet,"
        " one 400 Gb/s port a GPU",
        141,
        4800,
        _HOPPER,
        67,
        450,
        50,
    ),
    _gpu(
        "a100",
        "NVIDIA A100 Tensor Core GPU datasheet, 80 GB SXM, 2021, without sparsity; DGX A100"
        " datasheet, one 200 Gb/s port a GPU",
        80,
        2039,
        {"int8": 624, "bf16": 312, "fp16": 312, "tf32": 156, "f32": 19.5, "f64": 19.5},
        19.5,
        300,
        25,
    ),
    _gpu(
        "b200",
        "NVIDIA DGX B200 datasheet, 2024, an eighth of the system, without sparsity; one 400 Gb/s"
        " port a GPU",
        180,
        8000,
        {"fp8": 4500, "int8": 4500, "bf16": 2250, "fp16": 2250, "tf32": 1100, "f32": 75, "f64": 37},
        75,
        900,
        50,
    ),
    _tpu("tpu-v4", f"{_GOOGLE} TPU v4, 2023", 32, 1228, 275, 275, 300, 6.25, 4096),
    _tpu("tpu-v5e", f"{_GOOGLE} TPU v5e, 2024", 16, 819, 197, 393, 200, 3.125, 256),
    _tpu("tpu-v5p", f"{_GOOGLE} TPU v5p, 2024", 95, 2765, 459, 918, 600, 6.25, 8960),
    _tpu("tpu-v6e", f"{_GOOGLE} TPU v6e, 2024", 32, 1600, 918, 1836, 400, 12.5, 256),
    _gpu(
        "cpu",
        "AMD EPYC 9654 datasheet, 2022: a socket with 96 cores at 2.4 GHz, twelve channels of"
        " DDR5-4800; 64 GB in each channel and 200 Gb/s between sockets are assumed",
        768,
        460.8,
        {"bf16": 14.7, "f32": 7.37, "f64": 3.69},
        7.37,
        25,
        25,
        1,
    ),
)
DEVICES: Mapping[str, Device] = MappingProxyType({device.name: device for device in _ALL})


def device_of(where: Any, given: object) -> Device:
    """Return a device by its name; a `Device` is returned as it is.

    Raises:
        OptionError: No device has that name.
    """
    if isinstance(given, Device):
        return given
    device = DEVICES.get(given.lower()) if isinstance(given, str) else None
    if device is None:
        raise OptionError(
            where,
            f"device={given!r} is not known.",
            f"Those that are: {', '.join(DEVICES)}.",
            name_fix(
                str(given).lower(), DEVICES, "describe yours with jitney.simulation.Device(...)."
            ),
            code="J202",
        )
    return device
