"""Connections between the processes of a run, to compare programs and to report a stop at once.

JAX has such connections of its own, but no public access to them. Its collectives could compare,
but they wait without end for a process that does not come, and would meet those of a step. So each
process has one connection to process 0. It carries short texts, never arrays, and nothing at all
while warm steps run. A process proves that it belongs to the run by a secret, which is distributed
by JAX's own collectives.

A comparison: each member calls `Channel.agree`, which sends its facts to the `Hub` of process 0;
the last proposal triggers the verdict, which goes to each member's `Inbox`.
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

from .._errors import format_error
from .compare_facts import message_text
from .connection import NONCE, Connection, Message, authenticate, connect

_TOGETHER = "Before its first step all processes compare what they are about to do."
_AGAIN = "look at what it says; then start all again from the last checkpoint."
# Number of connections without proof that are accepted, in addition to one for each process.
_STRANGERS = 64
# Seconds between two checks whether all processes are connected.
_LOOK = 0.2
Facts = Sequence[tuple[str, str, str]]
"""Facts that processes compare: (kind, name, text), in order."""


class Inbox:
    """Messages that this process has received.

    Args:
        news: Notified at each message.
        verdicts: Verdicts of comparisons, by the name of each.
        gone: Reason of each process that has left; "" if it ended in order.
    """

    def __init__(self) -> None:
        self.news = threading.Condition()
        self.verdicts: dict[str, str] = {}
        self.gone: dict[int, str] = {}

    def store_message(self, message: Message) -> bool:
        """Store a message; return whether it says that a process has stopped because of an
        error.
        """
        with self.news:
            if "verdict" in message:
                self.verdicts[message["of"]] = message["verdict"]
            else:
                self.gone[message["gone"]] = message["why"]
            self.news.notify_all()
        return bool(message.get("why"))

    def verdict(
        self,
        of: str,
        group: Iterable[int],
        timeout: float,
    ) -> str | None:
        """Wait for the verdict of a comparison; None if none comes in time."""
        end = time.monotonic() + timeout
        with self.news:
            # A member that has left cannot propose: do not wait for the timeout.
            while of not in self.verdicts:
                left = [i for i in group if i in self.gone]
                if left:
                    reason = self.gone[left[0]] or "ended"
                    return message_text(
                        f"process {left[0]} has {reason}, and does not take part in it.",
                        _TOGETHER,
                        _AGAIN,
                    )
                rest = end - time.monotonic()
                if rest <= 0:
                    return None
                self.news.wait(rest)
            return self.verdicts.pop(of)


class Hub:
    """Process 0's side: it collects the proposals of all processes, and sends them the verdict."""

    def __init__(
        self,
        count: int,
        host: str,
        compare: Callable[[Mapping[int, Facts]], str],
        tell: Callable[[Message], None],
        timeout: float,
    ):
        self.secret = secrets.token_bytes(NONCE)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server(
            (host, 0),
            family=family,
            backlog=count + _STRANGERS,
        )
        self.port: int = self._listening.getsockname()[1]
        self._compare = compare
        self._count = count
        self._timeout = timeout
        self._lock = threading.Lock()
        # Connections that have proved which process they belong to.
        self._lines: dict[int, socket.socket] = {}
        self._tell: dict[int, Callable[[Message], None]] = {0: tell}
        self._proposed: dict[str, dict[int, Facts]] = {}
        self.all_here = threading.Event()
        _thread(self._accept, count)

    def propose(
        self,
        index: int,
        of: str,
        group: Sequence[int],
        facts: Facts,
    ) -> None:
        """Add one process's facts to a comparison; the last proposal triggers the verdict."""
        with self._lock:
            proposed = self._proposed.setdefault(of, {})
            proposed[index] = facts
            if set(proposed) != set(group):
                return
            del self._proposed[of]
        # Outside of the lock: comparing takes time, and sending may block.
        verdict = self._compare(proposed)
        for member in group:
            self._say(member, {"of": of, "verdict": verdict})

    def leave(self, index: int, why: str) -> None:
        """Tell the other processes that a process has left."""
        for other in list(self._tell):
            if other != index:
                self._say(other, {"gone": index, "why": why})

    def _say(self, index: int, message: Message) -> None:
        tell = self._tell.get(index)
        if tell is not None:
            tell(message)

    def _accept(self, count: int) -> None:
        """Accept connections until all processes are connected. Each is greeted by a thread of its
        own, so that a silent one does not hold up the others.
        """
        strangers: list[socket.socket] = []
        with self._listening:
            self._listening.settimeout(_LOOK)
            while len(self._tell) < count:
                with suppress(OSError):
                    came, _ = self._listening.accept()
                    came.settimeout(self._timeout)
                    strangers = [*self._unclaimed_connections(strangers), came]
                    if len(strangers) > count + _STRANGERS:
                        # The one that has been silent for longest.
                        _close(strangers.pop(0))
                    _thread(self._greet, came)
        for stranger in self._unclaimed_connections(strangers):
            _close(stranger)
        self.all_here.set()

    def _unclaimed_connections(self, came: Sequence[socket.socket]) -> list[socket.socket]:
        """Connections that are still open, and do not belong to a process yet."""
        with self._lock:
            known = set(self._lines.values())
        return [line for line in came if line.fileno() >= 0 and line not in known]

    def _greet(self, came: socket.socket) -> None:
        def claim(index: int) -> bool:
            with self._lock:
                if not 0 < index < self._count:
                    return False
                # `setdefault` is the claim: of two connections for one process the first wins.
                return self._lines.setdefault(index, came) is came

        index = None
        with suppress(OSError):
            index = authenticate(came, self.secret, claim)
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
    """This process's side of the connection.

    Args:
        index: Number of this process.
        timeout: Seconds after which a comparison that some process does not join is an error.
        grace: Seconds that this process has to end by itself, once another has stopped.
    """

    def __init__(self, index: int, timeout: float, grace: float):
        self.index = index
        self.timeout = timeout
        self.grace = grace
        self.inbox = Inbox()
        self.hub: Hub | None = None
        self._line: Connection | None = None
        self._numbers: dict[tuple[int, ...], int] = {}
        # Verdicts that every process has received.
        self._known: set[str] = set()
        self._over = False
        self._alarmed = False
        # Whether this process ends in order.
        self._quiet = False

    def serve(
        self,
        count: int,
        host: str,
        compare: Callable[[Mapping[int, Facts]], str],
    ) -> Hub:
        """Act as process 0."""
        self.hub = Hub(count, host, compare, self._on_message, self.timeout)
        return self.hub

    def join(self, hosts: Sequence[str], port: int, secret: bytes) -> None:
        """Connect to process 0.

        Raises:
            ProcessError: Process 0 cannot be reached.
        """
        self._line = connect(self.index, hosts, port, secret, self.timeout)
        _thread(self._listen, self._line)

    def agree(self, group: Sequence[int], facts: Facts) -> str:
        """Compare facts with the other processes of a group.

        Returns:
            The message of what differs; empty if all is the same.
        """
        members = tuple(sorted(group))
        # Processes compare in the same order, as they run collectives in the same order: so the
        # group and a count name the comparison.
        number = self._numbers.get(members, 0) + 1
        self._numbers[members] = number
        of = f"{members} {number}"
        if self.hub is not None:
            self.hub.propose(self.index, of, members, facts)
        elif self._line is not None:
            self._line.send({"of": of, "group": members, "facts": facts})
        verdict = self.inbox.verdict(of, members, self.timeout)
        if verdict is None:
            names = ", ".join(map(str, members))
            return message_text(
                f"not all of processes {names} have come to this call within"
                f" {self.timeout:g} s. One that has made calls of this kind before does not compare"
                " again, and one that waits elsewhere does not come.",
                _TOGETHER,
                "make the same calls in the same order in every process;"
                " jitney.processes.distributed(timeout=...) waits longer.",
            )
        if verdict:
            self._known.add(verdict)
        return verdict

    def stop_reason(self) -> str:
        """Text on the process that has stopped, if one has."""
        return next((f"process {i} has {why}" for i, why in self.inbox.gone.items() if why), "")

    def leave(self, error: str = "") -> None:
        """Tell the others that this process ends, and why if not in order."""
        if self._over:
            return
        self._over = True
        # An error that is a verdict is raised in every process: it is not news for the others.
        why = "" if any(text in error for text in self._known) else error
        self._quiet = not why
        if self.hub is not None:
            self.hub.leave(self.index, why)
        elif self._line is not None:
            self._line.send({"why": why})

    def _listen(self, line: Connection) -> None:
        for message in line.messages():
            self._on_message(message)
        if 0 not in self.inbox.gone:
            self._on_message({"gone": 0, "why": "stopped: its connection is cut"})

    def _on_message(self, message: Message) -> None:
        first = not self.inbox.gone
        stopped = self.inbox.store_message(message)
        if "gone" in message and first and not stopped:
            timer = threading.Timer(self.grace, self._alone, (message["gone"],))
            timer.daemon = True
            timer.start()
        # Also in a process that ends with an error, which may come from the stop of the other one.
        if stopped and not self._quiet and not self._alarmed:
            self._alarmed = True
            _alarm(self.index, message, self.grace)

    def _alone(self, gone: int) -> None:
        """Warn that another process has ended in order while this one has not: it may wait for the
        other, or have work of its own.
        """
        if not self._over and not self._alarmed:
            text = format_error(
                f"jitney, process {self.index}",
                f"process {gone} has ended in order, this one has not.",
                "A step over the devices of both does not come back.",
                "take the same steps in every process.",
            )
            print(text, file=sys.stderr, flush=True)  # noqa: T201


def _alarm(index: int, message: Message, grace: float) -> None:
    """Print that another process has stopped, and end this one: a wait in a collective can neither
    continue nor be interrupted.
    """
    text = format_error(
        f"jitney, process {index}",
        f"process {message['gone']} has {message['why']}",
        "No process can go on without the others.",
        f"start all again from the last checkpoint. This process ends in {grace:g} s, if it has not"
        " ended by itself.",
    )
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - nobody may be there to catch an exception
    end_in(grace)


def end_in(seconds: float) -> None:
    """End this process after some seconds, if it has not ended until then."""
    # `os._exit`: a regular exit would wait for the other processes.
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _close(connected: socket.socket) -> None:
    """Close a socket, also for a thread that waits in `recv`."""
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


def _thread(run: Callable[..., None], *args: object) -> None:
    thread = threading.Thread(target=run, args=args, daemon=True, name="jitney")
    thread.start()
