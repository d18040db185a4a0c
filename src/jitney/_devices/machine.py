"""`jitney.devices`: the devices, and the cores and memory that this process may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from .._host.limits import HostLimit, cores, host_memory
from .._jax.xla.memory import MOST
from .._jax.xla.memory import text as bytes_text
from .._owners import public
from .._public import public_in
from .._text.shown import Shown
from .configure import requested_threads

if TYPE_CHECKING:
    from rich.table import Table


@public_in("jitney.types")
@dataclass(frozen=True)
class DeviceFacts:
    """Facts of a JAX device.

    Args:
        name: JAX's printed name.
        platform: "cpu", "gpu" or "tpu".
        kind: Model of the device.
        process: Process that it belongs to.
        bytes_limit: Memory that XLA may use of it; None if JAX does not report it, such as for
            CPUs.
        bytes_in_use: Memory in use now.
        peak_bytes: Largest memory in use so far.
    """

    name: str
    platform: str
    kind: str
    process: int
    bytes_limit: int | None
    bytes_in_use: int | None
    peak_bytes: int | None

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Memory, memory in use and peak, as text."""
        return _size(self.bytes_limit), _size(self.bytes_in_use), _size(self.peak_bytes)


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Machine(Shown):
    """Result of `jitney.devices`.

    Args:
        devices: JAX's devices, including those of other processes.
        cores: Number of cores by each limit, the machine's own count first.
        threads: Number of XLA's threads for the CPU, set by `jitney.configure` or the environment;
            None leaves it to XLA, which takes the affinity.
        host_bytes: Memory of the host that this process may use.
        host_free: Free part of it.
        most_bytes: Limit of `memory="auto"`, if set by `jitney.configure(memory=...)`.
    """

    devices: tuple[DeviceFacts, ...]
    cores: tuple[HostLimit, ...]
    threads: int | None
    host_bytes: int
    host_free: int
    most_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """The facts as data, for JSON."""
        return {
            **vars(self),
            "devices": [vars(each) for each in self.devices],
            "cores": [vars(limit) for limit in self.cores],
        }

    @property
    def allowed_cores(self) -> HostLimit:
        """The smallest limit on cores."""
        return min(self.cores, key=lambda limit: limit.value)

    def __rich__(self) -> Table:
        from .._text.console import figures

        # XLA's default number of threads is the affinity, whatever the other limits are.
        limit, seen = (
            self.allowed_cores,
            next((each.value for each in self.cores if "affinity" in each.by), self.cores[0].value),
        )
        rows = [
            ("device", "kind", "memory", "in use", "peak"),
            *(
                (
                    each.name,
                    f"{each.platform}, {each.kind}",
                    *map(_size, (each.bytes_limit, each.bytes_in_use, each.peak_bytes)),
                )
                for each in self.devices
            ),
            ("host", "memory", bytes_text(self.host_bytes), f"{bytes_text(self.host_free)} free"),
            *(
                (("host", 'of memory="auto"', f"{bytes_text(self.most_bytes)} at most"),)
                if self.most_bytes is not None
                else ()
            ),
            *(("cores", each.by, f"{each.value}") for each in self.cores),
            (
                "threads",
                "of XLA on the CPU",
                f"{self.threads if self.threads is not None else seen}",
            ),
        ]
        title = f"{len(self.devices)} devices; {limit.value} cores, by {limit.by}"
        if (self.threads if self.threads is not None else seen) > limit.value:
            title += (
                '. XLA has more threads than that: jitney.configure(threads="auto") before it'
                " starts, or JITNEY_THREADS=auto"
            )
        return figures(title, rows)


@public
def devices() -> Machine:
    """Devices with their memory, and the cores and memory of the machine that this process may use.
    It starts JAX's backend.

    Cores are counted by the machine, the affinity of the process, the quota of its cgroup,
    SLURM_CPUS_PER_TASK and OMP_NUM_THREADS. XLA itself sees the first two alone.
    """
    total, free = host_memory()
    return Machine(
        tuple(_facts(device) for device in jax.devices()),
        cores(),
        requested_threads(),
        total,
        free,
        MOST.bytes,
    )


def _facts(device: Any) -> DeviceFacts:
    # JAX has no memory statistics of other processes' devices.
    stats: dict[str, int] = {}
    if device.process_index == jax.process_index():
        stats = device.memory_stats() or {}
    return DeviceFacts(
        str(device),
        device.platform,
        device.device_kind,
        device.process_index,
        stats.get("bytes_limit"),
        stats.get("bytes_in_use"),
        stats.get("peak_bytes_in_use"),
    )


def _size(count: int | None) -> str:
    return "unknown" if count is None else bytes_text(count)
