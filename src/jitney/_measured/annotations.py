"""While a profile is on: calls of Programs, and the padding around them, as named spans in JAX's
trace.

Their methods are exchanged for that time, which is the one way in which a call costs nothing more
while no profile is on: even an annotation that nobody records takes a part of a microsecond, and so
does asking whether there is one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax

from .._diagnosis.jax_work import Phase, Watch
from .._interface.program import Program
from .._owners import public
from .._program.filling import Filling

_jax: Any = jax
Method = Callable[..., Any]
CALLED = "jitney"
"""The fact by which the span of a call is told from others; it says where the function is."""
COMPILED = "compiled_seconds"
"""The fact of the mark at the end of a call that traced or compiled: how many seconds."""


class Compiling(Watch):
    """Seconds of tracing, lowering and compiling, by thread."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()
        # results of each function's last call, so that what nobody else holds is waited for too
        self.last: dict[str, Any] = {}

    def saw(self, phase: Phase, name: str, place: str, seconds: float, *, hit: bool) -> None:
        self._of_thread.seconds = self.here + seconds

    @property
    def here(self) -> float:
        """What this thread has spent until now."""
        return getattr(self._of_thread, "seconds", 0.0)


@contextmanager
def named_calls() -> Generator[None]:
    """Calls have names in the trace. One at a time: whoever holds JAX's profiler."""
    with Compiling() as compiling:
        named = [
            (Program, "__call__", functools.partial(_call, compiling)),
            (Filling, "filled", functools.partial(_step, "pad")),
            (Filling, "cut", functools.partial(_step, "cut")),
        ]
        plain = [(kind, name, vars(kind)[name]) for kind, name, _ in named]
        try:
            for (kind, name, around), (_, _, method) in zip(named, plain, strict=True):
                setattr(kind, name, around(method))
            yield
        finally:
            for kind, name, method in plain:
                setattr(kind, name, method)


def _call(compiling: Compiling, call: Method) -> Method:
    @public
    @functools.wraps(call)
    def annotated(self: Program[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if _inside_jit():
            return call(self, *args, **kwargs)
        before = compiling.here
        # which stand between facts, and before them
        where = str(self.core.where).replace(",", ";").replace("#", "")
        with jax.profiler.TraceAnnotation(self.core.name, **{CALLED: where}):
            try:
                out = compiling.last[self.core.name] = call(self, *args, **kwargs)
                return out
            finally:
                seconds = compiling.here - before
                if seconds:
                    with jax.profiler.TraceAnnotation("traced and compiled", **{COMPILED: seconds}):
                        pass

    return annotated


def _step(name: str, step: Method) -> Method:
    @functools.wraps(step)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with jax.profiler.TraceAnnotation(name):
            return step(*args, **kwargs)

    return annotated


def _inside_jit() -> bool:
    """Whether a call becomes a part of a program. JAX tells which mesh there is where no trace is
    around only.
    """
    try:
        _jax.sharding.get_mesh()
    except ValueError:
        return True
    return False
