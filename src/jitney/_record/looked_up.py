"""Attributes that the user's code asks for by names that it computes, while a program is traced.

Of an object all that is in it is read anyhow, and so is a class of the user's, so nothing is
missing from the key. Of a module, and of what somebody has put into an installed class, only those
names are read that code writes: one that is computed is noted, what it stands for is put into a
second key, and the program is run where both keys are the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .._jax.trees import is_a, space_of, type_of
from .allowed import BARRED_ATTRIBUTES, FORMATS
from .by_name import value_of
from .classes import HEAP, is_set_by_user
from .instructions import Codes, calls_in
from .unsure import Unsure
from .whose import importable

Read = tuple[str, str]
"""A module and a name in it; no module where it is an attribute of whatever."""
UNTOLD = object()


class Keyed(Protocol):
    """A key (`_kept/key.py`)."""

    @property
    def text(self) -> str:
        """The key."""
        ...

    @property
    def codes(self) -> Codes:
        """The user's code that was followed."""
        ...


class LookedUp:
    """What was asked for.

    Args:
        followed: The user's code that was followed. What a name leads to is added.
        key: The key with these reads.
    """

    def __init__(self, followed: Codes, key: Callable[[Sequence[Read]], Keyed]):
        self._followed = followed
        self._key = key
        self.reads: list[Read] = []
        self._texts: dict[int, str] = {}

    def note(self, frame: types.FrameType, told: Any) -> None:
        """Code in this frame calls `getattr` or `hasattr`; of newer Pythons, which tell it, with
        this first argument.

        Raises:
            Unsure: It is not seen what is read.
        """
        code, calls = frame.f_code, calls_in(frame.f_code)
        if frame.f_lasti not in calls:
            raise Unsure(f"`{code.co_name}` uses `getattr`, and what that reads is not followed")
        call = calls[frame.f_lasti]
        if call.written is not None:  # an attribute like any other
            return
        target, name = value_of(call.target, frame), value_of(call.name, frame)
        if type(name) is not str or (told is not UNTOLD and told is not target):
            raise Unsure(f"`{code.co_name}` uses `getattr`, and what that reads is not followed")
        if name in BARRED_ATTRIBUTES or name in FORMATS:
            raise Unsure(f"`{code.co_name}` asks for `{name}`, and what that reads is not followed")
        if is_a(target, types.ModuleType):
            if sys.modules.get(target.__name__) is not target:
                raise Unsure(f"it reads the module `{target.__name__}`, which nobody can import")
            self._note((target.__name__, name), leads_on=True)
        elif is_a(target, types.FunctionType) and importable(target) is not None:
            raise Unsure(
                f"`{code.co_name}` looks attributes of `{target.__qualname__}` up by name, which is"
                " known by name alone"
            )
        else:
            self._note_attribute(target, name)

    def _note_attribute(self, target: Any, name: str) -> None:
        kinds: list[Any] = [
            kind
            for kind in (target if is_a(target, type) else type_of(target)).__mro__
            if importable(kind) is not None
        ]
        if any(kind.__flags__ & HEAP for kind in kinds):  # others take no attributes
            self._note(
                ("", name), leads_on=any(is_set_by_user(space_of(kind).get(name)) for kind in kinds)
            )

    def _note(self, read: Read, *, leads_on: bool) -> None:
        if read in self.reads:
            return
        self.reads.append(read)
        if leads_on:
            key = self._key(self.reads)
            self._texts[len(self.reads)] = key.text
            for code, what in key.codes:
                self._followed.add((code,), what)

    def text(self) -> str:
        """The second key; empty where nothing was asked for.

        Raises:
            Unsure: What was read is not what it was then.
        """
        if any(self._key(self.reads[:count]).text != text for count, text in self._texts.items()):
            raise Unsure("the trace changes what it reads")
        return self._key(self.reads).text if self.reads else ""
