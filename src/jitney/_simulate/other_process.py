"""Programs compiled for more devices than there are: by another process, which has as many virtual ones and runs nothing.

JAX lowers a program for an abstract mesh and compiles it only for devices. `jax.export` hands the lowered program over, so that nothing
of the user's, neither functions nor arrays, has to be sent. XLA divides a program among devices before it knows what they are, so what they
send each other is that of any device; how it fuses operations and lays out memory afterwards is that of its compiler for CPUs. This
file is the program of the other process too, and imports nothing of jitney.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST = 2048
"""Devices of one process of XLA's for CPUs: it keeps their numbers in 11 bits. Tried with jaxlib 0.10.2."""
_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*")

# Write the program as it was divided. And keep apart what `jax.checkpoint` computes anew: the compiler for CPUs of jaxlib 0.10 puts it
# together with what was computed before, which keeps that in memory; those for other devices do not.
_OPTIONS = {
    "xla_dump_hlo_pass_re": "spmd-partitioning",
    "xla_dump_hlo_module_re": "jit_call",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


@dataclass(frozen=True)
class CompiledElsewhere:
    """What another process tells of a compiled program; bytes are those on one device."""

    text: str
    divided: str  # as it was divided among the devices, before the compiler for CPUs went on; "" for one device
    arguments: int
    results: int
    aliased: int
    temporaries: int


class Failed(Exception):
    """The other process could not compile it; the last line of what it said."""


def compiled(programs: Sequence[tuple[Any, dict[str, int], tuple[int, ...]]]) -> list[CompiledElsewhere]:
    """Compile exported programs, each with the sizes of its mesh and what it may reuse of its arguments.

    Raises:
        Failed: One cannot be compiled.
    """
    count = max(math.prod(mesh.values()) for _, mesh, _ in programs)
    flags = f"{_COUNT.sub('', os.environ.get('XLA_FLAGS', ''))} --xla_force_host_platform_device_count={count}"
    mine = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "JAX_NUM_CPU_DEVICES": "-1", "JAX_ENABLE_X64": "1", "JAX_DISABLE_JIT": "0",
            "JAX_ENABLE_COMPILATION_CACHE": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        asked.write_bytes(pickle.dumps(list(programs)))
        command = [sys.executable, "-P", __file__, str(asked), str(answered)]
        done = subprocess.run(command, env=os.environ | mine, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode or not answered.exists():
            said = [line for line in done.stderr.splitlines() if line.strip() and not line.lstrip().startswith("@")]  # not frames of C++
            raise Failed(said[-1] if said else f"it ended with {done.returncode}")
        return [CompiledElsewhere(*each) for each in pickle.loads(answered.read_bytes())]  # noqa: S301 - written by this file, in a folder of this user's


def _compile(exported: Any, sizes: dict[str, int], donated: tuple[int, ...], folder: Path) -> tuple[Any, ...]:
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
    found = lowered.compile(_OPTIONS | {"xla_dump_to": str(folder)})
    divided = [path.read_text() for path in folder.glob("*after_spmd-partitioning*.txt")]
    if len(devices.flat) > 1 and not divided:
        raise RuntimeError("XLA did not write the program as it was divided among the devices")
    memory = found.memory_analysis()
    counted = [getattr(memory, f"{part}_size_in_bytes") for part in ("argument", "output", "alias", "temp")]
    return found.as_text(), divided[0] if divided else "", *counted


def _main(asked: Path, answered: Path) -> None:
    """What the other process does."""
    programs: list[Any] = pickle.loads(asked.read_bytes())  # noqa: S301 - as above
    folders = [asked.parent / str(i) for i in range(len(programs))]
    answered.write_bytes(pickle.dumps([_compile(*each, folder=folder) for each, folder in zip(programs, folders, strict=True)]))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
