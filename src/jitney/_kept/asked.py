"""One computation that is asked for: its key, where its program lies, whether that is still what
would be traced, what a trace of it reads.

It is a call (`kept.py`), or something of several programs, such as the steps of a stream
(`in_parts.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from .._body.body import Body
from .._errors import VerificationError
from .._jax.compile_cache.cache import own
from .._record.libraries import Libraries
from .._record.looked_up import LookedUp, Read
from .._record.remembered import Traced
from .._record.running import watched
from .._record.unsure import Unsure
from .._record.values import alone
from .._view.true_sizes import parted
from .form import Forms
from .key import Key, key_of
from .laid import Laid
from .stored import Stored, load, place
from .tracing import text_of

T = TypeVar("T")
FOUND = "found: neither traced nor lowered in this process"
MADE = "kept for other processes"
UNWRITTEN = "not kept: the folder cannot be written"


@dataclass(frozen=True)
class Recorded(Generic[T]):
    """A trace that was watched.

    Args:
        made: What came of it.
        libraries: What ran of installed packages.
        reads: What was asked for by computed names.
        second: The key with what these stand for.
    """

    made: T
    libraries: Libraries
    reads: Sequence[Read]
    second: str


@dataclass(frozen=True)
class Asked:
    """What is looked for.

    Args:
        body: The function and its kind of calls.
        given: The arguments.
        laid: The devices, if it is over several.
        of: What is computed of the function, if it is not a call.
        key: All that a trace may read.
        entry: Where it would lie.
        forms: Of the arguments.
    """

    body: Body
    given: Sequence[Any]
    laid: Laid | None
    of: Sequence[str]
    key: Key
    entry: Path
    forms: Forms

    @classmethod
    def make(
        cls, body: Body, given: Sequence[Any], laid: Laid | None = None, of: Sequence[str] = ()
    ) -> Self:
        """Of this body.

        Raises:
            Unsure: Something that a trace may read cannot be told by content, or nothing can be
                kept.
        """
        if importlib.util.find_spec("flatbuffers") is None:
            raise Unsure(
                "`jax.export` needs the package flatbuffers to write programs, and it is not"
                " installed"
            )
        folder = own() if body.core.options.cache else None
        if folder is None:
            raise Unsure(
                "there is no folder of jitney's own for compiled programs (see `cache` above)"
            )
        arrays, counts = parted(given)
        key = key_of(body, arrays, counts, laid=laid, of=of)
        forms = Forms(body.layout.values([object() for _ in arrays], body.statics))
        return cls(body, given, laid, of, key, place(folder, body.core.name, key.text), forms)

    def found(self) -> tuple[Stored | None, str]:
        """What is there, if it is what would be traced; else why the one that is there is not
        used.
        """
        stored = load(self.entry, self.key.text)
        if stored is None:
            return None, ""
        changed = (
            stored.libraries.changed() or self._unreadable(stored) or self._reads_other(stored)
        )
        return (
            (stored, "")
            if changed is None
            else (None, f"; the one that was kept is not used: {changed}")
        )

    def recorded(self, make: Callable[[], T]) -> Recorded[T]:
        """What a trace makes, watched.

        Raises:
            Unsure: It is not sure that the key holds all that it read.
        """
        traced = Traced(self.key.remembering, alone(self.key.scope))
        looked_up = LookedUp(self.key.codes, partial(self._again, traced=traced))
        with watched(self.key.codes, looked_up, traced) as ran:
            made = make()
        if ran.problem is not None:
            raise Unsure(ran.problem)
        libraries = Libraries.of(ran.libraries)
        traced.check()
        if self._again(traced=traced).text != self.key.text:
            raise Unsure("the trace changes what it reads")
        second = looked_up.text()
        if self.key.is_as_computed:
            traced.remember()
        return Recorded(made, libraries, looked_up.reads, second)

    def check_same(self, fresh: Stored, stored: Stored) -> None:
        """Compare what is traced now with what was found.

        Raises:
            VerificationError: The programs differ.
        """
        if fresh.beside != stored.beside or list(map(text_of, fresh.programs)) != list(
            map(text_of, stored.programs)
        ):
            raise VerificationError(
                self.body.core.where,
                "the program that was kept is not the one that is traced now.",
                'Under `verify` each program found by cache="program" is traced too, and their'
                " texts are equal.",
                f"this is a fault of jitney's: please report it; until then delete {self.entry},"
                " and leave `cache` out.",
            )

    def _again(self, reads: Sequence[Read] = (), traced: Traced | None = None) -> Key:
        """The key as it is now; with what a trace asked for by computed names, the second one."""
        return key_of(self.body, *parted(self.given), reads, self.laid, self.of, traced)

    def _reads_other(self, stored: Stored) -> str | None:
        """Why what its trace asked for by computed names is not what it was."""
        if not stored.asked:
            return None
        missing = [module for module, _ in stored.asked if module and module not in sys.modules]
        try:
            is_same = not missing and self._again(stored.asked).text == stored.second
        except Unsure as unsure:
            return str(unsure)
        return None if is_same else "a name that it looks up stands for something else"

    def _unreadable(self, stored: Stored) -> str | None:
        """Why a result cannot be put together here."""
        try:
            self.forms.read(stored.form)
        except Unsure as unsure:
            return str(unsure)
        return None
