"""What jitney did in a main job, kept beside the job's pictures, for the summary that ends the
demo.

Counts are JAX's own, of all that a process asks XLA for, whoever asked.
"""

import functools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from ._timing import assert_equal, in_turn

FILE = "summary.json"
SECONDS = 0.5  # of a comparison


@functools.cache
def counted() -> Counter[str]:
    """Programs, those from the persistent cache, and seconds of compiling so far in this process;
    JAX adds to it from the first call on.
    """
    found: Counter[str] = Counter()

    def lasted(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("/backend_compile_duration"):
            found["programs"] += 1
            found["milliseconds"] += round(1000 * seconds)

    def happened(event: str, **_: Any) -> None:
        if event.endswith("/compilation_cache/cache_hits"):
            found["kept"] += 1

    jax.monitoring.register_event_duration_secs_listener(lasted)
    jax.monitoring.register_event_listener(happened)
    return found


@dataclass
class Watch:
    """One main job: made when it begins, kept when it ends."""

    began: float = field(default_factory=time.perf_counter)
    before: Counter[str] = field(default_factory=lambda: Counter(counted()))
    pairs: list[dict[str, Any]] = field(default_factory=list)

    def compare(
        self,
        what: str,
        ours: Callable[[], Any],
        plain: Callable[[], Any],
        rtol: float = 1e-6,
        part: Callable[[Any], Any] = lambda out: out,
    ) -> None:
        """Time a program of jitney and plain `jax.jit` of the same function in turn, warm; their
        results, or a part, are compared first.
        """
        calls = {"jitney": ours, "plain": plain}
        assert_equal({name: part(call()) for name, call in calls.items()}, rtol, atol=rtol)
        self.pairs.append({"what": what, **in_turn(calls, SECONDS)})

    def keep(self, folder: Path) -> None:
        """Write the summary of the job."""
        counts = counted() - self.before
        hits = counts["kept"]
        found = {
            "seconds": time.perf_counter() - self.began,
            "compiled": counts["programs"] - hits,
            "from the cache": hits,
            "compiling": counts["milliseconds"] / 1000,
            "peak MiB": peak(),
            "pairs": self.pairs,
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(found))


def peak() -> float | None:
    """The most memory that this process has taken, in MiB; Windows does not tell."""
    if sys.platform == "win32":
        return None
    if sys.platform == "linux":  # where `ru_maxrss` of a child begins at its parent's memory
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024**2 if sys.platform == "darwin" else 1024
    )
