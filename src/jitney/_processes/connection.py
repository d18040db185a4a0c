"""One connection between two processes: opened with a secret, and messages there and back in whole."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from .._errors import ProcessError, sentence

NONCE = 32
CONNECT = 5.0  # seconds for one address of process 0; it has several names, not all of which lead to it from elsewhere
_LENGTH = struct.Struct(">Q")


class Connection:
    """One connection: texts there and back, in whole messages."""

    def __init__(self, connected: socket.socket):
        connected.settimeout(None)
        self._socket = connected
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        """Send; a line that is cut says so on the reading side."""
        data = json.dumps(message).encode()
        with suppress(OSError), self._lock:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def messages(self) -> Iterable[Any]:
        """What comes, until the line is cut."""
        with suppress(OSError):
            while (head := _exactly(self._socket, _LENGTH.size)) and (body := _exactly(self._socket, *_LENGTH.unpack(head))):
                yield json.loads(body)


def _exactly(connected: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = connected.recv(min(size - len(found), 1 << 20))
        if not part:
            return b""
        found += part
    return bytes(found)


def welcomed(connected: socket.socket, secret: bytes) -> int | None:
    """The process that has connected and proved that it knows the secret, to which this side proves the same."""
    nonce = secrets.token_bytes(NONCE)
    connected.sendall(nonce)
    index, theirs, proof = (_exactly(connected, size) for size in (_LENGTH.size, NONCE, NONCE))
    if not hmac.compare_digest(proof, _proof(secret, b"member", index, nonce)):
        return None
    connected.sendall(_proof(secret, b"hub", index, theirs))
    return int(_LENGTH.unpack(index)[0])


def _proof(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(parts), hashlib.sha256)


def connected(index: int, hosts: Sequence[str], port: int, secret: bytes) -> Connection:
    """A line to process 0, which may be reached by any of these names.

    Raises:
        ProcessError: It is reached by none.
    """
    number, nonce = _LENGTH.pack(index), secrets.token_bytes(NONCE)
    failed: list[str] = []
    for host in hosts:
        try:
            found = socket.create_connection((host, port), timeout=CONNECT)
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            theirs = _exactly(found, NONCE)
            found.sendall(number + nonce + _proof(secret, b"member", number, theirs))
            if hmac.compare_digest(_exactly(found, NONCE), _proof(secret, b"hub", number, nonce)):
                return Connection(found)
            found.close()
        except OSError as error:
            failed.append(f"{host} ({error.strerror or error})")
    raise ProcessError(
        sentence("jitney.distributed()", f"process {index} does not reach process 0 at port {port} of {', '.join(failed) or 'any host'}.",
                 "Processes compare plans over a connection to process 0.", "let TCP connections through between the hosts of a run.")
    )  # fmt: skip
