"""Questions on the place of a call: outermost, inside a trace, or with jit off.

Runners of calls that differ by place are `PlacedCalls`, which asks for them. Others ask where they
are, each in an order of its own:

    caller                         asks, in this order            and runs
    PlacedCalls                    jit off, if it matters; a      without jit; within; outermost
                                   trace, or tracers
      AutoCalls, WidthCalls,                                      undivided; undivided; divided
      WorkerCalls, FallbackCalls
      CheckedCalls, CapturedCalls                                 as outermost; JAX's function;
                                                                  with number or copies
    Specialization._first          jit off; a changed setting;    without jit; again; without
                                   `JITNEY_DISABLE`; `is_inner`   options; uncut or cut
    Specialization._trace          plain run; jit off             as written; without jit
    wrappers.runner                `is_inner`; jit off            JAX's function; with what
                                                                  `around` adds
    PaddedCalls                    a trace and a mesh; jit off;   nested entry; unpadded;
                                   tracers and not `is_padded`    unpadded
    ShardedCalls                   jit off; a trace               unsharded; nested entry
    VerifiedRunner                 tracers; jit off; plain run    unverified; the same; as written
    SerializedPrograms             jit off; plain run; symbols    without the cache
    RowCall                        jit off, `JITNEY_DISABLE`      row by row
    `export`                       tracers, jit off               nothing: an error

Why these stay apart:

- `_first` and `runner` ask when a decision is made, which later calls keep (`_first` once, and not
  `runner` after it); `_trace` and
  `SerializedPrograms` ask while JAX traces, where arrays are tracers wherever the call stands.
- Inside a trace with jit off a function that shards runs unsharded, and if it pads too, its nested
  entry runs: one order for both would change what one of them runs. `PaddedCalls` pads under some
  transforms, and a call with numbers among unrelated tracers is padded as an outermost one.
- To `ShardedCalls` JAX gives the mesh and the answer at once; to ask first costs a third of a
  microsecond in each call.
- To `VerifiedRunner` a trace of other values is none: under a `vmap` that does not map the
  arguments it compares. It asks about a plain run last: with tracers, `_trace` asks.
- Rows and exports are no runners of an entry's calls.

Checks and captured arrays do not ask about jit, since their callers have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from jax.core import Tracer

from ..._body.body import CallPlanner
from ..._jax.mesh import is_within_trace
from ..._view.layout import is_nested_trace, jit_is_off

A = TypeVar("A")


def is_inner(body: CallPlanner, arrays: Sequence[object]) -> bool:
    """Return whether an outer transform owns a call: the compiler options, the cache and the
    results of its program.
    """
    return body.request.nested or is_nested_trace(arrays)


class PlacedCalls(ABC, Generic[A]):
    """Runs calls by where they stand. Whatever this runs, it runs under the answer."""

    asks_jit: ClassVar[bool] = False
    """True if calls with jit off run otherwise."""

    def __init__(self) -> None:
        # Types of arguments that are not tracers.
        self._untraced: set[type] = set()

    def __call__(self, *arrays: A) -> object:
        if self.asks_jit and jit_is_off():
            return self.run_without_jit(arrays)
        if is_within_trace():
            return self.run_within(arrays)
        # By the type: `isinstance` of a tracer's class takes several times as long.
        for array in arrays:
            kind = type(array)
            if kind in self._untraced:
                continue
            if issubclass(kind, Tracer):
                return self.run_within(arrays)
            self._untraced.add(kind)
        return self.run_outermost(arrays)

    @abstractmethod
    def run_outermost(self, arrays: Sequence[A]) -> object:
        """Run a call that stands in no trace, with jit on if it was asked about."""

    @abstractmethod
    def run_within(self, arrays: Sequence[A]) -> object:
        """Run a call inside a trace: any that is active, or that of its own tracers."""

    def run_without_jit(self, arrays: Sequence[A]) -> object:
        """Run a call with jit off, if it was asked about."""
        return self.run_outermost(arrays)
