"""JAX's functions of an entry: jitted, placed on a mesh, lowered and compiled ahead of calls."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal

import jax
from jax.sharding import NamedSharding

from .. import _serialized
from .._axes import Refused
from .._body.body import Placement
from .._jax.compile_cache.cache import ensure as ensure_cache
from .._jax.compile_cache.cache import pause_cache as cache_disabled
from .._jax.typed import AnyMesh, Array, Jitted
from .._stages import Jit, Place
from .._values.read_hooks import suspend_readers
from .._view.true_sizes import KnownSizes, NeedsNumbers, knowing, split_counts
from .runners.padded_calls import PaddedCalls
from .runners.padding_recipes import warn_refusal
from .runners.sharded_calls import ShardedCalls, shapes_of
from .runners.workers.worker_calls import WorkerCalls
from .runners.wrappers import Run, lower_as_run, nested_runner, outermost_runner
from .tracing.held_numbers import Redirected
from .tracing.traced_calls import Retry, TracedCalls

SCOPE = "jitney.optimize"
"""Name scope of all operations of a Program in profiles, which sets them apart from those of plain
`jax.jit`.
"""


class LoweredCalls(TracedCalls):
    """A function of flat arrays with JAX's functions of it."""

    def create_functions(self) -> None:
        """Create JAX's function, and what runs it over a mesh or in threads. The class that
        constructs an entry calls this once.
        """
        options, nested = self.core.options, self.request.nested
        if options.cache == "program" and not nested:
            trace = self._trace
            self.kept = _serialized.SerializedPrograms(
                self,
                trace,
                self.cuts,
                self.proofs,
            )
        self.jitted = self._jit()
        if options.shard is not None and not nested:
            self.sharded = ShardedCalls(self)
        if options.workers is not None and not nested:
            self.workers = WorkerCalls(self)

    def _jit(
        self,
        mesh: AnyMesh | None = None,
        shardings: Sequence[NamedSharding | None] | None = None,
        shapes: Sequence[object] | None = None,
    ) -> Jitted:
        # A weak reference: the entry holds JAX's function, and a strong one would close a cycle.
        # Without a cycle the function goes when the entry is dropped, not at a later garbage
        # collection.
        entry_of = weakref.ref(self)

        def body(*arrays: object) -> Any:
            if shapes is not None and shapes_of(arrays) != shapes:
                raise Retry

            entry = entry_of()
            if entry is None:
                raise ReferenceError("the program of this function has been dropped")

            # Reads of jitney's own are not reads of the body.
            with suspend_readers(), jax.named_scope(SCOPE):
                if entry.kept is None:
                    return entry._trace(arrays, mesh)
                laid = None if mesh is None else _serialized.MeshLayout(mesh, shardings or ())
                return entry.kept(arrays, laid)

        # The name that profilers and JAX's own messages show.
        body.__name__ = body.__qualname__ = self.core.name
        self.core.with_user_names(body, self.paths)
        jitted: Any = Jit.of(self.request).compile(body, shardings)
        return jitted

    def jit_on_mesh(
        self,
        mesh: AnyMesh,
        arrays: Sequence[object],
    ) -> tuple[Jitted, Sequence[NamedSharding | None]]:
        """Return JAX's function of arrays on a mesh, and the shardings of its arguments; no
        shardings if the function does not shard.
        """
        if self.sharded is None:
            return self._jit(), ()

        shapes = shapes_of(arrays)
        arrays, counts = split_counts(arrays)
        place = self.plan_call(arrays, counts, mesh=mesh).plan.of(Place)
        shardings: tuple[NamedSharding | None, ...]
        shardings = () if place is None else place.shardings[: len(arrays)]
        if counts is not None:
            # The true sizes, which every device gets.
            shardings += (None,)
        return self._jit(mesh, shardings, shapes), shardings

    def runner(self, arrays: Sequence[object], *, nested: bool) -> Run:
        """Return the function that runs calls of these shapes with jit on; `nested` if an outer
        transform owns them.
        """
        if self.sharded is not None:
            return self.sharded.runner(arrays)
        if nested or self.request.nested:
            return nested_runner(self, self.jitted)
        return outermost_runner(self, arrays, self.jitted)

    def jit_for(self, arrays: Sequence[object]) -> Jitted:
        """Return JAX's function of these arrays."""
        return self.jitted if self.sharded is None else self.sharded.jit(arrays)[0]

    def mesh_key(self) -> tuple[Hashable, ...]:
        return () if self.sharded is None else self.sharded.mesh_key()

    def placement(self, jitted: object) -> Placement | None:
        """Return where a function of JAX has its arguments; None on the default device."""
        return None if self.sharded is None else self.sharded.placement(jitted)

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext() if self.sharded is None else self.sharded.scope()

    def lower(
        self,
        arrays: Sequence[object],
        step: Literal["lower", "trace", "run"] = "lower",
    ) -> Any:
        """Return JAX's lowered (or traced) program for these arrays or abstract values; for the
        step "run", the program that calls run, with its checks as data.
        """
        ensure_cache()

        # Two reasons to lower once more: another thread has traced the program meanwhile (`Retry`),
        # or the trace has found that the program takes numbers computed from the sizes
        # (`NeedsNumbers`), which then join the arguments.
        counts = split_counts(arrays)[1]
        at_hand = KnownSizes(counts and counts.sizes)
        while True:
            plain, counts = split_counts(arrays)
            try:
                with (
                    suppress(Retry),
                    knowing(at_hand),
                    self.numbers(),
                    self.scope(),
                    jax.disable_jit(False),  # noqa: FBT003
                ):
                    given = arrays
                    if self.sharded is not None:
                        given = self.sharded.shard_donations(arrays, abstract=True)
                    jitted = self.jit_for(arrays)
                    if step == "run":
                        return lower_as_run(self, given, jitted)
                    return getattr(jitted, step)(*given)
            except Redirected:
                # These arrays are asked about in this entry, which serves them too.
                self.serve_all_calls()
            except NeedsNumbers as needs:
                if counts is None or counts.sizes is None:
                    raise
                at_hand = self.known_again(at_hand, needs.proof)
                numbers = needs.proof.numbers_at(counts.sizes)
                counts = counts.replace(numbers, counts.sizes)
                arrays = (*plain, counts.abstract())

    def ahead(self, arrays: Sequence[Array]) -> jax.stages.Compiled:
        """Compile for these arrays or abstract values; a later call of that key finds the program
        in JAX's cache.
        """
        with nullcontext() if self.core.options.cache else cache_disabled():
            pads = self.options.pad and not self.options.debug_nans
            calls = PaddedCalls(self) if pads else None
            while True:
                try:
                    part = None if self.workers is None else self.workers.ahead(arrays)
                    if part is not None:
                        return part
                    given = arrays if calls is None else calls.ahead(arrays)
                    return self.lower(given, "run").compile()
                except Refused as refused:
                    refusal = refused
                # In a shorter bucket it may be one program.
                if calls is None or not calls.narrow_ahead(arrays, refusal):
                    break
            if calls is None or not calls.is_single(arrays):
                warn_refusal(self.core, refusal)
            return self.lower(arrays, "run").compile()
