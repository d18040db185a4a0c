"""Questions on the place of a call: outermost, inside a trace, or with jit off.

The two questions that several runners ask stand here. The others are asked where they are, since
each runner asks in an order of its own, and does something else with the answer:

    caller                         asks, in this order            and runs
    Specialization._first          jit off; a changed setting;    without jit; again; without
                                   `JITNEY_DISABLE`; `is_inner`   options; uncut or cut
    Specialization._trace          plain run; jit off             as written; without jit
    wrappers.runner                `is_inner`; jit off            JAX's function; with what
                                                                  `around` adds
    PaddedCalls                    a trace and a mesh; jit off;   nested entry; unpadded;
                                   tracers and not `is_padded`    unpadded
    ShardedCalls                   jit off; a trace               unsharded; nested entry
    WholeCalls                     jit off; `InTrace`             undivided
    CheckedCalls, CapturedCalls    `InTrace`                      JAX's function
    VerifiedRunner                 tracers; jit off; plain run    unverified; the same; as written
    SerializedPrograms             jit off; plain run; symbols    without the cache
    RowCall                        jit off, `JITNEY_DISABLE`      row by row
    `export`                       tracers, jit off               nothing: an error

Inside a trace with jit off a function that shards runs unsharded, and if it pads too, its nested
entry runs: one order for both would change what one of them runs. Checks and captured arrays do not
ask about jit, since their callers have. `VerifiedRunner` asks about a plain run last: with tracers,
`_trace` asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.core import Tracer

from ..._body.body import CallPlanner
from ..._jax.mesh import is_within_trace
from ..._view.layout import is_nested_trace


def is_inner(body: CallPlanner, arrays: Sequence[object]) -> bool:
    """Return whether an outer transform owns a call: the compiler options, the cache and the
    results of its program.
    """
    return body.request.nested or is_nested_trace(arrays)


class InTrace:
    """Asks whether a call stands in a trace: any that is active, or that of its own tracers."""

    def __init__(self) -> None:
        # Types of arguments that are not tracers.
        self._plain: set[type] = set()

    def __call__(self, arrays: Sequence[object]) -> bool:
        if is_within_trace():
            return True
        # By the type: `isinstance` of a tracer's class takes several times as long.
        for array in arrays:
            kind = type(array)
            if kind in self._plain:
                continue
            if issubclass(kind, Tracer):
                return True
            self._plain.add(kind)
        return False
