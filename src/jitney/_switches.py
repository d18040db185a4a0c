"""Switches for all functions at once: whether programs are verified, and whether jitney does
anything.

This module stands before everything that it switches. `JITNEY_VERIFY` and
`jitney.configure(verify=...)` apply from the next call of each function, since whoever looks for a
fault has programs already. `JITNEY_DISABLE` applies to functions decorated while it is set, as
`JITNEY_DEBUG_NANS` does.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Literal, Protocol

from ._errors import OptionError, Where

TRUE = ("1", "true", "on", "yes")
_FALSE = ("", "0", "false", "off", "no")
Disabled = Literal["jit", "eager"]


class SwitchListener(Protocol):
    """Object that decides how to run again when a switch changes."""

    def reset_decision(self) -> None: ...


class Switch:
    """Default for the verification of programs, used where the option `verify` is not given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: bool | None = None
        self._switched: weakref.WeakSet[SwitchListener] = weakref.WeakSet()

    @property
    def on(self) -> bool:
        """True if `jitney.configure(verify=...)`, or else `JITNEY_VERIFY`, requests
        verification.
        """
        return (
            self._asked
            if self._asked is not None
            else os.environ.get("JITNEY_VERIFY", "").lower() in TRUE
        )

    def turns(self, switched: SwitchListener) -> None:
        """Register an object that is notified when the switch changes."""
        with self._lock:
            self._switched.add(switched)

    def turn(self, asked: bool | None) -> None:  # noqa: FBT001 - what `configure` was given
        """Request verification, or not; None leaves the choice to the environment."""
        self._asked = asked
        with self._lock:
            switched = list(self._switched)
        for switch in switched:
            switch.reset_decision()


VERIFY = Switch()


def disable_switch(where: Where | str) -> Disabled | None:
    """Value of `JITNEY_DISABLE`.

    Raises:
        OptionError: The value is not known.
    """
    text = os.environ.get("JITNEY_DISABLE", "").strip().lower()
    if text in _FALSE:
        return None
    if text in TRUE:
        return "jit"
    if text == "eager":
        return "eager"
    raise OptionError(
        where,
        f"JITNEY_DISABLE={text!r} is not known.",
        "It is 1 for plain `jax.jit`, or eager for no jit at all.",
        "correct or unset it.",
        code="J206",
    )
