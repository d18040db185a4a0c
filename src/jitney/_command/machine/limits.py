"""Threads and memory that this process may use, against the threads that XLA takes.

XLA reads the affinity of the process. It does not read a cgroup's quota or SLURM's number, so these
have to be passed to it in `PJRT_NPROC` (seen with jaxlib 0.10.2 and 0.12.0.1 on CPUs).
"""

from __future__ import annotations

from ..._host.limits import Host, whole_cores
from .checks import Check

# Share of free memory below which `doctor` warns.
_TIGHT = 0.1


def threads(host: Host) -> Check:
    """Compare the number of threads that XLA takes with the limits of the process."""
    cores, quota = host.by_affinity(), host.quota()
    slurm, asked = host.count("SLURM_CPUS_PER_TASK"), host.count("OMP_NUM_THREADS")
    taken = host.count("PJRT_NPROC") or host.count("NPROC") or cores
    limits: list[int] = [
        cores,
        *([whole_cores(quota)] if quota is not None else []),
        *([slurm] if slurm else []),
    ]
    given = min(limits)
    parts = [f"XLA takes {taken} on a CPU", f"{cores} cores by affinity"]
    parts += [f"a quota of {quota:g}"] if quota is not None else []
    parts += [f"SLURM_CPUS_PER_TASK={slurm}"] if slurm else []
    parts += [f"OMP_NUM_THREADS={asked}, which XLA does not read"] if asked else []
    data = {"xla": taken, "affinity": cores, "quota": quota, "slurm": slurm, "omp": asked}
    if taken > given:
        return Check("threads", ", ".join(parts), "warn", f"export PJRT_NPROC={given}", data)
    return Check("threads", ", ".join(parts), data=data)


def memory(host: Host) -> Check:
    """Report the free memory of the machine, and use and limit of the cgroup."""
    whole, limit, used = host.memory(), host.memory_limit(), host.used_memory()
    parts: list[str] = []
    shares: list[float] = []
    if whole is not None:
        parts.append(f"{whole[1] / 2**30:.1f} of {whole[0] / 2**30:.1f} GiB free")
        shares.append(whole[1] / whole[0])
    if limit is not None and used is not None:
        parts.append(
            f"the cgroup uses {used / 2**30:.1f} of {limit / 2**30:.1f} GiB, kept files included"
        )
    elif limit is not None:
        parts.append(f"a limit of {limit / 2**30:.1f} GiB")

    # The cgroup's use includes cached files, so only the machine's free memory can lead to a
    # warning.
    data = {
        "total": whole and whole[0],
        "available": whole and whole[1],
        "limit": limit,
        "used": used,
    }
    value = ", ".join(parts) or "unknown on this system"
    if min(shares, default=1.0) < _TIGHT:
        return Check("memory", value, "warn", "ps -eo rss,pid,comm --sort=-rss | head", data)
    return Check("memory", value, data=data)
