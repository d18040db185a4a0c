"""What the runners of calls know of the specialisation that holds them, and of its function.

The files below fill these classes in. Whatever runs calls (padded, sharded, in chunks, in threads,
row by row) is held by a `Specialization` and imports this file alone, so the arrows of imports go
one way:

    CompiledFunction      core.py -> tables/entries.py -> tables/takers.py -> entry.py
    Specialization        entry.py -> lowering.py -> tracing.py -> compiled_calls.py
    runners of calls      entry.py, lowering.py -> padded_calls.py, ... -> compiled_calls.py
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from jax.sharding import NamedSharding
from jax.stages import Compiled

from .. import _serialized
from .._axes import Refused
from .._body.body import CallPlanner, Placement
from .._body.function import FunctionInfo
from .._jax.typed import AnyMesh, Array, Jitted
from .._signature.options import Options
from .._values.attribute_reads import Statics
from .._view.layout import Layout
from .._view.result_padding import CutRecord
from .._view.true_sizes import KnownSizes, Proof
from .runners.checked_calls import Run
from .tracing.held_numbers import NumberChoices


class MeshCalls(Protocol):
    """Runs calls over a mesh: `sharded_calls.py`."""

    def __call__(self, *arrays: object) -> object: ...

    def has_mesh(self) -> bool: ...

    def mesh_key(self) -> tuple[Hashable, ...]: ...

    def scope(self) -> AbstractContextManager[object]: ...

    def placement(self, jitted: object) -> Placement | None: ...

    def jit(self, arrays: Sequence[object]) -> tuple[Jitted, Sequence[NamedSharding | None]]: ...

    def runner(self, arrays: Sequence[object]) -> Run: ...

    def shard_donations(
        self, arrays: Sequence[object], *, abstract: bool = False
    ) -> tuple[object, ...]: ...


class ThreadCalls(Protocol):
    """Runs calls in threads: `worker_calls.py`."""

    is_demanded: bool

    def allow_whole_calls(self) -> None: ...

    def run_outermost(self, arrays: Sequence[Array]) -> object: ...

    def runner(self) -> Run: ...

    def program(self, arrays: Sequence[Array]) -> object: ...

    def first_part(self, arrays: Sequence[Array]) -> Sequence[Array]: ...

    def ahead(self, arrays: Sequence[Array]) -> Compiled | None: ...


class PendingTrace:
    """A trace under way in one thread; other threads that need the same trace wait until it has
    landed.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.landed = threading.Event()
        # above 0 while the body runs: a body that calls its own program must not land the outer
        # trace
        self.depth = 0


@dataclass(frozen=True)
class Narrower:
    """A bucket that has to end before its size.

    Args:
        refusal: Why the body is not one program for all of it.
        tops: Axis -> the size that the bucket ends at.
    """

    refusal: Refused
    tops: Mapping[str, int]

    @property
    def above(self) -> Refused:
        """The refusal of sizes above."""
        ends = " and ".join(f"{name} = {top}" for name, top in self.tops.items())
        what = f"{self.refusal.what.rstrip('.')}; it is padded up to {ends}"
        return Refused(self.refusal.place, what)


class CompiledCalls(CallPlanner, ABC):
    """A function of flat arrays that is compiled, once for each set of shapes and types.

    Args:
        core: The function.
        layout: Layout of the calls.
        statics: Their static values.
        key: Their key.
        options: Options in place of those of the function.
        wider: The entry of the same calls with fewer of their numbers held.
    """

    jitted: Jitted
    """JAX's function of flat arrays, without what devices, padding and threads add."""
    sharded: MeshCalls | None = None
    """Runs the calls, if the function shards."""
    workers: ThreadCalls | None = None
    """Runs the calls, if threads share them."""
    kept: _serialized.SerializedPrograms | None = None
    """Programs that other processes find, with `cache="program"`."""

    def __init__(
        self,
        core: FunctionInfo,
        layout: Layout,
        statics: Statics,
        key: Hashable,
        options: Options | None = None,
        wider: CompiledCalls | None = None,
    ):
        super().__init__(core, layout, statics, key, options)
        self.wider = wider
        # Key of a trace -> the trace under way, and the lock of this table.
        self.flights: dict[Hashable, PendingTrace] = {}
        self._lock = threading.Lock()
        # Padded program -> the padded axes of each of its results.
        self.cuts = CutRecord()
        # The user's lines with rules for `jax.vmap`, in the traces so far; see `Outcome`.
        self.joint_rules: list[str] = []
        # Padded program -> its proof, if each new size has to be traced.
        self.proofs: dict[Hashable, Proof] = {}
        # Padded program -> why it is not one up to the end of its bucket, only up to a size below.
        self.narrower: dict[Hashable, Narrower] = {}
        # Whether a call may go to another entry, where its numbers need not be held.
        self.redirects = True
        # Which of the numbers that its calls trace are held, at which shapes.
        self.choices = NumberChoices()

    def serve_all_calls(self) -> None:
        """Have no call go to another entry from now on."""
        self.redirects = False

    def known_again(self, known: KnownSizes, proof: Proof) -> KnownSizes:
        """Known sizes of a call that is traced again, as its program takes numbers: the proof of
        the trace before serves that trace too, unless the reads of the body are recorded.
        """
        return known if self.kept is not None else replace(known, proof=proof)

    @property
    @abstractmethod
    def nested_entry(self) -> CompiledCalls:
        """Entry for the same calls inside a trace, even where none of their arrays is a tracer: its
        layout is nested, as that of calls with tracers is.
        """

    @abstractmethod
    def runner(self, arrays: Sequence[object], *, nested: bool) -> Run:
        """Return the function that runs calls of these shapes with jit on; `nested` if an outer
        transform owns them.
        """

    @abstractmethod
    def jit_on_mesh(
        self,
        mesh: AnyMesh,
        arrays: Sequence[object],
    ) -> tuple[Jitted, Sequence[NamedSharding | None]]:
        """Return JAX's function of arrays on a mesh, and the shardings of its arguments; no
        shardings if the function does not shard.
        """

    @abstractmethod
    def lower(
        self,
        arrays: Sequence[object],
        step: Literal["lower", "trace", "run"] = "lower",
    ) -> Any:
        """Return JAX's lowered (or traced) program for these arrays or abstract values; for the
        step "run", the program that calls run, with its checks as data.
        """

    @abstractmethod
    def ahead(self, arrays: Sequence[Array]) -> Compiled:
        """Compile for these arrays or abstract values; a later call of that key finds the program
        in JAX's cache.
        """

    @abstractmethod
    def eagerly(self, *arrays: object) -> object:
        """Run the same function without Jit; every other stage stays."""

    @abstractmethod
    def is_tracing(self) -> bool:
        """Return whether the call that this thread runs has traced."""

    @abstractmethod
    def land(self) -> bool:
        """Release the threads that waited for traces of this call, and return whether this thread
        had traced.
        """

    @abstractmethod
    def reset_decision(self) -> None:
        """Make the next call decide how later calls run, unless they run eagerly."""

    @abstractmethod
    def await_missed_checks(self, out: object) -> None:
        """Wait for the result of a call that traced where nobody has looked for run-time checks of
        Equinox: a GPU raises their error only then, and `note_missed_check` repeats the call.
        """

    @abstractmethod
    def note_missed_check(self, error: Exception) -> bool:
        """Return whether the first call of a new program failed in a run-time check of Equinox that
        nobody had looked for.

        If so, the call can be repeated, and Equinox runs it. It cannot be repeated if its buffers
        were donated.
        """


E = TypeVar("E", bound=CompiledCalls)


class SpecializedFunction(FunctionInfo, ABC, Generic[E]):
    """A function with the specialisations that its calls have needed."""

    layouts: dict[Hashable, Layout]
    entries: dict[Hashable, E]

    @abstractmethod
    def with_options(
        self,
        options: Options,
        fn: Callable[..., object] | None = None,
    ) -> Self:
        """Return the core of the same function with other options, or of another one that computes
        the same. It counts as this one, and keeps this function no more alive.
        """

    @abstractmethod
    def layout(
        self,
        key: tuple[Hashable, ...],
        values: tuple[object, ...],
    ) -> Layout:
        """Return the layout of calls of a structure, created if this is the first of them."""

    @abstractmethod
    def settled(
        self,
        layout: Layout,
        leaves: list[object],
        options: Options | None = None,
    ) -> tuple[Layout, E]:
        """Return the layout and entry of a call that is not run: its numbers are traced on abstract
        values, where that has not been done yet. The entry is that under the settings of now, or
        under those of `options`.
        """

    @abstractmethod
    def drop(self, entry: E) -> None:
        """Drop an entry whose object is gone, and all others of its key.

        Runs during garbage collection, so it must not wait for a lock.
        """

    @abstractmethod
    def reset_decision(self) -> None:
        """Look for the entry of each call anew: a setting has changed, which is part of its key."""
