"""Ways into a run that goes on for hours: JAX's profiler server, and a signal that prints.

`jitney.configure(profiler_port=9999, report_signal="SIGUSR1")` sets both. Nothing is done before.
The signal prints statistics and decisions of all decorated functions that are alive. Nothing is
traced or compiled for it: the decisions are those that each function's last trace noted, so that it
may be asked of a long run from another thread.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

import jax

from .._errors import OptionError, plural
from .._jax.trees import is_whole
from .._program.core import CompiledFunction
from .._program.registry import REGISTRY
from .._report.option_lines import PlanLine
from .._text.json import Data

_WHERE = "jitney.configure()"
# Others have a meaning that a program loses with them.
_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINFO")
_PORTS = range(1, 2**16)


class _Server:
    """JAX's profiler server of this process; there can be one, and it ends with the process."""

    port: int | None = None


_SERVER = _Server()
_LOCK = threading.Lock()


def read_port(port: object) -> int | None:
    """Return the port of `profiler_port=`; None if none is given, or its server runs already.

    Raises:
        OptionError: It is not a free port, or there is a server on another one.
    """
    if port is None:
        return None
    if not is_whole(port) or int(str(port)) not in _PORTS:
        raise OptionError(
            _WHERE,
            f"profiler_port={port!r} is not a port.",
            "It is a number from 1 to 65535.",
            "write profiler_port=9999.",
            code="J206",
        )
    wanted = int(str(port))
    if _SERVER.port == wanted:
        return None
    if _SERVER.port is not None:
        raise OptionError(
            _WHERE,
            f"profiler_port={wanted} comes after {_SERVER.port}.",
            "A process has one profiler server, which ends with the process.",
            f"capture from port {_SERVER.port}.",
            code="J206",
        )
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", wanted))
        except OSError as error:
            raise OptionError(
                _WHERE,
                f"profiler_port={wanted} cannot be used ({error.strerror or error}).",
                "Each process of a machine needs a port of its own.",
                "take another port, such as 9999 plus the number of the process.",
                code="J206",
            ) from error
    return wanted


def serve(port: int | None) -> None:
    """Start JAX's profiler server. It starts JAX's backend too."""
    if port is None:
        return
    with _LOCK:
        if _SERVER.port is not None:
            return
        try:
            jax.profiler.start_server(port)
        except ValueError as error:
            raise OptionError(
                _WHERE,
                f"profiler_port={port}: {error}",
                "The program has started a server with `jax.profiler.start_server` itself.",
                "leave out one of the two.",
                code="J206",
            ) from error
        _SERVER.port = port


def read_signal(given: object) -> signal.Signals | None:
    """Return the signal of `report_signal=`; None if none is given.

    Raises:
        OptionError: It is not a signal that is free for it, or this is not the main thread.
    """
    if given is None:
        return None
    there = [name for name in _SIGNALS if hasattr(signal, name)]
    names = {name: getattr(signal, name) for name in there}
    found = next((each for name, each in names.items() if given in (name, each)), None)
    # True is 1, which is a signal's number.
    if found is None or isinstance(given, bool):
        raise OptionError(
            _WHERE,
            f"report_signal={given!r} is not a signal that a report can have.",
            f"It is one of {', '.join(there) or 'none: this system has no such signals'}.",
            'write report_signal="SIGUSR1".',
            code="J206",
        )
    if threading.current_thread() is not threading.main_thread():
        raise OptionError(
            _WHERE,
            f"report_signal={given!r} is set in another thread.",
            "Python takes handlers of signals from its main thread alone.",
            "call it at the start of the program.",
            code="J206",
        )
    return found


def report_at(wanted: signal.Signals | None) -> None:
    """Print all programs at a signal from now on. A handler that was there is called too."""
    if wanted is None:
        return
    before = signal.getsignal(wanted)
    if isinstance(before, _Handler):
        return
    signal.signal(wanted, _Handler(before))


class _Handler:
    """Handler of the signal, which Python calls in the main thread, between two of its steps."""

    def __init__(self, before: object):
        self._before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # The main thread may hold any lock at this point, so another thread collects and prints.
        try:
            threading.Thread(target=print_live, name="jitney-report", daemon=True).start()
        except RuntimeError:
            os.write(2, b"jitney: no report, since no thread can be started any more\n")
        if callable(self._before):
            self._before(number, frame)


def live_programs() -> list[Data]:
    """Return a record of each function that was called or traced, longest compiled first."""
    every = REGISTRY.cores()
    cores = [core for core in every if core.log.traces or core.counters.stats().calls]
    records = map(_record, cores)
    return sorted(records, key=lambda record: -record["seconds"])


def _record(core: CompiledFunction) -> Data:
    stats, made = core.counters.stats(), list(core.log.traces)
    lines = [PlanLine(*each) for each in made[-1].decided] if made else []
    return {
        "function": str(core.where),
        "calls": stats.calls,
        "traces": stats.traces,
        "compiles": stats.compiles,
        "seconds": stats.trace_seconds + stats.lower_seconds + stats.compile_seconds,
        "retraces": list(stats.retraces),
        "plan": [vars(line) for line in lines if line.asked],
    }


def live_text() -> str:
    """Return the same as text, as it is printed at a signal."""
    records = live_programs()
    at = time.strftime("%H:%M:%S")
    parts = [f"jitney: process {os.getpid()} at {at}, {plural(len(records), 'function')}"]
    for each in records:
        parts.append(
            f"{each['function']}: {each['calls']} calls, {each['traces']} traces,"
            f" {each['compiles']} compiles, {each['seconds']:.2f} s"
        )
        parts += [f"    {line['name']}: {line['why']}" for line in each["plan"]]
        # The first trace has no cause.
        parts += [f"    traced again: {text}" for text in each["retraces"][-_SHOWN:]]
    return "\n".join(parts) + "\n"


def print_live() -> None:
    """Write the text to standard error, in one piece."""
    if sys.stderr is not None:
        sys.stderr.write(live_text())
        sys.stderr.flush()


# Causes of the latest traces of a function.
_SHOWN = 3
