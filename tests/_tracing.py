"""Count how often JAX runs a Python body, which is once per trace."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol, cast

from jitney._body.plain import plain_run


class Counted(Protocol):
    """A function that knows how often its body ran."""

    traces: int

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def count_traces(fn: Callable[..., Any]) -> Counted:
    """Wrap `fn` in a plain function, so it still binds as a method and keeps its signature, with a
    counter `traces`.
    """
    lock = threading.Lock()

    @functools.wraps(fn)
    def body(*args: Any, **kwargs: Any) -> Any:
        # else `verify` runs the body once more, which is no trace of the program
        if plain_run() is None:
            with lock:
                counted.traces += 1
        return fn(*args, **kwargs)

    counted = cast(Counted, body)
    counted.traces = 0
    return counted
