"""Limits of the process on its machine: cores and memory, from all places where they are set.

Containers and batch systems set limits in several places, of which XLA reads one, the affinity of
the process. This module stands at the bottom, since a plan needs the available memory, and users
may query it. Files are read at each call: the limits of a container may change while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# In bytes; version 1 of cgroups reports about 2**63 for no limit.
_NO_LIMIT = 2**60
_VARIABLES = ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class HostLimit:
    """Limit, and the authority that sets it."""

    by: str
    value: int


@dataclass(frozen=True)
class Host:
    """Sources of the limits; tests substitute their own.

    Args:
        root: The root of the file system.
        environment: The environment variables.
        affinity: Number of cores the process may run on; None queries the system.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    affinity: int | None = None

    def cores(self) -> tuple[HostLimit, ...]:
        """Number of cores the process may run on, by each limit that is set; the machine's own
        count comes first.
        """
        found = [
            HostLimit("the machine", os.cpu_count() or 1),
            HostLimit("the affinity of the process", self.by_affinity()),
        ]
        quota = self.quota()
        if quota is not None:
            found.append(HostLimit("the cgroup", whole_cores(quota)))
        counts = ((name, self.count(name)) for name in _VARIABLES)
        others = [HostLimit(name, count) for name, count in counts if count is not None]
        return (*found, *others)

    def by_affinity(self) -> int:
        """Number of cores in the process's affinity mask, which is what XLA counts."""
        if self.affinity is not None:
            return self.affinity
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )

    def quota(self) -> float | None:
        """CPU quota of the cgroup in cores; None without a limit."""
        # A quota of a parent group limits its children too, so the least counts.
        found = [quota for folder in self._groups("cpu") if (quota := _quota(folder)) is not None]
        return min(found, default=None)

    def count(self, variable: str) -> int | None:
        """Number of threads from a variable. OpenMP's list has one number per level of nesting, and
        the first counts.
        """
        first = self.environment.get(variable, "").split(",")[0].strip()
        return int(first) if first.isdigit() and int(first) > 0 else None

    def memory_limit(self) -> int | None:
        """Memory limit of the cgroup in bytes; None without a limit."""
        return min((limit for limit, _ in self._memory_groups()), default=None)

    def used_memory(self) -> int | None:
        """Memory used by the cgroup with the least limit in bytes, including cached files; None
        without a limit.
        """
        _, used = min(self._memory_groups(), key=lambda group: group[0], default=(0, None))
        return used

    def memory(self) -> tuple[int, int] | None:
        """Total and available memory of the machine in bytes; None if the system does not report
        it.
        """
        text = _text(self.root / "proc/meminfo")
        lines = dict(line.split(":", 1) for line in (text or "").splitlines() if ":" in line)
        try:
            total, free = (
                int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")
            )
        except (KeyError, ValueError, IndexError):
            return None
        return total, free

    def _memory_groups(self) -> Iterator[tuple[int, int | None]]:
        """Limit and usage of each group that has a limit."""
        for folder in self._groups("memory"):
            for limited, using in (
                ("memory.max", "memory.current"),
                ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            ):
                limit = _number(folder / limited)
                if limit is not None and limit < _NO_LIMIT:
                    yield limit, _number(folder / using)

    def _groups(self, controller: str) -> Iterator[Path]:
        """Folders of the process's cgroup in versions 1 and 2, the innermost first, then its
        parents, whose limits count as well.
        """
        mounted = self.root / "sys/fs/cgroup"
        for line in (_text(self.root / "proc/self/cgroup") or "").splitlines():
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            # A line is `number:controllers:path`; version 2 has the number 0 and no controllers.
            if number == "0" and not names:
                bases = [mounted, mounted / "unified"]
            elif controller in names.split(","):
                bases = [mounted / controller, mounted / names]
            else:
                continue
            for base in bases:
                inner = base / path.strip("/")
                yield from (
                    folder for folder in (inner, *inner.parents) if folder.is_relative_to(base)
                )


def cores() -> tuple[HostLimit, ...]:
    """Number of cores this process may run on, by each limit that is set."""
    return Host().cores()


def allowed_cores() -> HostLimit:
    """The least of these limits."""
    return min(cores(), key=lambda limit: limit.value)


def whole_cores(quota: float) -> int:
    """Number of threads for a quota; a fraction of a core counts as one."""
    return max(1, -int(-quota // 1))


def host_memory(host: Host | None = None) -> tuple[int, int]:
    """Memory of the host that the process may use, and how much of it is free, in bytes."""
    host = host or Host()
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = host.memory() or (
        os.sysconf("SC_PHYS_PAGES") * page,
        os.sysconf("SC_AVPHYS_PAGES") * page,
    )
    # A cgroup may allow less than the machine has.
    limit, used = host.memory_limit(), host.used_memory()
    if limit is not None:
        total, free = min(total, limit), min(free, max(0, limit - (used or 0)))
    return total, free


def _quota(folder: Path) -> float | None:
    text = _text(folder / "cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        with suppress(ValueError, ZeroDivisionError):
            return int(quota) / int(period)
        return None
    microseconds, period_ = (
        _number(folder / "cpu.cfs_quota_us"),
        _number(folder / "cpu.cfs_period_us"),
    )
    return (
        microseconds / period_
        if microseconds is not None and microseconds > 0 and period_
        else None
    )


def _number(file: Path) -> int | None:
    text = _text(file)
    with suppress(ValueError):
        return int(text) if text is not None else None
    return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
