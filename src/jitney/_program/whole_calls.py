"""Calls that run whole or in pieces: what runners in threads and in chunks have in common."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._jax.typed import Array
from .._view.layout import jit_is_off
from .wrappers import Run, around, runner_inside

if TYPE_CHECKING:
    from .entry import Specialization


class WholeCalls(ABC):
    """Runs the calls of an entry, some of them whole.

    Args:
        entry: The entry, which holds this.
    """

    def __init__(self, entry: Specialization):
        self._entry = weakref.ref(entry)
        # Runs whole calls, of programs that have or have not run-time checks.
        self._whole: tuple[bool, Run] | None = None

    @abstractmethod
    def __call__(self, *arrays: Array) -> object:
        """Run a call."""

    @property
    def entry(self) -> Specialization:
        entry = self._entry()
        if entry is None:
            raise ReferenceError("the program of this function has been dropped")
        return entry

    def runner(self) -> Run:
        """Return the function that runs calls, with all that options add around it."""
        return around(self.entry, self.entry.jitted, self)

    def run_whole(self, arrays: Sequence[Array]) -> object:
        entry = self.entry
        if jit_is_off():
            return entry.jitted(*arrays)
        if self._whole is None or self._whole[0] != entry.checked:
            run = runner_inside(entry, arrays, entry.jitted)
            self._whole = entry.checked, run
        return self._whole[1](*arrays)
