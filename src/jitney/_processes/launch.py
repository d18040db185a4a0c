"""Start of a run of several processes, by arguments and variables or by what JAX finds of a
launcher.

JAX aborts a process whose run does not come together; this module raises an error before.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import jax

from .._errors import ProcessError

_V6: Final = 6
# Seconds that JAX, which aborts, waits longer than this module.
_SLACK: Final = 30.0
_LAUNCHERS: Final = {
    "SLURM": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID"),
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
}


@dataclass(frozen=True)
class RunRequest:
    """Arguments and variables of the run; None is for JAX to find."""

    address: str | None
    count: int | None
    index: int | None
    found: str

    @property
    def nothing(self) -> bool:
        return self.address is None and self.count is None and self.index is None


def read_request(
    address: str | None,
    count: int | None,
    index: int | None,
) -> RunRequest:
    """Read the arguments, and the variables for those that are left out.

    Raises:
        ProcessError: They make no sense.
    """
    by = "by JAX_COORDINATOR_ADDRESS and the variables beside it"
    if any(value is not None for value in (address, count, index)):
        by = "by arguments"
    # JAX's own variables, read here so that a missing one is reported by name.
    address = address if address is not None else os.environ.get("JAX_COORDINATOR_ADDRESS")
    count = count if count is not None else _number("JAX_NUM_PROCESSES")
    index = index if index is not None else _number("JAX_PROCESS_ID")
    for name, value in (("num_processes", count), ("process_id", index)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise refusal(
                f"{name}={value!r} is not a number.",
                "Processes are counted from 0.",
                "pass an int.",
            )
    if count is not None and count < 1:
        raise refusal(
            f"num_processes={count}, but there is at least this one.",
            "Processes are counted from 0.",
            "pass how many there are.",
        )
    if index is not None and (index < 0 or (count is not None and index >= count)):
        of = "" if count is None else f" of {count}"
        raise refusal(
            f"there is no process {index}{of}.",
            "Each process has its own number, from 0 to one less than there are.",
            "pass process_id=0 in the first, 1 in the second, and so on.",
        )
    if address is not None and not (
        isinstance(address, str) and address.rpartition(":")[2].isdigit()
    ):
        raise refusal(
            f"coordinator_address={address!r} has no port.",
            "All processes connect to one port of process 0.",
            'write host and port: "10.0.0.1:1234".',
        )
    return RunRequest(address, count, index, by)


def listens_at(address: str | None) -> tuple[str, str]:
    """Return the host of an address, and the address at which process 0 listens: that host, if it
    is an address of this machine; else "", for all addresses.

    A name may mean another address on another machine (many map their own to 127.0.1.1), so only
    "localhost" is taken for an address.
    """
    host = address.rpartition(":")[0].strip("[]") if address else ""
    own = "127.0.0.1" if host == "localhost" else host
    try:
        parsed = ipaddress.ip_address(own)
        if parsed.is_unspecified:
            return "", ""
        with socket.socket(socket.AF_INET6 if parsed.version == _V6 else socket.AF_INET) as probe:
            probe.bind((own, 0))
    # A name, or an address that is translated (NAT) on the way to this machine.
    except (ValueError, OSError):
        return host, ""
    return host, own


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.strip().isdigit():
        raise refusal(
            f"the variable {name} is {text!r}, which is not a number.",
            "Processes are counted from 0.",
            "set it to a number.",
        )
    return int(text)


def start_run(
    given: RunRequest,
    devices: int | Sequence[int] | None,
    method: str | None,
    timeout: float,
    heartbeat: int,
) -> str | None:
    """Start JAX's run; return how it was found, or None if there is none.

    Raises:
        ProcessError: It cannot be started.
    """
    if given.address is not None and given.index:
        _await_coordinator(given.address, given.index, timeout)
    # JAX aborts in C++ when its timeout ends, so a thread ends the process before, with a message.
    alarm = threading.Timer(timeout, _too_late, (timeout,))
    alarm.daemon = True
    alarm.start()
    try:
        jax.distributed.initialize(
            given.address,
            given.count,
            given.index,
            local_device_ids=devices,
            cluster_detection_method=method,
            initialization_timeout=int(timeout + _SLACK),
            heartbeat_timeout_seconds=heartbeat,
            coordinator_bind_address=_bound_to(given.address),
        )
    except RuntimeError as error:
        # Only the words distinguish this error of JAX from others.
        if "must be called before" not in str(error):
            raise
        raise refusal(
            "JAX has started its devices already.",
            "A process joins its run before it computes anything or asks for devices.",
            "call it first, before any array is made, in modules that are imported too.",
        ) from error
    except ValueError as error:
        if "defined" not in str(error):
            raise
        if given.nothing:
            return None
        have = {
            "coordinator_address": given.address,
            "num_processes": given.count,
            "process_id": given.index,
        }
        missing = [name for name, value in have.items() if value is None]
        raise refusal(
            f"{' and '.join(missing)} is not known.",
            "A run is given by all three, or found by its launcher.",
            "pass it, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.",
        ) from error
    finally:
        alarm.cancel()
    if None not in (given.address, given.count, given.index):
        return f"given {given.found}"
    launchers = (name for name, names in _LAUNCHERS.items() if all(map(os.environ.get, names)))
    return f"started by {next(launchers, 'what JAX found')}"


def _bound_to(address: str | None) -> str | None:
    """Address at which JAX's coordinator listens; None leaves it to JAX, whose coordinator listens
    at all addresses of process 0.
    """
    host = listens_at(address)[1]
    if address is None or not host or "JAX_COORDINATOR_BIND_ADDRESS" in os.environ:
        return None
    port = address.rpartition(":")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _await_coordinator(address: str, index: int, timeout: float) -> None:
    """Wait until process 0 listens: JAX would wait too, and then abort the process.

    Raises:
        ProcessError: It does not in time.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)),
                timeout=max(0.1, min(5.0, left)),
            ):
                return
        except OSError as error:
            if time.monotonic() >= end:
                raise refusal(
                    f"process {index} has not reached process 0 at {address} within {timeout:g} s"
                    f" ({error.strerror or error}).",
                    "All processes connect to process 0, which listens there.",
                    "start process 0, or correct the address or the firewall; timeout= waits"
                    " longer.",
                ) from error
            time.sleep(0.1)


def _too_late(timeout: float) -> None:
    """Print an error and end the process, before JAX aborts it with a stack of C++."""
    text = refusal(
        f"not all processes of the run came within {timeout:g} s.",
        "A run begins when all are there.",
        "look whether each was started, with one address and one number of processes; timeout="
        " waits longer.",
    )
    print(f"jitney.errors.ProcessError: {text}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(1)


def alone(given: RunRequest) -> str:
    if given.count == 1:
        return f"alone: one process, given {given.found}"
    tasks = os.environ.get("SLURM_NTASKS", "1")
    if tasks != "1" and "SLURM_STEP_NODELIST" not in os.environ:
        return f"alone: SLURM has {tasks} tasks, but this process was not started by srun"
    return "alone: no launcher and no variable says that there are others"


def refusal(what: str, rule: str, fix: str) -> ProcessError:
    return ProcessError("jitney.processes.distributed()", what, rule, fix)
