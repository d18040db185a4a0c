"""Timing of forward against reverse, done once and remembered, where the sizes cannot tell which is
faster.

Times are stored by program, shapes, device and JAX version: in the process, and in a file next to
the compilation cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax

from .._host.atomic_files import replace_file
from .._jax.compile_cache.cache import folder
from .._jax.programs.evaluation import evaluate_jaxpr
from .._jax.programs.jaxprs import equations, open_jaxpr
from .._jax.typed import NumPyArray
from .directions import AbstractLeaves, Leaves
from .typed_numpy import np

TimedFunction = Callable[[Callable[[Leaves], Leaves], Leaves], object]
"""Builds the function to time from the user's function and its arguments."""

# Timed calls, of which the fastest counts.
_CALLS = 5
# Seconds of a call after which one call is enough.
_LONG = 0.2
# Equations beyond which compiling twice costs too much.
_LARGEST = 500
# Programs that a process remembers.
_MOST = 1024


class Times:
    """Thread-safe store of the times that this process has measured, of the last `_MOST`
    programs.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, float]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> dict[str, float] | None:
        with self._lock:
            return self._found.get(key)

    def keep(self, key: str, times: dict[str, float]) -> dict[str, float]:
        """Store the times unless another thread came first; return those that count."""
        with self._lock:
            kept = self._found.setdefault(key, times)
            if len(self._found) > _MOST:
                del self._found[next(iter(self._found))]
            return kept


_KNOWN = Times()


def seconds(
    traced: object,
    at: AbstractLeaves,
    ways: Mapping[str, TimedFunction],
) -> dict[str, float] | None:
    """Seconds of a call in each mode, on made-up arguments; None if the program is too large to
    compile for this.

    Args:
        traced: Program of the function.
        at: Arguments, or abstract ones.
        ways: Functions to time, by mode.
    """
    if sum(1 for _ in equations(traced)) > _LARGEST:
        return None
    key = _key(traced, at, sorted(ways))
    known = _KNOWN.get(key)
    if known is not None:
        return known
    path = _path(key)
    kept = _read(path, ways)
    # Not under the lock: a measurement may run the user's rules, which may wait for another thread.
    times = _KNOWN.keep(key, kept or _measure_times(traced, at, ways))
    if path is not None and kept is None:
        _write(path, times)
    return times


def _measure_times(
    traced: object,
    at: AbstractLeaves,
    ways: Mapping[str, TimedFunction],
) -> dict[str, float]:
    program, constants = open_jaxpr(traced)
    arguments = [[_example(leaf) for leaf in leaves] for leaves in (constants, at)]
    fastest: dict[str, float] = {}
    for name, timed in ways.items():

        def call(
            constants: Leaves,
            at: Leaves,
            timed: TimedFunction = timed,
        ) -> object:
            def fn(arrays: Leaves) -> Leaves:
                return evaluate_jaxpr(program, constants, arrays)

            return timed(fn, at)

        compiled = jax.jit(call).lower(*arguments).compile()
        times: list[float] = []
        jax.block_until_ready(compiled(*arguments))
        while len(times) < _CALLS and (not times or times[-1] < _LONG):
            start = time.perf_counter()
            jax.block_until_ready(compiled(*arguments))
            times.append(time.perf_counter() - start)
        fastest[name] = min(times)
    return fastest


def _example(leaf: jax.Array | jax.ShapeDtypeStruct) -> NumPyArray:
    """NumPy array, so that nothing of it is traced: numbers between 0.5 and 1.5, or ones."""
    if not np.issubdtype(leaf.dtype, np.floating):
        return np.ones(leaf.shape, leaf.dtype)
    size = int(np.prod(leaf.shape))
    numbers = np.linspace(0.5, 1.5, size, dtype=leaf.dtype)
    return numbers.reshape(leaf.shape)


def _key(traced: object, at: AbstractLeaves, ways: Sequence[str]) -> str:
    _, constants = open_jaxpr(traced)
    shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in (*constants, *at)]
    device = jax.devices()[0]
    # Addresses of objects differ from process to process.
    program = re.sub("0x[0-9a-f]+", "", str(traced))
    parts = (
        jax.__version__,
        device.platform,
        device.device_kind,
        str(os.cpu_count()),
        *ways,
        *shapes,
        program,
    )
    text = "\n".join(parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _path(key: str) -> Path | None:
    modes = folder("modes")
    return None if modes is None else modes / f"{key[:32]}.json"


def _read(path: Path | None, ways: Mapping[str, TimedFunction]) -> dict[str, float] | None:
    """Times that an earlier process has measured; None if there are none or they do not fit."""
    try:
        stored = json.loads(path.read_text()) if path is not None else None
    except (OSError, ValueError):
        return None
    fits = (
        isinstance(stored, dict)
        and set(stored) == set(ways)
        and all(isinstance(stored[way], float) and stored[way] > 0 for way in ways)
    )
    return stored if fits else None


def _write(path: Path, times: Mapping[str, float]) -> None:
    """Write the file atomically. If the folder cannot be written, the next process measures
    again.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(times).encode(), private=True)
