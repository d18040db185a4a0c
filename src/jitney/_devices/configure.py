"""`jitney.configure`: settings of the whole process, some only until JAX starts a backend.

`JITNEY_THREADS`, `JITNEY_PLATFORM` and `JITNEY_MEMORY` are read when jitney is imported, and only
if they are set is this module imported then. Later would be too late, since the first array that is
created starts a backend. Without them importing jitney changes nothing.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import jax

from .._errors import OptionError, SettingWarning, format_error
from .._extent import parsed_bytes
from .._host.limits import allowed_cores
from .._host.switches import SETTINGS, read_settings
from .._jax.compile_cache import cache as _cache
from .._jax.settings import platforms_setting
from .._jax.trees import is_number, is_whole
from .._jax.xla.memory import MOST
from .._owners import public, users_level
from .attach import read_port, read_signal, report_at, serve

_THREADS = "PJRT_NPROC"
"""Variable that XLA's CPU client reads for the number of threads in each of its two pools (tried
with jaxlib 0.10.2 and 0.12.0.1).
"""
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_PLATFORMS = "jax_platforms"
_OPTIONS = {_THREADS: "`threads`", _FRACTION: "`memory`", _PLATFORMS: "`platform`"}
_PROBE = "jax_num_cpu_devices"
_LOCK = threading.Lock()


def backend_started() -> bool:
    """Return whether JAX has started a backend.

    No public function reports it. But a documented setting may only be changed before a backend
    starts, so it is changed, and changed back.
    """
    with _LOCK:
        value = getattr(jax.config, _PROBE)
        # The error is raised only if the value changes, so the probe has to differ.
        other = 1 if value != 1 else 2
        try:
            jax.config.update(_PROBE, other)
        except RuntimeError:
            return True
        jax.config.update(_PROBE, value)
        return False


@public
def configure(
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    cache: bool | None = None,
    verify: bool | None = None,
    debug_nans: bool | None = None,
    compiler: Literal["default", "fast"] | None = None,
    auto: bool | Literal["exact"] | None = None,
    threads: int | Literal["auto"] | None = None,
    memory: float | str | None = None,
    platform: str | None = None,
    profiler_port: int | None = None,
    report_signal: str | int | None = None,
) -> None:
    """Change settings of the whole process: the persistent cache, options of all functions, and
    what JAX starts with.

    Settings that are left out stay as they were. Arguments take precedence over the environment
    (JITNEY_CACHE_DIR, JITNEY_CACHE, JITNEY_VERIFY, JITNEY_DEBUG_NANS, JITNEY_COMPILER,
    JITNEY_AUTO, JITNEY_THREADS, JITNEY_MEMORY, JITNEY_PLATFORM). Cache settings that were made in
    JAX itself take precedence over the arguments.

    `verify`, `debug_nans`, `compiler` and `auto` hold from the next call of each function whose
    decorator does not give the option of that name. A function has its own programs under each
    value of the last three, and finds them again after a change back.

    Args:
        cache_dir: A directory of the user; created with mode 0700 if it is missing.
        cache_size: Bytes, or text like `"2GiB"`, or `"unlimited"`. Beyond it, the least recently
            used entries are deleted.
        cache: Whether to cache compiled programs at all.
        verify: Whether each new program is also run as plain `jax.jit` and compared.
        debug_nans: Whether the first operation that produces a NaN or an infinity is named.
        compiler: `"fast"` asks XLA for short compile times at the cost of run time.
        auto: Whether functions with `vmap` choose by measuring how they run: how many elements at a
            time, and in how many threads. `"exact"` takes only what is equal to the bit.
        threads: Number of threads that XLA has for computing on the CPU. `"auto"` is the least of
            the machine's cores, the affinity of the process, the quota of its cgroup,
            SLURM_CPUS_PER_TASK and OMP_NUM_THREADS. Only before a backend starts.
        memory: A size like `"8GiB"` is the upper limit of `memory="auto"` of a function, from the
            next plan on; `"auto"` removes the limit. A fraction like `0.5` is the part of each GPU
            that XLA reserves for itself: only before a backend starts.
        platform: Platform that JAX computes on: `"cpu"`, `"gpu"`, `"tpu"`, or several in order,
            `"gpu,cpu"`. Only before a backend starts.
        profiler_port: Port on which JAX's profiler server listens from now on, for
            `python -m jitney profile HOST:PORT`. It starts JAX's backend. Whoever reaches the port
            can take a profile.
        report_signal: Signal at which the process prints statistics and decisions of all decorated
            functions to stderr: `"SIGUSR1"`, `"SIGUSR2"` or `"SIGHUP"`. Only in the main thread.
    Raises:
        OptionError: If a value is malformed, or comes too late.
    """
    # Read and refuse first, so that an error leaves all settings as they were.
    asked = _read("jitney.configure()", threads, memory, platform)
    if asked.late:
        raise OptionError(
            "jitney.configure()",
            f"{asked.late} comes too late: JAX has started its backend.",
            _ONCE,
            "call it right after the imports, or set JITNEY_THREADS, JITNEY_MEMORY or"
            " JITNEY_PLATFORM.",
            code="J206",
        )
    settings = read_settings(
        verify=verify,
        debug_nans=debug_nans,
        compiler=compiler,
        auto=auto,
    )
    port, wanted = read_port(profiler_port), read_signal(report_signal)
    _cache.configure(cache_dir=cache_dir, cache_size=cache_size, cache=cache)
    asked.set()
    SETTINGS.configure(settings)
    report_at(wanted)
    # Last, since it starts the backend, which reads the others.
    serve(port)


_ONCE = "It is read once, when the first array is made or a device is asked for."


@dataclass(frozen=True)
class _Settings:
    """Requested settings of JAX's start, and the limit of `memory="auto"` (None: not requested).

    Args:
        start: Values by the names of JAX's options and XLA's variables.
        most: Bytes, or "auto" for all that is free.
    """

    start: dict[str, str]
    most: int | str | None

    @property
    def late(self) -> str:
        """Settings that a started backend has read with another value; empty while none has
        started.
        """
        # A value that is in force already is not late: `configure` may be called again with it.
        changed = [_OPTIONS[name] for name, value in self.start.items() if value != _now(name)]
        return ", ".join(changed) if changed and backend_started() else ""

    def set(self) -> None:
        """Apply the settings."""
        for name, value in self.start.items():
            if name == _PLATFORMS:
                jax.config.update(name, value)
            else:
                os.environ[name] = value
        # Read at each plan, so it is never late.
        if self.most is not None:
            MOST.bytes = self.most if isinstance(self.most, int) else None


def _read(
    where: str,
    threads: object,
    memory: object,
    platform: object,
) -> _Settings:
    start: dict[str, str] = {}
    if threads is not None:
        start[_THREADS] = str(_threads(where, threads))
    if platform is not None:
        start[_PLATFORMS] = _platform(where, platform)
    size = None if memory is None else _memory(where, memory)
    if isinstance(size, float):
        start[_FRACTION] = f"{size:g}"
        return _Settings(start, None)
    return _Settings(start, size)


def _now(name: str) -> str | None:
    return platforms_setting() if name == _PLATFORMS else os.environ.get(name)


def _threads(where: str, threads: Any) -> int:
    if threads == "auto":
        return allowed_cores().value
    if is_whole(threads) and threads > 0:
        return int(threads)
    raise OptionError(
        where,
        f"threads={threads!r} is not a number of threads.",
        'It is a positive int, or "auto".',
        "correct it.",
        code="J206",
    )


def _platform(where: str, platform: object) -> str:
    if isinstance(platform, str) and all(
        name.strip().isidentifier() for name in platform.split(",")
    ):
        return platform.strip()
    raise OptionError(
        where,
        f"platform={platform!r} is not known.",
        'It is "cpu", "gpu", "tpu", or several of them with commas.',
        "correct it.",
        code="J206",
    )


def _memory(where: str, memory: Any) -> int | float | str:
    """Parse `memory`: bytes, a fraction, or "auto"."""
    if is_number(memory) and 0 < memory < 1:
        return float(memory)
    size = parsed_bytes(memory)
    if size is not None:
        return size
    raise OptionError(
        where,
        f"memory={memory!r} is not a size.",
        'It is bytes, a text with a unit, "auto", or a part of a GPU\'s memory below 1.',
        'write memory="8GiB", or memory=0.5.',
        code="J206",
    )


def requested_threads() -> int | None:
    """Number of threads that the environment sets for XLA on the CPU; None if it sets none."""
    text = os.environ.get(_THREADS, os.environ.get("NPROC", ""))
    return int(text) if text.isdigit() else None


def from_environment() -> None:
    """Apply the settings of the environment, or warn that they come too late."""
    threads, memory, platform = (
        os.environ.get(f"JITNEY_{name}", "").strip() or None
        for name in ("THREADS", "MEMORY", "PLATFORM")
    )
    if threads is memory is platform is None:
        return
    # A fraction of a GPU, `0.5`: `parsed_bytes` reads sizes only, `0.5GiB`.
    part = memory is not None and re.fullmatch(r"0?\.\d+", memory) is not None
    where = "JITNEY_THREADS, JITNEY_MEMORY, JITNEY_PLATFORM"
    asked = _read(
        where,
        int(threads) if threads and threads.isdigit() else threads,
        float(memory) if memory and part else memory,
        platform,
    )
    if asked.late:
        what = (
            f"{asked.late} comes too late: JAX had started its backend before jitney was imported."
        )
        warnings.warn(
            format_error(where, what, _ONCE, "import jitney first."),
            SettingWarning,
            stacklevel=users_level(),
        )
    else:
        asked.set()
