"""`sys.monitoring`: a tool id that is free, callbacks by event, and all given back at the end.

Python 3.12 and later tell up to six tools which code runs. Three parts of jitney listen by this
module: the trace of a program that is stored, the symbolic trace, and `python -m jitney run`, which
loads it without jitney. So it imports nothing but the standard library.

    monitor = claim()                                   None: Python 3.11, or no id is free
    monitor.begin({"PY_START": start, "CALL": call}, everywhere=("PY_START",))
    monitor.listen(code, "CALL")                        calls of one code object only
    monitor.end()
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, ModuleType

# 3 and 4 first: Python reserves the other ids for debuggers, coverage, profilers and optimisers by
# convention.
_IDS = (3, 4, 5, 2, 1, 0)


class CodeMonitor:
    """A tool of `sys.monitoring`, which holds its id until `end`.

    Args:
        api: The module.
        tool: The id.
    """

    def __init__(self, api: ModuleType, tool: int):
        self._api = api
        self._tool = tool
        self._heard: tuple[int, ...] = ()
        # By `id`: equal code objects may be of different files. The values keep them alive, so that
        # an id is not used twice.
        self._codes: dict[int, CodeType] = {}

    @property
    def disable(self) -> object:
        """Result of a callback that wants no more of an event for this code."""
        return self._api.DISABLE

    def begin(
        self,
        callbacks: Mapping[str, Callable[..., object]],
        everywhere: Iterable[str],
        *,
        restart: bool = False,
    ) -> None:
        """Call a function for each of these events.

        Args:
            callbacks: Name of an event -> the function.
            everywhere: Events of all code; the others are heard where `listen` says.
            restart: Whether events come again for code whose callbacks have returned `disable`.
        """
        # The callbacks must be there before the first event.
        self._heard = tuple(map(self._event, callbacks))
        for event, callback in zip(self._heard, callbacks.values(), strict=True):
            self._api.register_callback(self._tool, event, callback)
        self._api.set_events(self._tool, self._mask(everywhere))
        if restart:
            self._api.restart_events()

    def listen(self, code: CodeType, *names: str) -> None:
        """Hear these events of one code object."""
        mask = self._mask(names)
        self._codes[id(code)] = code
        self._api.set_local_events(self._tool, code, mask)

    def listens(self, code: CodeType) -> bool:
        """Return whether events of a code object are heard by `listen`."""
        return id(code) in self._codes

    def end(self) -> None:
        """Hear no more, and give the id back."""
        self._api.set_events(self._tool, 0)
        for code in self._codes.values():
            self._api.set_local_events(self._tool, code, 0)
        for event in self._heard:
            self._api.register_callback(self._tool, event, None)
        self._api.free_tool_id(self._tool)
        self._codes.clear()

    def _event(self, name: str) -> int:
        return getattr(self._api.events, name)

    def _mask(self, names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            mask |= self._event(name)
        return mask


def claim() -> CodeMonitor | None:
    """Return a monitor with an id of its own; None in Python 3.11, and where no id is free."""
    api = getattr(sys, "monitoring", None)
    if api is None:
        return None
    for tool in _IDS:
        if api.get_tool(tool) is not None:
            continue
        try:
            api.use_tool_id(tool, "jitney")
        except ValueError:
            # Another thread has taken it since.
            continue
        return CodeMonitor(api, tool)
    return None
