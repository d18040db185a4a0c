"""Questions on the place of a call: outermost, inside a trace, or with jit off.

Runners of calls are `PlacedCalls`, which asks for them, once and in this order; what a runner runs,
it runs under the answer:

    runner                         without jit         inside a trace         outermost
    AutoCalls, WidthCalls,         undivided           undivided              divided
      WorkerCalls, FallbackCalls
    CheckedCalls, CapturedCalls    the caller asks     JAX's function         with number or copies
    PaddedCalls                    unpadded            padded if it may be    padded
    VerifiedRunner                 unverified          unverified             verified

A warm padded call asks about jit alone (`warm_padded.py`): a key of arrays on a device or of NumPy
says the rest. `ShardedCalls` asks in the same order, and takes the second answer from JAX with the
mesh of a call, which saves a third of a microsecond in each.

Questions of another kind stay where they are:

    Specialization._first          how all later calls run: jit off, `JITNEY_DISABLE`, `is_inner`
    Specialization._trace,         what JAX's trace is of, where arrays are tracers wherever the
      SerializedPrograms           call stands: a plain run, jit off, symbols
    RowCall, `export`              calls of many rows, and none: jit off
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from jax.core import Tracer

from .._jax.mesh import is_within_trace
from .._view.layout import is_nested_trace, jit_is_off
from .body import CallPlanner

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
    asks_traces: bool = True
    """False if a call counts as inside of a trace by its own tracers alone: under a `vmap` of other
    values its arrays are numbers.
    """

    def __init__(self) -> None:
        # Types of arguments that are not tracers.
        self._untraced: set[type] = set()

    def __call__(self, *arrays: A) -> object:
        if self.asks_jit and jit_is_off():
            return self.run_without_jit(arrays)
        if self.asks_traces and is_within_trace():
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
