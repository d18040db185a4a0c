"""A line between the processes of a run: to compare plans before a step, and to hear at once that
one has stopped.

JAX has such a line of its own, which nothing public opens; its collectives would do to compare, but
they wait for a process that does not come without an end, and meet those of a step. So each process
holds one connection to process 0. It carries short texts, never arrays, and nothing at all while
warm steps run. Whoever connects proves that it knows a secret, which came over JAX's own
collectives.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .._errors import sentence
from .compare import worded
from .connection import NONCE, Connection, connected, welcomed

_TOGETHER = "Before its first step all processes compare what they are about to do."
_AGAIN = "look at what it says; then start all again from the last checkpoint."
# connections that have not proved yet that they belong to the run, beside one for each process
_STRANGERS = 64
_LOOK = 0.2  # seconds between two looks whether all are here
Facts = Sequence[tuple[str, str, str]]
"""What processes compare: (kind, name, text), in order."""


class Inbox:
    """What this process has been told."""

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.verdicts: dict[Any, str] = {}
        self.gone: dict[int, str] = {}  # "" where a process has ended in order

    def told(self, message: Mapping[str, Any]) -> bool:
        """Take a message; whether a process has stopped that should not have."""
        with self.news:
            if "verdict" in message:
                self.verdicts[message["of"]] = message["verdict"]
            else:
                self.gone[message["gone"]] = message["why"]
            self.news.notify_all()
        return bool(message.get("why"))

    def verdict(self, of: str, group: Iterable[int], timeout: float) -> str | None:
        """The verdict of a comparison; None where none comes in time."""
        end = time.monotonic() + timeout
        with self.news:
            while of not in self.verdicts:
                left = [i for i in group if i in self.gone]
                if left:
                    return worded(
                        f"process {left[0]} has {self.gone[left[0]] or 'ended'}, and does not take"
                        " part in it.",
                        _TOGETHER,
                        _AGAIN,
                    )
                rest = end - time.monotonic()
                if rest <= 0:
                    return None
                self.news.wait(rest)
            return self.verdicts.pop(of)


class Hub:
    """Process 0's side: it gathers what processes propose, and tells them whether it is the
    same.
    """

    def __init__(
        self,
        count: int,
        host: str,
        compare: Callable[[Mapping[int, Facts]], str],
        tell: Callable[[Any], None],
        timeout: float,
    ):
        self.secret = secrets.token_bytes(NONCE)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family, backlog=count + _STRANGERS)
        self.port: int = self._listening.getsockname()[1]
        self._compare = compare
        self._count = count
        self._timeout = timeout
        self._lock = threading.Lock()
        self._lines: dict[int, socket.socket] = {}  # of those that have proved who they are
        self._tell: dict[int, Callable[[Any], None]] = {0: tell}
        self._proposed: dict[str, dict[int, Any]] = {}
        self.all_here = threading.Event()
        _thread(self._accept, count)

    def propose(self, index: int, of: str, group: Sequence[int], facts: Facts) -> None:
        """One process's part of a comparison; the last one brings the verdict."""
        with self._lock:
            proposed = self._proposed.setdefault(of, {})
            proposed[index] = facts
            if set(proposed) != set(group):
                return
            del self._proposed[of]
        verdict = self._compare(proposed)
        for member in group:
            self._say(member, {"of": of, "verdict": verdict})

    def leave(self, index: int, why: str) -> None:
        """A process is over."""
        for other in list(self._tell):
            if other != index:
                self._say(other, {"gone": index, "why": why})

    def _say(self, index: int, message: Any) -> None:
        tell = self._tell.get(index)
        if tell is not None:
            tell(message)

    def _accept(self, count: int) -> None:
        """Take connections until all processes are here. Each is greeted by a thread of its own:
        one that says nothing holds up none.
        """
        strangers: list[socket.socket] = []
        with self._listening:
            self._listening.settimeout(_LOOK)
            while len(self._tell) < count:
                with suppress(OSError):
                    came, _ = self._listening.accept()
                    came.settimeout(self._timeout)
                    strangers = [*self._unknown(strangers), came]
                    if len(strangers) > count + _STRANGERS:
                        _close(strangers.pop(0))  # which has said nothing for longest
                    _thread(self._greet, came)
        for stranger in self._unknown(strangers):
            _close(stranger)
        self.all_here.set()

    def _unknown(self, came: Sequence[socket.socket]) -> list[socket.socket]:
        """Those that are still open, and of no process yet."""
        with self._lock:
            known = set(self._lines.values())
        return [line for line in came if line.fileno() >= 0 and line not in known]

    def _greet(self, came: socket.socket) -> None:
        def claim(index: int) -> bool:
            with self._lock:
                return 0 < index < self._count and self._lines.setdefault(index, came) is came

        index = None
        with suppress(OSError):
            index = welcomed(came, self.secret, claim)
        if index is None:
            with self._lock:
                self._lines = {i: line for i, line in self._lines.items() if line is not came}
            came.close()
            return
        line = Connection(came)
        self._tell[index] = line.send
        self._serve(index, line)

    def _serve(self, index: int, line: Connection) -> None:
        why = "stopped: its connection is cut"
        for message in line.messages():
            if "facts" in message:
                self.propose(index, message["of"], message["group"], message["facts"])
            else:
                why = message["why"]
                self.leave(index, why)
                return
        self.leave(index, why)


class Channel:
    """This process's side of the line.

    Args:
        index: This process.
        timeout: Seconds after which a comparison that some process does not come to is an error.
        grace: Seconds that this process has to end by itself, once another has stopped.
    """

    def __init__(self, index: int, timeout: float, grace: float):
        self.index, self.timeout, self.grace = index, timeout, grace
        self.inbox = Inbox()
        self.hub: Hub | None = None
        self._line: Connection | None = None
        self._numbers: dict[tuple[int, ...], int] = {}
        self._known: set[str] = set()  # verdicts, which every process has got
        self._over = False
        self._alarmed = False
        self._quiet = False  # this process ends in order

    def serve(self, count: int, host: str, compare: Callable[[Mapping[int, Facts]], str]) -> Hub:
        """Be process 0."""
        self.hub = Hub(count, host, compare, self._told, self.timeout)
        return self.hub

    def join(self, hosts: Sequence[str], port: int, secret: bytes) -> None:
        """Be another.

        Raises:
            ProcessError: Process 0 is not reached.
        """
        self._line = connected(self.index, hosts, port, secret, self.timeout)
        _thread(self._listen, self._line)

    def agree(self, group: Sequence[int], facts: Facts) -> str:
        """Compare facts with the other processes of a group. All compare in one order, as they run
        collectives in one order.

        Returns:
            What differs; nothing if all is the same.
        """
        members = tuple(sorted(group))
        number = self._numbers[members] = self._numbers.get(members, 0) + 1
        of = f"{members} {number}"
        if self.hub is not None:
            self.hub.propose(self.index, of, members, facts)
        elif self._line is not None:
            self._line.send({"of": of, "group": members, "facts": facts})
        verdict = self.inbox.verdict(of, members, self.timeout)
        if verdict is None:
            return worded(
                f"not all of processes {', '.join(map(str, members))} have come to this call within"
                f" {self.timeout:g} s. One that has made calls of this kind before does not compare"
                " again, and one that waits elsewhere does not come.",
                _TOGETHER,
                "make the same calls in the same order in every process;"
                " jitney.distributed(timeout=...) waits longer.",
            )
        if verdict:
            self._known.add(verdict)
        return verdict

    def stopped(self) -> str:
        """Which process has stopped, in words, if one has."""
        return next((f"process {i} has {why}" for i, why in self.inbox.gone.items() if why), "")

    def leave(self, error: str = "") -> None:
        """Tell the others that this process ends, and why if not in order."""
        if self._over:
            return
        self._over = True
        why = "" if any(text in error for text in self._known) else error
        self._quiet = not why
        if self.hub is not None:
            self.hub.leave(self.index, why)
        elif self._line is not None:
            self._line.send({"why": why})

    def _listen(self, line: Connection) -> None:
        for message in line.messages():
            self._told(message)
        if 0 not in self.inbox.gone:
            self._told({"gone": 0, "why": "stopped: its connection is cut"})

    def _told(self, message: Any) -> None:
        first = not self.inbox.gone
        stopped = self.inbox.told(message)
        if "gone" in message and first and not stopped:
            timer = threading.Timer(self.grace, self._alone, (message["gone"],))
            timer.daemon = True
            timer.start()
        # one that fails may fail because another has stopped
        if stopped and not self._quiet and not self._alarmed:
            self._alarmed = True
            _alarm(self.index, message, self.grace)

    def _alone(self, gone: int) -> None:
        """Say that another process has ended in order, while this one has not: it may wait for it,
        or have work of its own.
        """
        if not self._over and not self._alarmed:
            text = sentence(
                f"jitney, process {self.index}",
                f"process {gone} has ended in order, this one has not.",
                "A step over the devices of both does not come back.",
                "take the same steps in every process.",
            )
            print(text, file=sys.stderr, flush=True)  # noqa: T201


def _alarm(index: int, message: Mapping[str, Any], grace: float) -> None:
    """Say that another process has stopped, and end this one: what waits in a collective can
    neither go on nor be interrupted.
    """
    text = sentence(
        f"jitney, process {index}",
        f"process {message['gone']} has {message['why']}",
        "No process can go on without the others.",
        f"start all again from the last checkpoint. This process ends in {grace:g} s, if it has not"
        " ended by itself.",
    )
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - nobody may be there to catch an exception
    end_in(grace)


def end_in(seconds: float) -> None:
    """End this process, if it has not ended until then."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _close(connected: socket.socket) -> None:
    """Also for a thread that waits for what comes over it."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


def _thread(run: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=run, args=args, daemon=True, name="jitney").start()
