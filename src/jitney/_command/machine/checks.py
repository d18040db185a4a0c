"""Checks of `doctor` besides those of versions: threads and memory, a known fault of XLA, and two
measurements.

The limits of this process are compared with the threads that XLA takes. XLA reads the affinity of
the process. It does not read a cgroup's quota or SLURM's number, so these have to be passed to it
in `PJRT_NPROC` (seen with jaxlib 0.10.2 and 0.12.0.1 on CPUs).

A fault is tested with a small program whose result is known. Measurements, of a compile and of the
speed of JAX's default device, have no verdict: a good value depends on the machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..._devices.speeds import speed_of
from ..._host.limits import Host, whole_cores
from ..._jax.compile_cache import cache
from ..._text.json import Data

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """Line of the table of `doctor`.

    Args:
        name: Subject of the check.
        value: Result, in words.
        state: `warn`: it works, and could be better; `fail`: a program would fail or compute wrong
            numbers.
        fix: A line to paste; empty if all is well.
        data: The figures, for JSON.
    """

    name: str
    value: str
    state: State = "ok"
    fix: str = ""
    data: object = None

    def to_dict(self) -> Data:
        """Return the fields as a dict, for JSON."""
        return dict(self.__dict__)


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
    sums = np.sin(wide) @ np.ones(h.shape)
    want = float(np.mean(sums * np.cos(wide)))
    device = jax.default_backend()

    @jax.jit
    def mean(h: jax.Array) -> jax.Array:
        ones = jnp.ones((_ROWS, _ROWS), np.float32)
        product = jnp.matmul(jnp.sin(h), ones, precision="highest")
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


def measurements() -> list[Check]:
    """Return the figures."""
    # On the device of JAX's default, which may be set.
    (device,) = jnp.zeros(()).devices()
    speed = speed_of(device, ["tf32"])
    rate = speed.products["tf32"]
    return [
        _compile(),
        Check(
            "matmul",
            f"{rate / 1e9:,.1f} GFLOP/s, float32 at JAX's default precision",
            data={"flop_per_s": rate},
        ),
        Check(
            "memory bandwidth",
            f"{speed.bandwidth / 2**30:,.1f} GiB/s, read and written",
            data={"bytes_per_s": speed.bandwidth},
        ),
        Check(
            "dispatch",
            f"{speed.latency * 1e6:.1f} us a warm call, until its result is there",
            data={"seconds": speed.latency},
        ),
    ]


def _compile() -> Check:
    """Time the compilation of a fixed program, past the persistent cache."""

    def program(x: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jnp.tanh(x @ x.T) / (1 + jnp.sum(x * x, axis=0))
        return jnp.linalg.norm(x)

    lowered = jax.jit(program).lower(jax.ShapeDtypeStruct((64, 64), np.float32))
    with cache.pause_cache():
        began = time.perf_counter()
        lowered.compile()
        seconds = time.perf_counter() - began
    return Check(
        "compile", f"{seconds:.2f} s for a fixed program of 8 layers", data={"seconds": seconds}
    )
