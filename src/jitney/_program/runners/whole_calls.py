"""Calls that run whole or in pieces: what runners in threads and in chunks have in common."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import cast

from ..._body.placed_calls import PlacedCalls
from ..._jax.equinox_checks import FAILURE
from ..._jax.typed import Array
from ..._signature.options import Options
from ..compiled_calls import CompiledCalls, SpecializedFunction
from ..tracing.held_numbers import Redirected
from .wrappers import Run, around, runner_inside


class WholeCalls(PlacedCalls[Array]):
    """Runs the calls of an entry, some of them whole.

    Args:
        entry: The entry, which holds this.
    """

    asks_jit = True

    def __init__(self, entry: CompiledCalls):
        super().__init__()
        self._entry = weakref.ref(entry)
        # Runs whole calls, of programs that have or have not run-time checks.
        self._whole: tuple[bool, Run] | None = None
        # Options, and another function -> the entry of the same calls with them.
        self._entries: dict[Hashable, CompiledCalls] = {}

    @abstractmethod
    def run_outermost(self, arrays: Sequence[Array]) -> object:
        """Run a call that stands in no trace, with jit on."""

    def run_within(self, arrays: Sequence[Array]) -> object:
        """Run a call inside a trace: nothing is divided or measured there."""
        return self.run_whole(arrays)

    def run_without_jit(self, arrays: Sequence[Array]) -> object:
        """Run a call with jit off, undivided."""
        return self.entry.jitted(*arrays)

    @property
    def entry(self) -> CompiledCalls:
        entry = self._entry()
        if entry is None:
            raise ReferenceError("the program of this function has been dropped")
        return entry

    def runner(self) -> Run:
        """Return the function that runs calls, with all that options add around it."""
        return around(self.entry, self.entry.jitted, self)

    def run_whole(self, arrays: Sequence[Array]) -> object:
        """Run a call whole, with jit on."""
        entry = self.entry
        if self._whole is None or self._whole[0] != entry.checked:
            run = runner_inside(entry, arrays, entry.jitted)
            self._whole = entry.checked, run
        return self._whole[1](*arrays)

    def entry_with(
        self,
        options: Options,
        fn: Callable[..., object] | None = None,
    ) -> CompiledCalls:
        """Return the entry of the same calls with other options, inside of this one; of another
        function, if it is given.
        """
        # What this entry does around a call is not done inside of it once more.
        options = options.without("debug_nans", "verify", "auto")
        key = options, fn
        entry = self._entries.get(key)
        if entry is None:
            outer = self.entry
            core = cast("SpecializedFunction[CompiledCalls]", outer.core)
            entry = self._entries[key] = type(outer)(
                core.with_options(options, fn),
                outer.layout,
                outer.weak_statics,
                outer.key,
            )
            entry.share_copies(outer)
            if entry.workers is not None:
                entry.workers.allow_whole_calls()
        return entry

    @staticmethod
    def run_entry(entry: CompiledCalls, arrays: Sequence[Array]) -> object:
        """Run a call of another entry, as `Program.__call__` does."""
        while True:
            try:
                out = entry.run(*arrays)
                if entry.flights:
                    entry.await_missed_checks(out)
            except Redirected:
                entry.serve_all_calls()
            except (FAILURE, ValueError) as error:
                if not entry.note_missed_check(error):
                    raise
            else:
                return out
            finally:
                if entry.flights:
                    entry.land()
