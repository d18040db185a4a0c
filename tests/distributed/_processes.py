"""Start real processes on this machine, and leave none behind."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests._patience import patience

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    """What a process did."""

    code: int
    seconds: float
    err: str
    told: dict = field(default_factory=dict)

    def __getitem__(self, name):
        assert name in self.told, (
            f"{name!r} was not told; exit code {self.code}\n{self.err[-6000:]}"
        )
        return self.told[name]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(job, count, *, devices=2, timeout=None, env=None, arguments=None, **more):
    """Run a job of `_jobs` in so many processes, and wait until all have ended.

    Args:
        env: More variables; `{i}` stands for the process, and None takes one away.
    """
    arguments, timeout = {**(arguments or {}), **more}, timeout or patience(120)
    port = free_port()
    base = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    base |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "OPENBLAS_NUM_THREADS": "1",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [sys.executable, "-u", "-m", "tests.distributed._jobs", job, json.dumps(arguments)]
    began = time.monotonic()
    files = [Path(os.environ["JITNEY_TEST_CACHE"], f"{job}-{port}-{i}") for i in range(count)]
    running = []
    try:
        for i, file in enumerate(files):
            with (
                file.with_suffix(".out").open("w") as out,
                file.with_suffix(".err").open("w") as err,
            ):
                here = {**base, "JAX_PROCESS_ID": str(i), **(env or {})}
                here = {
                    name: value.replace("{i}", str(i))
                    for name, value in here.items()
                    if value is not None
                }
                running.append(
                    subprocess.Popen(
                        command,
                        stdout=out,
                        stderr=err,
                        stdin=subprocess.DEVNULL,
                        env=here,
                        cwd=ROOT,
                    )
                )
        ended = {}
        while len(ended) < count and time.monotonic() - began < timeout:
            for i, process in enumerate(running):
                if i not in ended and process.poll() is not None:
                    ended[i] = time.monotonic() - began
            time.sleep(0.02)
    finally:
        for process in running:  # JAX takes SIGTERM for a notice that it may live on
            process.kill()
            process.wait()
    out = []
    for i, (process, file) in enumerate(zip(running, files, strict=True)):
        told = {}
        for line in file.with_suffix(".out").read_text().splitlines():
            if line.startswith("{"):
                told |= json.loads(line)
        out.append(
            Ended(
                process.returncode if i in ended else -1000,
                ended.get(i, timeout),
                file.with_suffix(".err").read_text(),
                told,
            )
        )
    return out
