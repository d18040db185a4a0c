"""What is switched for all functions at once: whether programs are verified, and whether jitney
does anything.

It stands before everything that is switched. `JITNEY_VERIFY` and `jitney.configure(verify=...)`
count from the next call of each function, since whoever looks for a fault has programs already;
`JITNEY_DISABLE` counts for functions decorated while it is set, as `JITNEY_DEBUG_NANS` does.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Literal, Protocol

from ._errors import OptionError

TRUE = ("1", "true", "on", "yes")
_FALSE = ("", "0", "false", "off", "no")
Disabled = Literal["jit", "eager"]


class Switched(Protocol):
    """What decides on its next call anew how it runs."""

    def decide_again(self) -> None: ...


class Switch:
    """Whether programs are verified that do not say so themselves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: bool | None = None
        self._switched: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def on(self) -> bool:
        """Whether `jitney.configure(verify=...)`, or else `JITNEY_VERIFY`, asks for it."""
        return (
            self._asked
            if self._asked is not None
            else os.environ.get("JITNEY_VERIFY", "").lower() in TRUE
        )

    def turns(self, switched: Switched) -> None:
        """Tell this one when the switch turns."""
        with self._lock:
            self._switched.add(switched)

    def turn(self, asked: bool | None) -> None:  # noqa: FBT001 - what `configure` was given
        """Ask for it, or not; None leaves it to the environment."""
        self._asked = asked
        with self._lock:
            switched = list(self._switched)
        for switch in switched:
            switch.decide_again()


VERIFY = Switch()


def disabled(where: Any) -> Disabled | None:
    """What `JITNEY_DISABLE` asks for.

    Raises:
        OptionError: It is not known.
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
