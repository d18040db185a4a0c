"""Compilation for more devices than there are, in a process with virtual CPU devices.

The other process runs no program. JAX lowers a program for an abstract mesh, but compiles only for
devices. `jax.export` serialises the lowered program, so no function or array of the user's has to
be sent. It goes over a pipe, whose end also tells the other process that this one is gone: then it
exits, and deletes its folder. XLA partitions a program before it knows the devices, so the
collectives are those of any device; fusion and memory layout afterwards are those of its compiler
for CPUs. This file is also the main program of the other process, and imports nothing of jitney.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST = 2048
"""Maximum of virtual CPU devices in one process: XLA has 11 bits for their ids. Tried with jaxlib
0.10.2.
"""
_LENGTH = struct.Struct(">Q")
_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*")

# Dump the program after partitioning. And keep the rematerialised values of `jax.checkpoint` apart:
# the compiler for CPUs of jaxlib 0.10 merges them with the first computation as common
# subexpressions, which keeps the residuals in memory; compilers for other devices do not.
_OPTIONS = {
    "xla_dump_hlo_pass_re": "spmd-partitioning",
    "xla_dump_hlo_module_re": "jit_call",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


@dataclass(frozen=True)
class CompiledElsewhere:
    """Text and memory of a compiled program, bytes on one device.

    Args:
        text: The compiled program.
        divided: The program after partitioning, before the compiler for CPUs went on; "" for one
            device.
        arguments: Bytes of arguments.
        results: Bytes of results.
        aliased: Bytes of results that alias donated arguments.
        temporaries: Bytes of temporary buffers.
    """

    text: str
    divided: str
    arguments: int
    results: int
    aliased: int
    temporaries: int


@dataclass(frozen=True)
class CompileFailure:
    """Failure of the other process.

    Args:
        text: The last line of its output.
    """

    text: str


def compile_elsewhere(
    programs: Sequence[tuple[object, dict[str, int], tuple[int, ...]]],
) -> list[CompiledElsewhere] | CompileFailure:
    """Compile exported programs, each for the sizes of its mesh and with its donated arguments."""
    count = max(math.prod(mesh.values()) for _, mesh, _ in programs)

    # The user's flags stay, but for a number of devices. `PYTHONPATH` is this process's `sys.path`,
    # so that both import the same JAX.
    flags = (
        f"{_COUNT.sub('', os.environ.get('XLA_FLAGS', ''))}"
        f" --xla_force_host_platform_device_count={count}"
    )
    mine = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "JAX_NUM_CPU_DEVICES": "-1",
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_JIT": "0",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    # The other process creates it, with a mode for this user only.
    folder = Path(tempfile.gettempdir(), f"jitney-simulate-{secrets.token_hex(8)}")

    with tempfile.TemporaryFile() as said:
        # `-P` keeps this file's folder off `sys.path`: its modules must not shadow others.
        command = [sys.executable, "-P", __file__, str(folder)]
        other = subprocess.Popen(  # noqa: S603
            command,
            env=os.environ | mine,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        try:
            answered = _ask(other, pickle.dumps(list(programs)))
        finally:
            other.kill()
            other.wait()
            shutil.rmtree(folder, ignore_errors=True)
        if answered is None:
            said.seek(0)
            lines = [
                line for line in said.read().decode(errors="replace").splitlines() if line.strip()
            ]
            # Lines with "@" are C++ stack frames.
            last = [line for line in lines if not line.lstrip().startswith("@")]
            return CompileFailure(last[-1] if last else f"it ended with {other.returncode}")
        return [CompiledElsewhere(*answer) for answer in answered]


def _ask(other: subprocess.Popen[bytes], content: bytes) -> Any:
    """Send programs to the other process, and return its answer; None if it exits before."""
    asks, answers = other.stdin, other.stdout
    if asks is None or answers is None:
        return None
    with suppress(BrokenPipeError), asks, answers:
        asks.write(_LENGTH.pack(len(content)) + content)
        # The pipe stays open until the answer is there: its end would tell the other process that
        # this one is gone.
        asks.flush()
        answered = answers.read()
        return pickle.loads(answered) if other.wait() == 0 and answered else None  # noqa: S301 - written by this file
    # A broken pipe: the other process exited before it was asked.
    other.wait()
    return None


def _compile(
    exported: Any,
    sizes: dict[str, int],
    donated: tuple[int, ...],
    folder: Path,
) -> tuple[Any, ...]:
    """Compile one program into a dump folder, and return the fields of `CompiledElsewhere`."""
    import jax
    import numpy as np

    jax_: Any = jax
    sharding = jax.sharding
    shape = tuple(sizes.values())
    devices = np.array(jax_.devices()[: math.prod(shape)])
    devices = devices.reshape(shape)
    placed = exported.in_shardings_jax(sharding.Mesh(devices, tuple(sizes)))
    arguments = [jax_.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
    options: Any = {"in_shardings": tuple(placed)} if len(devices.flat) > 1 else {}
    folder.mkdir()

    # `call` of an exported program is a JAX function of its flat arguments.
    lowered = jax_.jit(exported.call, donate_argnums=donated or None, **options).lower(*arguments)
    executable = lowered.compile(_OPTIONS | {"xla_dump_to": str(folder)})

    divided = [path.read_text() for path in folder.glob("*after_spmd-partitioning*.txt")]
    if len(devices.flat) > 1 and not divided:
        raise RuntimeError("XLA did not write the program as it was divided among the devices")

    memory = executable.memory_analysis()
    counted = [
        getattr(memory, f"{part}_size_in_bytes") for part in ("argument", "output", "alias", "temp")
    ]
    return executable.as_text(), divided[0] if divided else "", *counted


def _main(folder: Path) -> None:
    """Read programs from stdin, compile them, and write the answers to stdout."""
    asks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # The answer has a descriptor of its own. Other output to stdout goes to stderr from here on.
    os.dup2(2, 1)
    programs = pickle.loads(asks.read(*_LENGTH.unpack(asks.read(_LENGTH.size))))  # noqa: S301 - of the process that started this one
    threading.Thread(target=_follow, args=(asks.fileno(), folder), daemon=True).start()
    folder.mkdir(mode=0o700)
    try:
        answered = [
            _compile(*program, folder=folder / str(i)) for i, program in enumerate(programs)
        ]
        with answers:
            answers.write(pickle.dumps(answered))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _follow(asks: int, folder: Path) -> None:
    """Exit when the process that started this one exits.

    Reads unbuffered: a lock of `sys.stdin` would make the exit of this process fail.
    """
    os.read(asks, 1)
    # Twice, as XLA may be writing files meanwhile.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
