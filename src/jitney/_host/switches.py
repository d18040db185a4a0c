"""Settings of the process for all functions at once: the defaults of `verify`, `debug_nans`,
`compiler` and `auto`, and whether jitney does anything.

This module stands before everything that it switches. An option of a function comes before
`jitney.configure`, and that before the environment. A change by `configure` holds from the next
call of each function: the setting is a part of the key under which a function looks for its
programs, and listeners drop what leads past that look-up. The variables are read at each
decoration, and whenever a function meets a new kind of call. `JITNEY_DISABLE` applies to functions
decorated while it is set.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from .._errors import OptionError, Where

TRUE = ("1", "true", "on", "yes")
_FALSE = ("", "0", "false", "off", "no")
Disabled = Literal["jit", "eager"]
COMPILERS = ("default", "fast")
EXACT = "exact"
"""Value of `auto`: only what gives results that are equal to the bit."""


@dataclass(frozen=True)
class Settings:
    """Values of the settings, for functions whose options say nothing."""

    verify: bool = False
    debug_nans: bool = False
    compiler: str = "default"
    auto: bool | str = False


OF_PROGRAMS = ("debug_nans", "compiler", "auto")
"""Settings that change a program, and so are a part of the key of each. `verify` is not: it
compares.
"""
VARIABLES = {name: f"JITNEY_{name.upper()}" for name in asdict(Settings())}
"""Setting -> its environment variable."""


class SettingsListener(Protocol):
    """Object that looks for its programs anew when a setting changes."""

    def reset_decision(self) -> None: ...


class ProcessSettings:
    """The settings in effect, where each comes from, and who is notified of a change."""

    def __init__(self) -> None:
        self.now = Settings()
        self._lock = threading.RLock()
        self._configured: dict[str, object] = {}
        self._of_environment: dict[str, object] = {}
        # The variables when they were last read.
        self._texts: tuple[str | None, ...] = (None,) * len(VARIABLES)
        self._listeners: weakref.WeakSet[SettingsListener] = weakref.WeakSet()

    def add_listener(self, listener: SettingsListener) -> None:
        """Register an object that is notified when a setting changes."""
        with self._lock:
            self._listeners.add(listener)

    def configure(self, given: Mapping[str, object]) -> None:
        """Take settings of `jitney.configure`; None leaves the choice to the environment."""
        with self._lock:
            self._configured.update(given)
        self._update()

    def read_environment(self, where: Where | str) -> None:
        """Read the variables, if they have changed.

        Raises:
            OptionError: A value is not known.
        """
        texts = tuple(map(os.environ.get, VARIABLES.values()))
        if texts == self._texts:
            return
        given = {
            name: _of_text(where, name, text)
            for name, text in zip(VARIABLES, texts, strict=True)
            if text is not None
        }
        with self._lock:
            self._texts, self._of_environment = texts, given
        self._update()

    def source(self, name: str) -> str:
        """Return where the value of a setting comes from: `configure`, a variable, or neither."""
        if self._configured.get(name) is not None:
            return "`jitney.configure`"
        return VARIABLES[name] if self._of_environment.get(name) is not None else "the default"

    def _update(self) -> None:
        with self._lock:
            given: dict[str, Any] = {
                name: value
                for of in (self._of_environment, self._configured)
                for name, value in of.items()
                if value is not None
            }
            before, self.now = self.now, replace(Settings(), **given)
            listeners = list(self._listeners) if self.now != before else []
        # Not under the lock: a listener may be at work in another thread.
        for listener in listeners:
            listener.reset_decision()


SETTINGS = ProcessSettings()


def read_settings(**given: object) -> dict[str, object]:
    """Return the settings that `jitney.configure` is given, without those left out.

    Raises:
        OptionError: A value is malformed.
    """
    for name, value in given.items():
        if value is not None and not _RULES[name][0](value):
            raise OptionError(
                "jitney.configure()",
                f"{name}={value!r} is not understood.",
                f"It is {_RULES[name][1]}.",
                f"correct or remove `{name}`.",
                code="J206",
            )
    return {name: value for name, value in given.items() if value is not None}


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_compiler(value: object) -> bool:
    return isinstance(value, str) and value in COMPILERS


def is_auto(value: object) -> bool:
    """Return whether a value of `auto` is understood."""
    return isinstance(value, bool) or (isinstance(value, str) and value == EXACT)


_RULES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "verify": (_is_flag, "True or False"),
    "debug_nans": (_is_flag, "True or False"),
    "compiler": (_is_compiler, '"default" or "fast"'),
    "auto": (is_auto, 'True, False or "exact"'),
}


def _of_text(where: Where | str, name: str, text: str) -> object:
    """Return the value that a variable gives; None if it is empty."""
    given, text = text, text.strip().lower()
    rule = "It is default or fast."
    if text == "":
        return None
    if name != "compiler":
        rule = "It is 1 or 0."
        if text in TRUE or text in _FALSE:
            return text in TRUE
        if name == "auto":
            rule = "It is 1, 0 or exact."
            if text == EXACT:
                return text
    elif text in COMPILERS:
        return text
    raise OptionError(
        where,
        f"{VARIABLES[name]}={given!r} is not known.",
        rule,
        f"correct {VARIABLES[name]}, or unset it.",
        code="J206",
    )


def read_disabled(where: Where | str) -> Disabled | None:
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
