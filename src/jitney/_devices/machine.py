"""`jitney.devices`: what there is to compute on, and what of the machine this process may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from .._jax.memory import MOST
from .._jax.memory import text as bytes_text
from .._limits import Limit, cores, host_memory
from .._owners import public
from .._shown import Shown
from .configure import threads_asked

if TYPE_CHECKING:
    from rich.table import Table

_jax: Any = jax


@dataclass(frozen=True)
class DeviceFacts:
    """One device of JAX's.

    Args:
        name: As JAX prints it.
        platform: "cpu", "gpu" or "tpu".
        kind: The model.
        process: The process that it belongs to.
        bytes_limit: The memory that XLA may use of it; None where JAX does not say, as of CPUs.
        bytes_in_use: What of it is taken now.
        peak_bytes: The most that was taken.
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
        """Memory, what is in use and the peak, to be read."""
        return _size(self.bytes_limit), _size(self.bytes_in_use), _size(self.peak_bytes)


@dataclass(frozen=True, repr=False)
class Machine(Shown):
    """What `jitney.devices` found.

    Args:
        devices: All of JAX's, those of other processes too.
        cores: By each limit there is, the machine's own count first.
        threads: How many XLA was told to start for the CPU, by `jitney.configure` or the
            environment; None leaves it to XLA, which takes the affinity.
        host_bytes: Of the host's memory what this process may have.
        host_free: And what of it is free.
        most_bytes: What `memory="auto"` takes at most, if `jitney.configure(memory=...)` has said
            so.
    """

    devices: tuple[DeviceFacts, ...]
    cores: tuple[Limit, ...]
    threads: int | None
    host_bytes: int
    host_free: int
    most_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """As data, for JSON."""
        return {
            **vars(self),
            "devices": [vars(each) for each in self.devices],
            "cores": [vars(limit) for limit in self.cores],
        }

    @property
    def allowed_cores(self) -> Limit:
        """The least of the limits on cores."""
        return min(self.cores, key=lambda limit: limit.value)

    def __rich__(self) -> Table:
        from .._console import figures

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
    """What there is to compute on, with memory, and what of the machine this process may use. It
    starts JAX's backend.

    Cores are counted by the machine, the affinity of the process, the quota of its cgroup,
    SLURM_CPUS_PER_TASK and OMP_NUM_THREADS. XLA itself sees the first two alone.
    """
    total, free = host_memory()
    return Machine(
        tuple(_facts(device) for device in _jax.devices()),
        cores(),
        threads_asked(),
        total,
        free,
        MOST.bytes,
    )


def _facts(device: Any) -> DeviceFacts:
    stats: Any = device.memory_stats() if device.process_index == _jax.process_index() else None
    known: dict[str, int] = stats or {}
    taken = (known.get(name) for name in ("bytes_limit", "bytes_in_use", "peak_bytes_in_use"))
    return DeviceFacts(
        str(device), device.platform, device.device_kind, device.process_index, *taken
    )


def _size(count: int | None) -> str:
    return "unknown" if count is None else bytes_text(count)
