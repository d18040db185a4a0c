"""Requests to the cache: the key of a computation, the path of its program, whether the program
there is still valid, and the recorded reads of a trace.

A computation is a call (`kept.py`), or something with several programs, such as the steps of a
stream (`in_parts.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Self, TypeVar

import jax
import numpy as np

from .._body.body import CallPlanner
from .._errors import VerificationError
from .._jax.compile_cache.cache import own
from .._record.dynamic_reads import LookedUp, Read
from .._record.libraries import Libraries
from .._record.memoised import TracedCacheEntries
from .._record.trace_monitor import watch_thread
from .._record.unsure import NotDeterministic
from .._record.values import alone
from .._view.layout import aval_parts
from .._view.true_sizes import split_counts
from .form import Forms
from .key import Key, key_of
from .mesh_layout import MeshLayout
from .stored import SerializedProgram, load, place
from .tracing import text_of

T = TypeVar("T")
FOUND = "found: neither traced nor lowered in this process"
MADE = "cached for other processes"
UNWRITTEN = "not cached: the folder cannot be written"


@dataclass(frozen=True)
class Recorded(Generic[T]):
    """A recorded trace.

    Args:
        made: Its result.
        libraries: Code of installed packages that ran.
        reads: Attributes that were looked up by computed names.
        second: The key with the values of these.
    """

    made: T
    libraries: Libraries
    reads: Sequence[Read]
    second: str


@dataclass(frozen=True)
class CacheRequest:
    """A request for the program of one computation.

    Args:
        body: The function and its kind of calls.
        given: The arguments.
        laid: The devices, if there are several.
        of: Name of the computation, if it is not a call.
        key: Digest of all that a trace may read.
        entry: Path of the program.
        forms: Forms of the arguments.
    """

    body: CallPlanner
    given: Sequence[object]
    laid: MeshLayout | None
    of: Sequence[str]
    key: Key
    entry: Path
    forms: Forms

    @classmethod
    def make(
        cls,
        body: CallPlanner,
        given: Sequence[object],
        laid: MeshLayout | None = None,
        of: Sequence[str] = (),
    ) -> Self:
        """Return the request for a computation of this body.

        Raises:
            NotDeterministic: Something that a trace may read has no reliable fingerprint, or there
                is no cache folder.
        """
        if importlib.util.find_spec("flatbuffers") is None:
            raise NotDeterministic(
                "`jax.export` needs the package flatbuffers to write programs, and it is not"
                " installed"
            )
        folder = own() if body.core.options.cache else None
        if folder is None:
            raise NotDeterministic(
                "there is no folder of jitney's own for compiled programs (see `cache` above)"
            )

        arrays, counts = split_counts(given)
        key = key_of(
            body,
            arrays,
            counts,
            laid=laid,
            of=of,
        )
        forms = Forms(body.layout.values([object() for _ in arrays], body.statics))
        return cls(
            body,
            given,
            laid,
            of,
            key,
            place(folder, body.core.name, key.text),
            forms,
        )

    def lookup(self) -> tuple[SerializedProgram | None, str]:
        """Return the cached program if it is what a trace would give; else None, and the reason why
        a program that is there is not used.
        """
        stored = load(self.entry, self.key.text)
        if stored is None:
            return None, ""
        # The key covers the user's code. Files and names of packages, the form of the result, and
        # attributes looked up by computed names are known only after a trace, so they are compared
        # here.
        changed = (
            stored.libraries.first_change()
            or self._unreadable(stored)
            or self._changed_reads(stored)
            or self._missing_array(stored)
        )
        if changed is not None:
            return None, f"; the one that was kept is not used: {changed}"
        return stored, ""

    def record_trace(self, make: Callable[[], T]) -> Recorded[T]:
        """Run a trace under the monitors that record its reads.

        Raises:
            NotDeterministic: The key may not hold everything that it read.
        """
        traced = TracedCacheEntries(self.key.remembering, alone(self.key.scope))
        looked_up = LookedUp(self.key.codes, partial(self._current_key, traced=traced))
        with watch_thread(self.key.codes, looked_up, traced) as ran:
            made = make()

        # Refuse what the monitors saw and the key does not hold.
        if ran.problem is not None:
            raise NotDeterministic(ran.problem)
        libraries = Libraries.of(ran.libraries)
        traced.check()

        # A trace that changes the values in its own key would be found under the wrong one.
        if self._current_key(traced=traced).text != self.key.text:
            raise NotDeterministic("the trace changes what it reads")

        second = looked_up.text()
        if self.key.is_as_computed:
            traced.remember()
        return Recorded(made, libraries, looked_up.reads, second)

    def compare_programs(
        self,
        fresh: SerializedProgram,
        stored: SerializedProgram,
    ) -> None:
        """Compare a fresh trace with the cached program.

        Raises:
            VerificationError: The programs differ.
        """
        same = fresh.metadata == stored.metadata and (
            [*map(text_of, fresh.programs)] == [*map(text_of, stored.programs)]
        )
        if not same:
            raise VerificationError(
                self.body.core.where,
                "the program that was kept is not the one that is traced now.",
                'Under `verify` each program found by cache="program" is traced too, and their'
                " texts are equal.",
                f"this is a fault of jitney's: please report it; until then delete {self.entry},"
                " and leave `cache` out.",
            )

    def _current_key(
        self,
        reads: Sequence[Read] = (),
        traced: TracedCacheEntries | None = None,
    ) -> Key:
        """Return the current key; with attributes looked up by computed names, the second key."""
        return key_of(
            self.body,
            *split_counts(self.given),
            reads,
            self.laid,
            self.of,
            traced,
        )

    def _changed_reads(self, stored: SerializedProgram) -> str | None:
        """Return why attributes that its trace looked up by computed names have other values now,
        if they do.
        """
        if not stored.asked:
            return None
        missing = [module for module, _ in stored.asked if module and module not in sys.modules]
        try:
            is_same = not missing and self._current_key(stored.asked).text == stored.second
        except NotDeterministic as unsure:
            return str(unsure)
        return None if is_same else "a name that it looks up stands for something else"

    def _missing_array(self, stored: SerializedProgram) -> str | None:
        """Return that an array which the program takes is not here, if it is not."""
        is_here = self.key.arrays.keys() >= set(stored.captured)
        return None if is_here else "an array that it captures is not there"

    def captured(self, stored: SerializedProgram) -> list[object]:
        """Return the captured arrays that a program takes after its arguments, as JAX converts
        them.
        """
        held = [self.key.arrays[digest] for digest in stored.captured]
        return [
            each if isinstance(each, jax.Array) else np.asarray(each, aval_parts(each)[1])
            for each in held
        ]

    def _unreadable(self, stored: SerializedProgram) -> str | None:
        """Return why a result cannot be rebuilt here, if it cannot."""
        try:
            self.forms.read(stored.form)
        except NotDeterministic as unsure:
            return str(unsure)
        return None
