"""`jitney.processes.distributed`: join a run of several processes, each of which runs the same
script.

JAX starts the run (`jax.distributed`), and finds what a launcher has set. This module reports
failures as sentences, in a bounded time, and opens the connection over which processes compare
their programs (`channel.py`).
"""

from __future__ import annotations

import atexit
import json
import platform
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeVar

import jax
import numpy as np

from .._jax.trees import is_number
from .._owners import public
from .._public import public_in
from .._version import __version__
from .channel import Channel, end_in
from .compare_facts import verdict_on
from .launch import alone, listens_at, read_request, refusal, start_run
from .run import RUN

T = TypeVar("T")
# Bytes that each process sends to introduce itself; of equal length, for a collective.
_HELLO: Final = 4096


@public_in("jitney.processes")
@dataclass(frozen=True)
class Processes:
    """Processes of a run, as one of them sees it; returned by `jitney.processes.distributed`. As a
    context manager it leaves the run at the end.

    Args:
        index: Number of this process, from 0.
        count: Number of processes.
        found: How the run was found.
        host: Name of this process's machine.
    """

    index: int
    count: int
    found: str
    host: str = field(compare=False)

    @property
    def local_devices(self) -> list[Any]:
        """The devices of this process; starts JAX's backends."""
        return list(jax.local_devices())

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: object,
    ) -> None:
        # `sys.exit(0)` is an end in order.
        if isinstance(error, SystemExit) and not error.code:
            error = None
        RUN.leave("" if error is None else _stop_reason(error))
        if self.count > 1 and error is None:
            jax.distributed.shutdown()

    def __str__(self) -> str:
        mine = self.local_devices
        devices = f"{len(mine)} {mine[0].platform} {'device' if len(mine) == 1 else 'devices'}"
        everywhere = f", {jax.device_count()} in all" if self.count > 1 else ""
        return (
            f"process {self.index} of {self.count} on {self.host}, {devices}{everywhere};"
            f" {self.found}"
        )


@public
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
    """Join the run of several processes that this one belongs to, before anything else of JAX. A
    process on its own joins nothing, and the result says so.

        processes = jitney.processes.distributed()
        print(processes)  # process 2 of 4 on node17, 2 cpu devices, 8 in all; started by SLURM
        with jitney.mesh(data=-1):  # the devices of all processes
            loss = step(model, jitney.processes.from_processes(x, "data"))

    The first of these that gives a value counts: the arguments; the variables
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; what `jax.distributed` finds of
    SLURM, Open MPI, Kubernetes or a TPU pod. A run that `jax.distributed.initialize` has started
    already is taken over. On CPUs, processes communicate by Gloo, which is JAX's default.

    Args:
        coordinator_address: Host and port of process 0, which all reach: `"10.0.0.1:1234"`. If the
            host is an IP address of its machine (or "localhost"), process 0 listens at that address
            alone, and so does JAX's coordinator; else both listen at all addresses.
        num_processes: Number of processes.
        process_id: Number of this process, from 0.
        local_device_ids: Devices of this host that belong to this process, on GPUs; all if left
            out, or as the launcher sets.
        cluster_detection_method: As of `jax.distributed.initialize`; `"mpi4py"` for other kinds of
            MPI.
        timeout: Seconds to wait for the others, at the start and whenever programs are compared.
        heartbeat: Seconds without a sign of life after which JAX ends all processes.
        grace: Seconds that this process has to end by itself once another has stopped; then it is
            ended.

    Returns:
        The number of this process, and of all. Print it.

    Raises:
        ProcessError: JAX has started without it, it was called before, an argument makes no sense,
            process 0 is not reached, or the processes have different versions of Python, JAX or
            jitney.
    """
    if RUN.processes is not None:
        raise refusal(
            "it was called before.",
            "A process joins a run once.",
            "call it once, at the start, and keep what it returns.",
        )
    for name, value in (("timeout", timeout), ("heartbeat", heartbeat), ("grace", grace)):
        if not is_number(value) or not value > 0:
            raise refusal(
                f"{name}={value!r} is not a time.",
                "It is a number of seconds, above 0.",
                f"write {name}=60.",
            )

    given = read_request(coordinator_address, num_processes, process_id)
    host = socket.gethostname()
    if jax.distributed.is_initialized():
        how: str | None = "started by jax.distributed.initialize"
    elif given.count == 1:
        how = None
    else:
        how = start_run(given, local_device_ids, cluster_detection_method, timeout, heartbeat)
    if how is None or jax.process_count() == 1:
        RUN.processes = Processes(0, 1, f"alone: {how}" if how is not None else alone(given), host)
        return RUN.processes

    processes = Processes(jax.process_index(), jax.process_count(), how, host)

    channel = Channel(processes.index, timeout, grace)
    _open_channel(processes, channel, given.address)
    RUN.processes, RUN.channel = processes, channel
    atexit.register(RUN.leave)
    _tell_of_errors(grace)
    return processes


def _open_channel(
    processes: Processes,
    channel: Channel,
    address: str | None,
) -> None:
    """Open the connections between the processes.

    Raises:
        ProcessError: Versions differ, or process 0 is not reached.
    """
    versions = {
        "Python": platform.python_version(),
        "jax": jax.__version__,
        "jitney": __version__,
    }
    me: dict[str, object] = {"versions": versions, "host": processes.host}
    hub = None
    if processes.index == 0:
        known, own = listens_at(address)
        hub = channel.serve(processes.count, own, verdict_on)
        hosts = [own]
        if not own:
            hosts = [*filter(None, (known, processes.host, *_addresses(processes.host)))]
        me["port"] = hub.port
        me["secret"] = hub.secret.hex()
        me["hosts"] = list(dict.fromkeys(hosts))

    # Process 0's port and secret reach the others by a collective of JAX, which needs no further
    # address.
    everyone = [json.loads(text) for text in _gather_texts(json.dumps(me))]
    first = everyone[0]
    for index, other in enumerate(everyone):
        for name, version in other["versions"].items():
            expected = first["versions"][name]
            if version != expected:
                raise refusal(
                    f"process {index} has {name} {version}, process 0 has {expected}.",
                    "All processes run one program, which each of them compiles.",
                    "install the same versions everywhere.",
                )
    if hub is None:
        channel.join(first["hosts"], first["port"], bytes.fromhex(first["secret"]))
    elif not hub.all_here.wait(channel.timeout):
        raise refusal(
            f"not all processes have connected to process 0 at port {hub.port} within"
            f" {channel.timeout:g} s.",
            "Processes compare plans over a connection to process 0.",
            "let TCP connections through between the hosts of a run.",
        )


def _gather_texts(text: str) -> list[str]:
    """Gather one text of each process, over one device of each."""
    firsts: dict[int, object] = {}
    for device in jax.devices():
        firsts.setdefault(device.process_index, device)
    devices = np.array([firsts[i] for i in sorted(firsts)])
    mesh = jax.sharding.Mesh(devices, ("process",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("process"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    content = text.encode().ljust(_HELLO)[:_HELLO]
    row = np.frombuffer(content, np.uint8)[None]
    rows = jax.make_array_from_process_local_data(spread, row)
    # A replicated result of a sharded argument is an all-gather.
    gathered = jax.jit(_identity, out_shardings=whole)(rows)
    return [bytes(row).decode().rstrip() for row in np.asarray(gathered)]


def _identity(x: T) -> T:
    return x


def _addresses(host: str) -> list[str]:
    """Other addresses of this machine: its address towards other hosts, and the loopback
    address.
    """
    addresses: list[str] = []
    with suppress(OSError):
        addresses.append(socket.gethostbyname(host))
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
        # An address for documentation (RFC 5737): nothing is sent, but the socket gets a local
        # address.
        outwards.connect(("192.0.2.1", 9))
        addresses.append(outwards.getsockname()[0])
    return [*addresses, "127.0.0.1"]


def _tell_of_errors(grace: float) -> None:
    """Tell the other processes of an exception that ends this one; it is printed as before."""
    before = sys.excepthook

    def hook(
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        RUN.leave(_stop_reason(error))
        before(kind, error, trace)
        # JAX waits at its exit for all processes: some may never come there.
        end_in(2 * grace)

    sys.excepthook = hook


def _stop_reason(error: BaseException) -> str:
    return f"stopped by {type(error).__name__}: {error}"
