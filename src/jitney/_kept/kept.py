"""A program that another process has traced: found and run, or traced here and kept for the next one.

It happens inside of JAX's own trace of the call, once for each key of JAX's, so that warm calls are JAX's as ever: what stands in the
program is either the body, or one call of what was exported from it. Under an outer transform, where an exported program has no derivative
and no map, an entry of its own is traced as usual (`Function.differs_nested`).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._axes import at_any_size
from .._body.body import Body
from .._body.call_key import trace_key
from .._body.plain import plain_run
from .._errors import VerificationError, sentence
from .._jax.compile_cache.cache import own
from .._jax.trees import tree_flatten
from .._jax.user_contexts import KEPT
from .._record.libraries import Libraries
from .._record.looked_up import LookedUp
from .._record.running import watched
from .._record.unsure import Unsure
from .._verify import is_verified
from .._view.layout import jit_is_off
from .._view.result import Outcome
from .._view.true_sizes import parted
from . import beside
from .form import Forms
from .key import Key, key_of, unsupported
from .laid import Laid
from .stored import Stored, load, place, save
from .tracing import Trace, called, content_of, text_of


@dataclass(frozen=True)
class _Asked:
    """One call that is looked for: its key, where it would lie, the arguments, and the devices if it is over several."""

    key: Key
    entry: Path
    forms: Forms
    laid: Laid | None


class Kept:
    """Runs the trace of a body, or what was kept of it.

    Args:
        body: The function and its kind of calls.
        trace: What JAX traces without it.
        cuts: Of each padded program of the body, which axes of its results are padded; what is found adds its own.
        proofs: Of each padded program of which new sizes are traced.
    """

    def __init__(self, body: Body, trace: Callable[[Sequence[Any], Any], Any], cuts: beside.Cuts, proofs: beside.Proofs):
        self._body = body
        self._trace = trace
        self._cuts = cuts
        self._proofs = proofs
        self.notes: dict[Hashable, tuple[bool, str]] = {}
        """Of each call key, whether its program is kept, and why not."""

    def __call__(self, given: Sequence[Any], laid: Laid | None = None) -> Any:
        if jit_is_off() or plain_run() is not None or at_any_size():
            return self._on_mesh(given, laid)
        key = trace_key(*parted(given))
        try:
            asked = self._asked(given, laid)
        except Unsure as unsure:
            self.notes[key] = (False, f"not kept: {unsure}")
            return self._on_mesh(given, laid)
        stored, changed = self._found(asked, given)
        if stored is None:
            return self._made(asked, given, key, changed)
        if is_verified(self._body.core.options):
            self._verify(asked, given, stored)
        self.notes[key] = (True, "found: neither traced nor lowered in this process")
        return self._called(asked, stored, given)

    def note(self, given: Sequence[Any]) -> tuple[bool, str]:
        """Whether the program of a call, padded if it is, is kept, and why not."""
        refused = unsupported(self._body.core)
        if refused is not None:
            return False, f"not kept: {refused}"
        with self._body.numbers():
            return self.notes.get(trace_key(*parted(given)), (True, "not called yet"))

    def _asked(self, given: Sequence[Any], laid: Laid | None) -> _Asked:
        if importlib.util.find_spec("flatbuffers") is None:
            raise Unsure("`jax.export` needs the package flatbuffers to write programs, and it is not installed")
        folder = own() if self._body.core.options.cache else None
        if folder is None:
            raise Unsure("there is no folder of jitney's own for compiled programs (see `cache` above)")
        arrays, counts = parted(given)
        if counts is not None:
            beside.demand_one_for_all(self._proofs.get(beside.program_key(arrays, counts)))
        key = key_of(self._body, arrays, counts, laid=laid)
        entry = place(folder, self._body.core.name, key.text)
        return _Asked(key, entry, Forms(self._body.layout.values([object() for _ in arrays], self._body.statics)), laid)

    def _found(self, asked: _Asked, given: Sequence[Any]) -> tuple[Stored | None, str]:
        stored = load(asked.entry, asked.key.text)
        if stored is None:
            return None, ""
        changed = stored.libraries.changed() or _unreadable(asked.forms, stored.form) or self._reads_other(stored, given, asked.laid)
        return (stored, "") if changed is None else (None, f"; the one that was kept is not used: {changed}")

    def _reads_other(self, stored: Stored, given: Sequence[Any], laid: Laid | None) -> str | None:
        """Why what its trace asked for by computed names is not what it was."""
        if not stored.asked:
            return None
        missing = [module for module, _ in stored.asked if module and module not in sys.modules]
        try:
            is_same = not missing and key_of(self._body, *parted(given), stored.asked, laid).text == stored.second
        except Unsure as unsure:
            return str(unsure)
        return None if is_same else "a name that it looks up stands for something else"

    def _called(self, asked: _Asked, stored: Stored, given: Sequence[Any]) -> Any:
        arrays, counts = parted(given)
        outcome = Outcome()
        outcome.treedef, outcome.rest = asked.forms.read(stored.form)
        if counts is not None:
            self._cuts[beside.program_key(arrays, counts)] = beside.read(stored.cuts)
        return outcome.output(called(stored.exported, tree_flatten(given)[0], stored.checks, stored.weak))

    def _made(self, asked: _Asked, given: Sequence[Any], key: Hashable, why: str) -> Any:
        """Trace it here; what is sure is kept, and run as another process will run it."""
        trace = self._traced(asked, given)
        with KEPT(object()):  # a value that nobody has had makes JAX forget what it has traced: all bodies run again, and are seen
            try:
                stored = self._stored(asked, trace, given)
                is_kept = save(asked.entry, stored)
                self.notes[key] = (is_kept, f"kept for other processes{why}" if is_kept else "not kept: the folder cannot be written")
            except Unsure as unsure:
                self.notes[key] = (False, f"not kept: {unsure}")
                return trace.inside()
        return self._called(asked, stored, given)

    def _traced(self, asked: _Asked, given: Sequence[Any]) -> Trace:
        return Trace(lambda given: self._on_mesh(given, asked.laid), self._body.core.name, given, asked.laid)

    def _on_mesh(self, given: Sequence[Any], laid: Laid | None) -> Any:
        return self._trace(given, None if laid is None else laid.mesh)

    def _stored(self, asked: _Asked, trace: Trace, given: Sequence[Any]) -> Stored:
        arrays, counts = parted(given)
        looked_up = LookedUp(asked.key.codes, lambda reads: key_of(self._body, arrays, counts, reads, asked.laid))
        with watched(asked.key.codes, looked_up) as ran:
            exported = trace.exported()
        content = content_of(exported.program)
        if ran.problem is not None:
            raise Unsure(ran.problem)
        libraries = Libraries.of(ran.libraries)
        form = asked.forms.written(*trace.form())
        if key_of(self._body, arrays, counts, laid=asked.laid).text != asked.key.text:
            raise Unsure("the trace changes what it reads")
        cuts, second = self._cuts_of(arrays, counts), looked_up.text()
        trace.check_results(content, exported)
        return Stored(asked.key.text, form, libraries, content, exported.checks, exported.weak, cuts, looked_up.reads, second)

    def _cuts_of(self, arrays: Sequence[Any], counts: Any) -> Sequence[Any]:
        if counts is None:
            return ()
        key = beside.program_key(arrays, counts)
        beside.demand_one_for_all(self._proofs.get(key))
        return beside.written(self._cuts[key])

    def _verify(self, asked: _Asked, given: Sequence[Any], stored: Stored) -> None:
        """Trace as well, and compare.

        Raises:
            VerificationError: The programs differ.
        """
        trace = self._traced(asked, given)
        with KEPT(object()):
            fresh = self._stored(asked, trace, given)
        if text_of(fresh.exported) != text_of(stored.exported) or fresh.beside != stored.beside:
            raise VerificationError(
                sentence(self._body.core.where, "the program that was kept is not the one that is traced now.",
                         'Under `verify` each program found by cache="program" is traced too, and their texts are equal.',
                         f"this is a fault of jitney's: please report it; until then delete {asked.entry}, and leave `cache` out.")
            )  # fmt: skip


def _unreadable(forms: Forms, said: Any) -> str | None:
    """Why a result cannot be put together here."""
    try:
        forms.read(said)
    except Unsure as unsure:
        return str(unsure)
    return None
