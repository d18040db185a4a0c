"""`jitney.distributed`: one run of several processes, each of which runs the same script.

JAX starts them (`jax.distributed`), and finds them where a launcher has left word. This says in sentences what goes wrong, in a bounded
time, and opens the line over which processes compare their plans (see _channel).
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import numpy as np

from ._channel import Channel, end_in
from ._errors import ProcessError, sentence
from ._trees import is_a
from ._verdict import verdict_on

_WHERE: Final = "jitney.distributed()"
_HELLO: Final = 4096  # bytes that each process says of itself
_SLACK: Final = 30.0  # seconds by which JAX, which aborts, waits longer than this does
_jax: Any = jax
_sharding: Any = jax.sharding
_LAUNCHERS: Final = {
    "SLURM": ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID"),
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
}


@dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them sees it. Made by `jitney.distributed`; as a context manager it leaves the run at the end.

    Args:
        index: This process, from 0.
        count: How many there are.
        found: What told.
        host: The machine of this process.
    """

    index: int
    count: int
    found: str
    host: str = field(compare=False)

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process; starts JAX's backends."""
        return list(_jax.local_devices())

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        RUN.leave("" if error is None else _why(error))
        if self.count > 1 and error is None:
            _jax.distributed.shutdown()

    def __str__(self) -> str:
        mine = self.local_devices
        devices = f"{len(mine)} {mine[0].platform} {'device' if len(mine) == 1 else 'devices'}"
        everywhere = f", {_jax.device_count()} in all" if self.count > 1 else ""
        return f"process {self.index} of {self.count} on {self.host}, {devices}{everywhere}; {self.found}"


class Run:
    """The state behind `distributed`: JAX has one run per process, so there is one of these."""

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self.channel: Channel | None = None
        self.compared: set[Any] = set()  # shapes of parts that `from_processes` has put together

    def leave(self, error: str = "") -> None:
        """Tell the other processes that this one ends."""
        if self.channel is not None:
            self.channel.leave(error)


RUN: Final = Run()


@dataclass(frozen=True)
class _Given:
    """What arguments and variables say; None is for JAX to find."""

    address: str | None
    count: int | None
    index: int | None
    found: str

    @property
    def nothing(self) -> bool:
        return self.address is None and self.count is None and self.index is None


def distributed(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    timeout: float = 300,
    heartbeat: int = 100,
    grace: float = 10,
) -> Processes:
    """Join the run of several processes that this one belongs to, before anything else of JAX. Alone, it does nothing and says so.

        processes = jitney.distributed()
        print(processes)                          # process 2 of 4 on node17, 2 cpu devices, 8 in all; started by SLURM
        with jitney.mesh(data=-1):                # the devices of all processes
            loss = step(model, jitney.from_processes(x, "data"))

    The first of these that says it counts: the arguments; the variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID;
    what `jax.distributed` finds of SLURM, Open MPI, Kubernetes or a TPU pod. A run that `jax.distributed.initialize` has started already
    is taken over. On CPUs, processes talk by Gloo, which is JAX's default.

    Args:
        coordinator_address: Host and port of process 0, which all reach: `"10.0.0.1:1234"`.
        num_processes: How many there are.
        process_id: Which of them this is, from 0.
        local_device_ids: The devices of this host that belong to this process, on GPUs; all if left out, or as the launcher says.
        cluster_detection_method: As of `jax.distributed.initialize`; `"mpi4py"` for other kinds of MPI.
        timeout: Seconds to wait for the others, at the start and whenever plans are compared.
        heartbeat: Seconds without a sign of life after which JAX ends all processes.
        grace: Seconds that this process has to end by itself once another has stopped; then it is ended.

    Returns:
        Which process this is, of how many. Print it.

    Raises:
        ProcessError: JAX has started without it, it was called before, an argument makes no sense, process 0 is not reached, or the
            processes have different versions of Python, JAX or jitney.
    """
    if RUN.processes is not None:
        raise _error("it was called before.", "A process joins a run once.", "call it once, at the start, and keep what it returns.")
    given = _given(coordinator_address, num_processes, process_id)
    host = socket.gethostname()
    if _jax.distributed.is_initialized():
        found: str | None = "started by jax.distributed.initialize"
    elif given.count == 1:
        found = None
    else:
        found = _started(given, local_device_ids, cluster_detection_method, timeout, heartbeat)
    if found is None or _jax.process_count() == 1:
        RUN.processes = Processes(0, 1, f"alone: {found}" if found is not None else _alone(given), host)
        return RUN.processes
    processes = Processes(_jax.process_index(), _jax.process_count(), found, host)
    channel = Channel(processes.index, timeout, grace)
    _joined(processes, channel, given.address)
    RUN.processes, RUN.channel = processes, channel
    atexit.register(RUN.leave)
    _tell_of_errors(grace)
    return processes


def _given(address: str | None, count: int | None, index: int | None) -> _Given:
    """What arguments and variables say of the run.

    Raises:
        ProcessError: It makes no sense.
    """
    found = "by arguments" if (address, count, index) != (None, None, None) else "by JAX_COORDINATOR_ADDRESS and its kin"
    address = address if address is not None else os.environ.get("JAX_COORDINATOR_ADDRESS")
    count = count if count is not None else _number("JAX_NUM_PROCESSES")
    index = index if index is not None else _number("JAX_PROCESS_ID")
    for name, value in (("num_processes", count), ("process_id", index)):
        if value is not None and (not is_a(value, int) or is_a(value, bool)):
            raise _error(f"{name}={value!r} is no number.", "Processes are counted from 0.", "pass an int.")
    if count is not None and count < 1:
        raise _error(f"num_processes={count}, but there is at least this one.", "Processes are counted from 0.", "pass how many there are.")
    if index is not None and (index < 0 or (count is not None and index >= count)):
        of = "" if count is None else f" of {count}"
        raise _error(f"there is no process {index}{of}.", "Each process has its own number, from 0 to one less than there are.",
                     "pass process_id=0 in the first, 1 in the second, and so on.")  # fmt: skip
    if address is not None and not address.rpartition(":")[2].isdigit():
        raise _error(f"coordinator_address={address!r} has no port.", "All processes connect to one port of process 0.",
                     'write host and port: "10.0.0.1:1234".')  # fmt: skip
    return _Given(address, count, index, found)


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.strip().isdigit():
        raise _error(f"the variable {name} is {text!r}, which is no number.", "Processes are counted from 0.", "set it to a number.")
    return int(text)


def _started(given: _Given, devices: int | Sequence[int] | None, method: str | None, timeout: float, heartbeat: int) -> str | None:
    """Start JAX's run; how it was found, None if nothing says that there is one.

    Raises:
        ProcessError: It cannot be started.
    """
    if given.address is not None and given.index:
        _await_coordinator(given.address, given.index, timeout)
    alarm = threading.Timer(timeout, _too_late, (timeout,))
    alarm.daemon = True
    alarm.start()
    try:
        _jax.distributed.initialize(
            given.address, given.count, given.index, local_device_ids=devices, cluster_detection_method=method,
            initialization_timeout=int(timeout + _SLACK), heartbeat_timeout_seconds=heartbeat,
        )  # fmt: skip
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        raise _error("JAX has started its devices already.", "A process joins its run before it computes anything or asks for devices.",
                     "call it first, before any array is made, in modules that are imported too.") from error  # fmt: skip
    except ValueError as error:
        if "defined" not in str(error):
            raise
        if given.nothing:
            return None
        have = {"coordinator_address": given.address, "num_processes": given.count, "process_id": given.index}
        missing = [name for name, value in have.items() if value is None]
        raise _error(f"{' and '.join(missing)} is not known.", "A run is given by all three, or found by its launcher.",
                     "pass it, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.") from error  # fmt: skip
    finally:
        alarm.cancel()
    if None not in (given.address, given.count, given.index):
        return f"given {given.found}"
    return f"started by {next((name for name, names in _LAUNCHERS.items() if all(map(os.environ.get, names))), 'what JAX found')}"


def _await_coordinator(address: str, index: int, timeout: float) -> None:
    """Wait until process 0 listens: JAX would wait too, and then abort the process.

    Raises:
        ProcessError: It does not in time.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=max(0.1, min(5.0, end - time.monotonic()))):
                return
        except OSError as error:
            if time.monotonic() >= end:
                raise _error(f"process {index} has not reached process 0 at {address} within {timeout:g} s ({error.strerror or error}).",
                             "All processes connect to process 0, which listens there.",
                             "start process 0, or correct the address or the firewall; timeout= waits longer.") from error  # fmt: skip
            time.sleep(0.1)


def _too_late(timeout: float) -> None:
    """JAX aborts a process whose others do not come, with a stack of C++; this ends it before, with a sentence."""
    text = _error(f"not all processes of the run came within {timeout:g} s.", "A run begins when all are there.",
                  "look whether each was started, with one address and one number of processes; timeout= waits longer.")  # fmt: skip
    print(f"jitney.ProcessError: {text}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(1)


def _alone(given: _Given) -> str:
    if given.count == 1:
        return f"alone: one process, given {given.found}"
    tasks = os.environ.get("SLURM_NTASKS", "1")
    if tasks != "1" and "SLURM_STEP_NODELIST" not in os.environ:
        return f"alone: SLURM has {tasks} tasks, but this process was not started by srun"
    return "alone: no launcher and no variable says that there are others"


def _joined(processes: Processes, channel: Channel, address: str | None) -> None:
    """Open the line between the processes.

    Raises:
        ProcessError: Versions differ, or process 0 is not reached.
    """
    me: dict[str, Any] = {
        "versions": {"Python": platform.python_version(), "jax": _jax.__version__, "jitney": _version()},
        "host": processes.host,
    }  # fmt: skip
    hub = None
    if processes.index == 0:
        known = address.rpartition(":")[0].strip("[]") if address else ""
        local = known in ("127.0.0.1", "localhost")
        hub = channel.serve(processes.count, known if local else "", verdict_on)
        hosts = [known] if local else [*filter(None, (known, processes.host, *_addresses(processes.host)))]
        me |= {"port": hub.port, "secret": hub.secret.hex(), "hosts": list(dict.fromkeys(hosts))}
    everyone = [json.loads(text) for text in _gathered(json.dumps(me))]
    for index, other in enumerate(everyone):
        for name, version in other["versions"].items():
            if version != everyone[0]["versions"][name]:
                raise _error(
                    f"process {index} has {name} {version}, process 0 has {everyone[0]['versions'][name]}.",
                    "All processes run one program, which each of them compiles.", "install the same versions everywhere.",
                )  # fmt: skip
    first = everyone[0]
    if hub is None:
        channel.join(first["hosts"], first["port"], bytes.fromhex(first["secret"]))
    elif not hub.all_here.wait(channel.timeout):
        raise _error(
            f"not all processes have connected to process 0 at port {hub.port} within {channel.timeout:g} s.",
            "Processes compare plans over a connection to process 0.", "let TCP connections through between the hosts of a run.",
        )  # fmt: skip


def _gathered(text: str) -> list[str]:
    """What each process says, in every process: one device of each is enough for that."""
    firsts: dict[int, Any] = {}
    for device in _jax.devices():
        firsts.setdefault(device.process_index, device)
    mesh = _sharding.Mesh(np.array([firsts[i] for i in sorted(firsts)]), ("process",))
    mine = np.frombuffer(text.encode().ljust(_HELLO)[:_HELLO], np.uint8)[None]
    spread = _sharding.NamedSharding(mesh, _sharding.PartitionSpec("process"))
    whole = _sharding.NamedSharding(mesh, _sharding.PartitionSpec())
    told = _jax.jit(_same, out_shardings=whole)(_jax.make_array_from_process_local_data(spread, mine))
    return [bytes(row).decode().rstrip() for row in np.asarray(told)]


def _same(x: Any) -> Any:
    return x


def _addresses(host: str) -> list[str]:
    """Where else this machine may be reached: its address towards others, and itself."""
    found: list[str] = []
    with suppress(OSError):
        found.append(socket.gethostbyname(host))
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
        outwards.connect(("192.0.2.1", 9))  # an address for documentation; nothing is sent
        found.append(outwards.getsockname()[0])
    return [*found, "127.0.0.1"]


def _version() -> str:
    from . import __version__

    return __version__


def _tell_of_errors(grace: float) -> None:
    """Let the other processes hear of an exception that ends this one; who shows it does so as before."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        RUN.leave(_why(error))
        before(kind, error, trace)
        end_in(2 * grace)  # JAX waits at its exit for all processes: some may never come there

    sys.excepthook = hook


def _why(error: BaseException) -> str:
    return f"stopped by {type(error).__name__}: {error}"


def _error(what: str, rule: str, fix: str) -> ProcessError:
    return ProcessError(sentence(_WHERE, what, rule, fix))
