"""Attributes that the user's code looks up by computed names during a trace.

Instances, and classes of the user, are hashed as a whole, so any attribute of them is in the key.
Of modules and of installed classes only the names that code spells out are. A computed name is
recorded with its trace, its value enters a second key, and the cached program runs only where both
keys are equal.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Protocol

from .._host.code_monitor import UNTOLD
from .allowlist import BARRED_ATTRIBUTES, FORMATS
from .classes import HEAP, is_set_by_user
from .dynamic_attrs import value_of
from .instructions import Codes, calls_in
from .origin import importable
from .unsure import NotDeterministic

Read = tuple[str, str]
"""A module and a name in it; an empty module for an attribute of any object."""


class Keyed(Protocol):
    """Interface of a cache key (`_serialized/key.py`)."""

    @property
    def text(self) -> str:
        """Text of the key."""
        ...

    @property
    def codes(self) -> Codes:
        """The user's code that was hashed for the key."""
        ...


class LookedUp:
    """Recorder of the attributes that were looked up by computed names.

    Args:
        followed: The user's code that was hashed; code that a look-up leads to is added.
        key: Function from a list of reads to the key that includes them.
    """

    def __init__(
        self,
        followed: Codes,
        key: Callable[[Sequence[Read]], Keyed],
    ):
        self._followed = followed
        self._key = key
        self.reads: list[Read] = []
        self._texts: dict[int, str] = {}

    def note(self, frame: types.FrameType, told: object) -> None:
        """Record a call of `getattr` or `hasattr` in a frame.

        Args:
            frame: The frame that calls.
            told: First argument of the call, where Python reports it (3.12 and later), or `UNTOLD`.

        Raises:
            NotDeterministic: The attribute cannot be determined.
        """
        code, calls = frame.f_code, calls_in(frame.f_code)
        if frame.f_lasti not in calls:
            raise NotDeterministic(
                f"`{code.co_name}` uses `getattr`, and what that reads is not followed"
            )
        call = calls[frame.f_lasti]
        # `reads_of` has the literal name as an attribute already
        if call.literal_name is not None:
            return
        target, name = value_of(call.target, frame), value_of(call.name, frame)
        if type(name) is not str or (told is not UNTOLD and told is not target):
            raise NotDeterministic(
                f"`{code.co_name}` uses `getattr`, and what that reads is not followed"
            )
        if name in BARRED_ATTRIBUTES or name in FORMATS:
            raise NotDeterministic(
                f"`{code.co_name}` asks for `{name}`, and what that reads is not followed"
            )

        # Where the value is stored decides what has to be added to the second key.
        if isinstance(target, types.ModuleType):
            if sys.modules.get(target.__name__) is not target:
                raise NotDeterministic(
                    f"it reads the module `{target.__name__}`, which cannot be imported"
                )
            self._note((target.__name__, name), leads_on=True)
        elif isinstance(target, types.FunctionType) and importable(target) is not None:
            raise NotDeterministic(
                f"`{code.co_name}` looks attributes of `{target.__qualname__}` up by name, which is"
                " known by name alone"
            )
        else:
            self._note_attribute(target, name)

    def _note_attribute(self, target: object, name: str) -> None:
        kinds = [
            kind
            for kind in (target if isinstance(target, type) else type(target)).__mro__
            if importable(kind) is not None
        ]
        # Only heap types accept new attributes.
        if any(kind.__flags__ & HEAP for kind in kinds):
            self._note(
                ("", name), leads_on=any(is_set_by_user(vars(kind).get(name)) for kind in kinds)
            )

    def _note(self, read: Read, *, leads_on: bool) -> None:
        if read in self.reads:
            return
        self.reads.append(read)
        if leads_on:
            # The value may be code that runs next, so the code that it leads to must be known at
            # once.
            key = self._key(self.reads)
            self._texts[len(self.reads)] = key.text
            for code, what in key.codes:
                self._followed.add((code,), what)

    def text(self) -> str:
        """Return the second key; empty if nothing was looked up.

        Raises:
            NotDeterministic: A value has changed since it was looked up.
        """
        for count, text in self._texts.items():
            if self._key(self.reads[:count]).text != text:
                raise NotDeterministic("the trace changes what it reads")
        return self._key(self.reads).text if self.reads else ""
