"""Names for calls of Programs, and for the padding around them, in JAX's trace during a profile.

The methods are monkeypatched for that time. It is the only way in which a call costs nothing more
without a profile: even an annotation that is not recorded takes a part of a microsecond, and so
does the test for a profile.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import jax

from .._diagnosis.jax_work import Phase, Watch
from .._interface.calling import CallableProgram
from .._owners import public
from .._program.runners.filling import Filling
from .._text.json import Data

Method = Callable[..., object]
CALLED = "jitney"
"""Name of the fact that marks the span of a call; its value is the place of the function."""
COMPILED = "compiled_seconds"
"""Name of the fact at the end of a call that traced or compiled; its value is the seconds."""


class Compiling(Watch):
    """Seconds of tracing, lowering and compiling, by thread."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()
        # Results of each function's last call. The end of a profile waits for live arrays, and this
        # keeps those alive that the program discards.
        self.last: Data = {}

    def saw(
        self,
        phase: Phase,
        name: str,
        place: str,
        seconds: float,
        *,
        hit: bool,
    ) -> None:
        self._of_thread.seconds = self.thread_seconds + seconds

    @property
    def thread_seconds(self) -> float:
        """Seconds of this thread so far."""
        return getattr(self._of_thread, "seconds", 0.0)


@contextmanager
def named_calls() -> Generator[None]:
    """Name the calls in the trace. Only the owner of JAX's profiler may enter, so one at a time."""
    with Compiling() as compiling:
        named = [
            (CallableProgram, "__call__", functools.partial(_call, compiling)),
            (Filling, "fill", functools.partial(_step, "pad")),
            (Filling, "fill_all", functools.partial(_step, "pad")),
            (Filling, "cut", functools.partial(_step, "cut")),
        ]
        # `vars` and not `getattr`, to restore the very objects of the class.
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
    def annotated(
        self: CallableProgram[..., object],
        /,
        *args: object,
        **kwargs: object,
    ) -> object:
        # A call in another compiled function runs only while that one is traced.
        if _inside_jit():
            return call(self, *args, **kwargs)
        before = compiling.thread_seconds
        # In the names of JAX's annotations, `#` starts the facts and `,` separates them.
        where = str(self.core.where).replace(",", ";").replace("#", "")
        with jax.profiler.TraceAnnotation(self.core.name, **{CALLED: where}):
            try:
                out = compiling.last[self.core.name] = call(self, *args, **kwargs)
                return out
            finally:
                seconds = compiling.thread_seconds - before
                if seconds:
                    with jax.profiler.TraceAnnotation("traced and compiled", **{COMPILED: seconds}):
                        pass

    return annotated


def _step(name: str, step: Method) -> Method:
    @functools.wraps(step)
    def annotated(*args: object, **kwargs: object) -> object:
        with jax.profiler.TraceAnnotation(name):
            return step(*args, **kwargs)

    return annotated


def _inside_jit() -> bool:
    """Return whether a call becomes a part of another program.

    JAX returns the concrete mesh only if no trace is active, and raises `ValueError` otherwise.
    """
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return True
    return False
