"""Programs compiled for more devices than there are: by another process, which has as many virtual
ones and runs nothing.

JAX lowers a program for an abstract mesh and compiles it only for devices. `jax.export` hands the
lowered program over, so that nothing of the user's, neither functions nor arrays, has to be sent.
It comes over a pipe, which tells the other process too when this one is gone: then it ends, and
takes its folder with it. XLA divides a program among devices before it knows what they are, so what
they send each other is that of any device; how it fuses operations and lays out memory afterwards
is that of its compiler for CPUs. This file is the program of the other process too, and imports
nothing of jitney.
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
"""Devices of one process of XLA's for CPUs: it keeps their numbers in 11 bits. Tried with jaxlib
0.10.2.
"""
_LENGTH = struct.Struct(">Q")
_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*")

# Write the program as it was divided. And keep apart what `jax.checkpoint` computes anew: the
# compiler for CPUs of jaxlib 0.10 puts it
# together with what was computed before, which keeps that in memory; those for other devices do
# not.
_OPTIONS = {
    "xla_dump_hlo_pass_re": "spmd-partitioning",
    "xla_dump_hlo_module_re": "jit_call",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


@dataclass(frozen=True)
class CompiledElsewhere:
    """What another process tells of a compiled program; bytes are those on one device."""

    text: str
    # as it was divided among the devices, before the compiler for CPUs went on; "" for one device
    divided: str
    arguments: int
    results: int
    aliased: int
    temporaries: int


class Failed(Exception):
    """The other process could not compile it; the last line of what it said."""


def compiled(
    programs: Sequence[tuple[Any, dict[str, int], tuple[int, ...]]],
) -> list[CompiledElsewhere]:
    """Compile exported programs, each with the sizes of its mesh and what it may reuse of its
    arguments.

    Raises:
        Failed: One cannot be compiled.
    """
    count = max(math.prod(mesh.values()) for _, mesh, _ in programs)
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
    # made by the other process
    folder = Path(tempfile.gettempdir(), f"jitney-simulate-{secrets.token_hex(8)}")
    with tempfile.TemporaryFile() as said:
        command = [sys.executable, "-P", __file__, str(folder)]
        other = subprocess.Popen(  # noqa: S603
            command,
            env=os.environ | mine,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        try:
            answered = _asked(other, pickle.dumps(list(programs)))
        finally:
            other.kill()
            other.wait()
            shutil.rmtree(folder, ignore_errors=True)
        if answered is None:
            said.seek(0)
            lines = [
                line for line in said.read().decode(errors="replace").splitlines() if line.strip()
            ]
            # not frames of C++
            last = [line for line in lines if not line.lstrip().startswith("@")]
            raise Failed(last[-1] if last else f"it ended with {other.returncode}")
        return [CompiledElsewhere(*answer) for answer in answered]


def _asked(other: subprocess.Popen[bytes], content: bytes) -> Any:
    """What the other process answers; None if it ends before."""
    asks, answers = other.stdin, other.stdout
    if asks is None or answers is None:
        return None
    with suppress(BrokenPipeError), asks, answers:
        asks.write(_LENGTH.pack(len(content)) + content)
        asks.flush()  # and it stays open: its end is that of this process
        answered = answers.read()
        return pickle.loads(answered) if other.wait() == 0 and answered else None  # noqa: S301 - written by this file
    other.wait()  # it ended before it was asked
    return None


def _compile(
    exported: Any, sizes: dict[str, int], donated: tuple[int, ...], folder: Path
) -> tuple[Any, ...]:
    """One program, as the fields of `Compiled`; XLA writes what it makes of it into a folder."""
    import jax
    import numpy as np

    jax_: Any = jax
    sharding: Any = jax.sharding
    devices = np.array(jax_.devices()[: math.prod(sizes.values())]).reshape(tuple(sizes.values()))
    placed = exported.in_shardings_jax(sharding.Mesh(devices, tuple(sizes)))
    arguments = [jax_.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
    options: Any = {"in_shardings": tuple(placed)} if len(devices.flat) > 1 else {}
    folder.mkdir()
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
    """What the other process does."""
    asks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed
    programs: list[Any] = pickle.loads(asks.read(*_LENGTH.unpack(asks.read(_LENGTH.size))))  # noqa: S301 - of the process that started this one
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
    """End with the process that started this one. Unbuffered: a lock of `sys.stdin` would fail the
    end of this process.
    """
    os.read(asks, 1)
    for _ in range(2):  # XLA may be writing
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
