"""Cached programs in a trace: a program that another process has traced is found and called, or
traced here and saved for the next process.

This happens inside of JAX's own trace of the call, once for each key of JAX's, so warm calls are
JAX's as ever. JAX's program then holds either the body, or one call of the program that was
exported from it:

    jit(mean) -> Kept.__call__ -> Asked.found()      a hit: the exported program is called
                               -> Asked.recorded()   a miss: trace, export, save, and call that

An exported program has no derivative and no batching rule. So under an outer transform, an entry of
its own is traced as usual (`Function.differs_nested`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .._axes import at_any_size
from .._body.body import CallPlanner
from .._body.call_key import trace_key
from .._body.plain import plain_run
from .._jax.trees import tree_flatten
from .._jax.typed import Array
from .._jax.user_contexts import SERIALIZED
from .._record.unsure import NotDeterministic
from .._verify import is_verified
from .._view.layout import jit_is_off
from .._view.result import Outcome
from .._view.true_sizes import split_counts
from . import padded_cuts
from .key import unsupported
from .mesh_layout import MeshLayout
from .request import FOUND, MADE, UNWRITTEN, CacheRequest
from .stored import SerializedProgram, save
from .tracing import ExportableTrace, call_exported, content_of


class SerializedPrograms:
    """Runs the trace of a body, or the cached program in its place.

    Args:
        body: The function and its kind of calls.
        trace: The trace without this class.
        cuts: Padded program -> the padded axes of its results; a cached program adds its own.
        proofs: Padded program -> its proof, if each new size is traced.
    """

    def __init__(
        self,
        body: CallPlanner,
        trace: Callable[[Sequence[Any], Any], Any],
        cuts: padded_cuts.Cuts,
        proofs: padded_cuts.Proofs,
    ):
        self._body = body
        self._trace = trace
        self._cuts = cuts
        self._proofs = proofs
        # Call key and mesh -> whether its program is cached, and the outcome in words.
        self.notes: dict[Hashable, tuple[bool, str]] = {}

    def __call__(self, given: Sequence[Any], laid: MeshLayout | None = None) -> Any:
        if jit_is_off() or plain_run() is not None or at_any_size():
            return self._on_mesh(given, laid)

        # The key. Without a reliable one the call is traced, and the reason noted.
        key = _told_of(given, laid and laid.mesh)
        try:
            asked = self._asked(given, laid)
        except NotDeterministic as unsure:
            self.notes[key] = (False, f"not kept: {unsure}")
            return self._on_mesh(given, laid)

        # A miss, or a hit, which `verify` compares with a trace.
        stored, changed = asked.found()
        if stored is None:
            return self._made(asked, key, changed)
        if is_verified(self._body.core.options):
            self._verify(asked, stored)
        self.notes[key] = (True, FOUND)
        return self._called(asked, stored)

    def note(self, given: Sequence[object], mesh: object = None) -> tuple[bool, str]:
        """Return whether the program of a call on a mesh, padded if it is, is cached, and the
        reason if not.
        """
        refused = unsupported(self._body.core)
        if refused is not None:
            return False, f"not kept: {refused}"
        with self._body.numbers():
            return self.notes.get(_told_of(given, mesh), (True, "not called yet"))

    def _asked(self, given: Sequence[object], laid: MeshLayout | None) -> CacheRequest:
        arrays, counts = split_counts(given)
        # The cached program takes true sizes, and no numbers that Python computes from them.
        if counts is not None:
            padded_cuts.demand_one_for_all(
                self._proofs.get(padded_cuts.program_key(arrays, counts))
            )
        return CacheRequest.make(self._body, given, laid)

    def _called(self, asked: CacheRequest, stored: SerializedProgram) -> Any:
        arrays, counts = split_counts(asked.given)
        self._body.warn_lost(stored.updates)

        # Rebuild the result as the body would have returned it, and the side effects of its trace.
        outcome = Outcome()
        outcome.treedef, outcome.rest = asked.forms.read(stored.form)
        if counts is not None:
            self._cuts[padded_cuts.program_key(arrays, counts)] = padded_cuts.read(stored.cuts)
        return outcome.output(
            call_exported(stored.exported, tree_flatten(asked.given)[0], stored.checks, stored.weak)
        )

    def _made(self, asked: CacheRequest, key: Hashable, why: str) -> Any:
        """Trace the program, save it if its key is certain, and call it as another process will."""
        trace = self._traced(asked)
        # A fresh value of this user context misses JAX's trace caches: all bodies run once more,
        # and their reads are recorded.
        with SERIALIZED(object()):
            try:
                stored = self._stored(asked, trace)
                is_kept = save(asked.entry, stored)
                self.notes[key] = (is_kept, f"{MADE}{why}" if is_kept else UNWRITTEN)
            except NotDeterministic as unsure:
                self.notes[key] = (False, f"not kept: {unsure}")
                return trace.inside()
        return self._called(asked, stored)

    def _traced(self, asked: CacheRequest) -> ExportableTrace:
        core = self._body.core

        def trace(given: Sequence[object]) -> Any:
            return self._on_mesh(given, asked.laid)

        return ExportableTrace(
            core.called_as_written(trace, self._body.paths), core.name, asked.given, asked.laid
        )

    def _on_mesh(self, given: Sequence[object], laid: MeshLayout | None) -> Any:
        return self._trace(given, None if laid is None else laid.mesh)

    def _stored(self, asked: CacheRequest, trace: ExportableTrace) -> SerializedProgram:
        # The trace comes first: it fills the form, the cuts and the mutations that are read below.
        recorded = asked.record_trace(trace.exported)
        exported = recorded.made
        content = content_of(exported.program)
        form = asked.forms.written(*trace.form())
        cuts = self._cuts_of(*split_counts(asked.given))
        trace.check_results(content, exported)
        beside_it = (
            exported.checks,
            exported.weak,
            cuts,
            recorded.reads,
            recorded.second,
            self._body.updates,
        )
        return SerializedProgram(asked.key.text, form, recorded.libraries, content, *beside_it)

    def _cuts_of(self, arrays: Sequence[Array], counts: Any) -> Sequence[Any]:
        if counts is None:
            return ()
        key = padded_cuts.program_key(arrays, counts)
        padded_cuts.demand_one_for_all(self._proofs.get(key))
        return padded_cuts.written(self._cuts[key])

    def _verify(self, asked: CacheRequest, stored: SerializedProgram) -> None:
        """Trace as well, and compare.

        Raises:
            VerificationError: The programs differ.
        """
        trace = self._traced(asked)
        with SERIALIZED(object()):
            fresh = self._stored(asked, trace)
        asked.check_same(fresh, stored)


def _told_of(given: Sequence[object], mesh: object) -> Hashable:
    return trace_key(*split_counts(given)), mesh
