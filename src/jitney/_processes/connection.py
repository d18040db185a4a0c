"""A connection between two processes: opened with a secret, carrying whole messages.

The handshake is a mutual challenge and response by HMAC-SHA256, so that neither side sends the
secret:

    hub    -> member: nonce
    member -> hub:    number, its own nonce, HMAC("member", number, nonce)
    hub    -> member: HMAC("hub", number, member's nonce)
"""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .._errors import ProcessError

NONCE = 32
# Seconds to open a connection, before the next try.
CONNECT = 5.0
# Seconds between two tries.
_PAUSE = 0.2
# Seconds for an attempt to notice that its time is over.
_SLACK = 1.0
_LENGTH = struct.Struct(">Q")
Message = Mapping[str, Any]
"""A message as JSON data, by field."""


class Connection:
    """Connection that sends and receives JSON messages, each after its length."""

    def __init__(self, connected: socket.socket):
        connected.settimeout(None)
        self._socket = connected
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message. A cut connection is not an error here: the reading side notices it."""
        data = json.dumps(message).encode()
        with suppress(OSError), self._lock:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def messages(self) -> Iterator[Message]:
        """Yield messages until the connection is cut."""
        with suppress(OSError):
            while head := _exactly(self._socket, _LENGTH.size):
                (size,) = _LENGTH.unpack(head)
                body = _exactly(self._socket, size)
                if not body:
                    return
                yield json.loads(body)


def _exactly(connected: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connected.recv(min(size - len(received), 1 << 20))
        if not part:
            return b""
        received += part
    return bytes(received)


def authenticate(
    came: socket.socket,
    secret: bytes,
    claim: Callable[[int], bool],
) -> int | None:
    """Authenticate a connection; return the number of its process, or None.

    Args:
        came: The connection.
        secret: Secret of the run.
        claim: Returns whether the process has no other connection: a process that can reach this
            side by two names tries both.
    """
    # A nonce of this side, so that a recorded proof cannot be used again.
    nonce = secrets.token_bytes(NONCE)
    came.sendall(nonce)
    number = _exactly(came, _LENGTH.size)
    theirs = _exactly(came, NONCE)
    proof = _exactly(came, NONCE)
    if not hmac.compare_digest(proof, _proof(secret, b"member", number, nonce)):
        return None
    # The number is a part of what was proved.
    index = int(_LENGTH.unpack(number)[0])
    if not claim(index):
        return None
    came.sendall(_proof(secret, b"hub", number, theirs))
    return index


def _proof(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(parts), hashlib.sha256)


def connect(
    index: int,
    hosts: Sequence[str],
    port: int,
    secret: bytes,
    timeout: float,
) -> Connection:
    """Connect to process 0, which may be reached by any of these names: all are tried at once, and
    again until the time is over.

    Raises:
        ProcessError: No name reaches it.
    """
    end = time.monotonic() + timeout
    attempts = [_Attempt(index, host, port, secret) for host in hosts]
    reached: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
    for attempt in attempts:
        thread = threading.Thread(
            target=attempt.until,
            args=(end, reached),
            daemon=True,
            name="jitney",
        )
        thread.start()

    # The first attempt that succeeds; the others stop.
    line = None
    for _ in attempts:
        with suppress(queue.Empty):
            left = end - time.monotonic() + _SLACK
            line = line or reached.get(timeout=max(0.1, left))
        if line is not None:
            break
    for attempt in attempts:
        attempt.over.set()
    if line is not None:
        return line
    failed = ", ".join(f"{attempt.host} ({attempt.why})" for attempt in attempts)
    raise ProcessError(
        "jitney.processes.distributed()",
        f"process {index} does not reach process 0 at port {port} of {failed or 'any host'} within"
        f" {timeout:g} s.",
        "Processes compare plans over a connection to process 0.",
        "let TCP connections through between the hosts of a run; timeout= waits longer.",
    )


class _Attempt:
    """Attempt to reach process 0 by one of its names."""

    def __init__(self, index: int, host: str, port: int, secret: bytes):
        self.host = host
        self.why = "it does not answer"
        self.over = threading.Event()
        self._index, self._port, self._secret = index, port, secret

    def until(
        self,
        end: float,
        reached: queue.SimpleQueue[Connection | None],
    ) -> None:
        """Try until the time is over; put the connection, or None, into the queue."""
        reached.put(self._connect(end))

    def _connect(self, end: float) -> Connection | None:
        while not self.over.is_set() and time.monotonic() < end:
            try:
                line = self._line(end)
            except OSError as error:
                self.why = str(error.strerror or error)
            else:
                if line is not None:
                    return line
                self.why = "what listens there is not this run, or has a line by another name"
            self.over.wait(_PAUSE)
        return None

    def _line(self, end: float) -> Connection | None:
        number = _LENGTH.pack(self._index)
        nonce = secrets.token_bytes(NONCE)
        left = end - time.monotonic()
        came = socket.create_connection(
            (self.host, self._port),
            timeout=max(_PAUSE, min(CONNECT, left)),
        )
        proven = False
        try:
            # Process 0 may be stopped or slow, so the handshake may take all of the remaining time.
            came.settimeout(max(_PAUSE, end - time.monotonic()))
            came.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            theirs = _exactly(came, NONCE)
            came.sendall(number + nonce + _proof(self._secret, b"member", number, theirs))
            proof = _exactly(came, NONCE)
            expected = _proof(self._secret, b"hub", number, nonce)
            proven = hmac.compare_digest(proof, expected)
        finally:
            if not proven:
                came.close()
        return Connection(came) if proven else None
