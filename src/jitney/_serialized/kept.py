"""Cached programs in a trace: a program that another process has traced is found and called, or
traced here and saved for the next process.

This happens inside of JAX's own trace of the call, once for each key of JAX's, so warm calls are
JAX's as ever. JAX's program then holds either the body, or one call of the program that was
exported from it:

    jit(mean) -> SerializedPrograms.__call__
        -> CacheRequest.lookup()          a hit: the exported program is called
        -> CacheRequest.record_trace()    a miss: trace, export, save, and call that

An exported program has no derivative and no batching rule. So under an outer transform, an entry of
its own is traced as usual (`FunctionInfo.differs_nested`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from .._axes import at_any_size
from .._body.body import CallPlanner
from .._body.call_key import trace_key
from .._body.plain import plain_run
from .._jax.trees import tree_flatten
from .._jax.typed import AnyMesh, Array
from .._jax.user_contexts import SERIALIZED
from .._record.unsure import NotDeterministic
from .._verify import is_verified
from .._view.layout import jit_is_off
from .._view.result import Outcome
from .._view.true_sizes import TrueSizes, split_counts
from . import padded_cuts
from .key import cache_obstacle
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
        trace: Callable[[Sequence[object], AnyMesh | None], object],
        cuts: padded_cuts.Cuts,
        proofs: padded_cuts.Proofs,
    ):
        self._body = body
        self._trace = trace
        self._cuts = cuts
        self._proofs = proofs
        # Call key and mesh -> whether its program is cached, and the outcome in words.
        self.notes: dict[Hashable, tuple[bool, str]] = {}

    def __call__(
        self,
        given: Sequence[object],
        laid: MeshLayout | None = None,
    ) -> object:
        if jit_is_off() or plain_run() is not None or at_any_size():
            return self._on_mesh(given, laid)

        # The key. Without a reliable one the call is traced, and the reason noted.
        key = _key_of_note(given, laid and laid.mesh)
        try:
            request = self._request(given, laid)
        except NotDeterministic as unsure:
            self.notes[key] = (False, f"not cached: {unsure}")
            return self._on_mesh(given, laid)

        # A miss, or a hit, which `verify` compares with a trace.
        stored, changed = request.lookup()
        if stored is None:
            return self._save(request, key, changed)
        if is_verified(self._body.core.options):
            self._verify(request, stored)
        self.notes[key] = (True, FOUND)
        return self._call(request, stored)

    def note(
        self,
        given: Sequence[object],
        mesh: object = None,
    ) -> tuple[bool, str]:
        """Return whether the program of a call on a mesh, padded if it is, is cached, and the
        reason if not.
        """
        refused = cache_obstacle(self._body)
        if refused is not None:
            return False, f"not cached: {refused}"
        with self._body.numbers():
            return self.notes.get(_key_of_note(given, mesh), (True, "not called yet"))

    def _request(
        self,
        given: Sequence[object],
        laid: MeshLayout | None,
    ) -> CacheRequest:
        arrays, counts = split_counts(given)
        # The cached program takes true sizes, and no numbers that Python computes from them.
        if counts is not None:
            padded_cuts.check_single_trace(
                self._proofs.get(padded_cuts.program_key(arrays, counts))
            )
        return CacheRequest.make(self._body, given, laid)

    def _call(
        self,
        request: CacheRequest,
        stored: SerializedProgram,
    ) -> object:
        arrays, counts = split_counts(request.given)
        self._body.warn_lost_updates(stored.updates)

        # Rebuild the result as the body would have returned it, and the side effects of its trace.
        outcome = Outcome()
        outcome.restore(*request.forms.read(stored.form))
        if counts is not None:
            key = padded_cuts.program_key(arrays, counts)
            self._cuts[key] = padded_cuts.read(stored.cuts)
        flat = [*tree_flatten(request.given)[0], *request.captured(stored)]
        results = call_exported(stored.exported, flat, stored.checks, stored.weak)
        return outcome.output(results)

    def _save(
        self,
        request: CacheRequest,
        key: Hashable,
        why: str,
    ) -> object:
        """Trace the program, save it if its key is certain, and call it as another process will."""
        trace = self._exportable_trace(request)
        # A fresh value of this user context misses JAX's trace caches: all bodies run once more,
        # and their reads are recorded.
        with SERIALIZED(object()):
            try:
                stored = self._serialise_trace(request, trace)
                is_saved = save(request.entry, stored)
                self.notes[key] = (is_saved, f"{MADE}{why}" if is_saved else UNWRITTEN)
            except NotDeterministic as unsure:
                self.notes[key] = (False, f"not cached: {unsure}")
                return trace.inside()
        return self._call(request, stored)

    def _exportable_trace(self, request: CacheRequest) -> ExportableTrace:
        core = self._body.core
        laid = request.laid

        def trace(given: Sequence[object]) -> object:
            return self._on_mesh(given, laid)

        as_written = core.with_user_names(trace, self._body.paths)
        return ExportableTrace(
            as_written,
            core.name,
            request.given,
            laid,
            request.key.arrays,
        )

    def _on_mesh(
        self,
        given: Sequence[object],
        laid: MeshLayout | None,
    ) -> object:
        return self._trace(given, None if laid is None else laid.mesh)

    def _serialise_trace(
        self,
        request: CacheRequest,
        trace: ExportableTrace,
    ) -> SerializedProgram:
        # The trace comes first: it fills the form, the cuts and the mutations that are read below.
        recorded = request.record_trace(trace.export_program)
        exported = recorded.made
        content = content_of(exported.program)
        form = request.forms.to_data(*trace.form())
        cuts = self._cuts_of(*split_counts(request.given))
        trace.check_results(content, exported)
        return SerializedProgram(
            request.key.text,
            form,
            recorded.libraries,
            content,
            checks=exported.checks,
            weak=exported.weak,
            cuts=cuts,
            asked=recorded.reads,
            second=recorded.second,
            updates=self._body.updates,
            captured=exported.captured,
        )

    def _cuts_of(
        self,
        arrays: Sequence[Array],
        counts: TrueSizes | None,
    ) -> Sequence[object]:
        if counts is None:
            return ()
        key = padded_cuts.program_key(arrays, counts)
        padded_cuts.check_single_trace(self._proofs.get(key))
        return padded_cuts.serialise_cuts(self._cuts[key])

    def _verify(
        self,
        request: CacheRequest,
        stored: SerializedProgram,
    ) -> None:
        """Trace as well, and compare.

        Raises:
            VerificationError: The programs differ.
        """
        trace = self._exportable_trace(request)
        with SERIALIZED(object()):
            fresh = self._serialise_trace(request, trace)
        request.compare_programs(fresh, stored)


def _key_of_note(given: Sequence[object], mesh: object) -> Hashable:
    return trace_key(*split_counts(given)), mesh
