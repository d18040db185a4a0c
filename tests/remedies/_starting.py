"""Remedies of how a process starts: its place in a run, its threads and its cache, and of commands
that run a program. What a process reads once is followed in one of its own.
"""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import jitney
from jitney._command import capture
from jitney._devices import attach
from tests._arrays import array

from ._case import Remedy
from ._commands import Told, command

X = array([1.0, -2.0, 3.0], np.float32)
SQUARES = 14.0
ATTACH, CAPTURE = "_devices/attach.py", "_command/capture.py"
LAUNCH, CONFIGURE, CACHE, FOLDER, KEPT, START, REPORT = (
    "_processes/launch.py",
    "_devices/configure.py",
    "_jax/compile_cache/cache.py",
    "_jax/compile_cache/folder.py",
    "_command/cache/command.py",
    "_command/start.py:carry_out",
    "_command/reread.py:carry_out",
)
_IMPORTS = "import socket, jax, jax.numpy as jnp, jitney\n"
_PORT = """
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
"""
_CALL = """
total = jitney.optimize(lambda x: jnp.sum(x**2))
print(float(total(jnp.array([1.0, -2.0, 3.0]))))
"""
JOINS = "jitney.processes.distributed(address, num_processes=1, process_id=0, timeout=60)\n"
_OWN = ("JITNEY_", "JAX_", "PJRT_", "NPROC", "XLA_FLAGS")


@functools.cache
def process(before: str = "", *, imports: str = _IMPORTS, **environment: str) -> float:
    """What a process of its own computes; what it writes to stderr is the message."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    done = subprocess.run(
        [sys.executable, "-c", imports + before + _CALL],
        env={**env, "JAX_PLATFORMS": "cpu", "JITNEY_CACHE": "off", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or "Fix: " in done.stderr:
        raise Told(done.stderr)
    return float(done.stdout.splitlines()[-1])


def joined():
    return process(_PORT + JOINS)


def joined_by_environment():
    script = _PORT + 'import os\nos.environ["JAX_COORDINATOR_ADDRESS"] = address\n'
    return process(
        script + "jitney.processes.distributed()\n", JAX_NUM_PROCESSES="1", JAX_PROCESS_ID="0"
    )


def counted_by(text):
    with patch.dict(os.environ, {"JAX_NUM_PROCESSES": text}):
        return jitney.processes.distributed("127.0.0.1:1", process_id=0)


def configured():
    return process('jitney.configure(threads=2, memory="8GiB", platform="cpu")\n')


def in_part():
    return process('jitney.configure(threads=2, memory=0.5, platform="cpu")\n')


_LATE = "import jax, jax.numpy as jnp\njax.devices()\nimport jitney\n"


def cached(before="", folder="own", **environment):
    """With a cache in a folder here."""
    place = str(pathlib.Path(folder).absolute())
    there = {"JITNEY_CACHE": "on", "JITNEY_CACHE_DIR": place, **environment}
    return process(before.format(place=place), **there)


_NO_FILELOCK = 'import sys\nsys.modules["filelock"] = None\n'
_FULL = """
import shutil
shutil.disk_usage = lambda _: shutil._ntuple_diskusage(2**30, 2**30 - 2**20, 2**20)
"""
OF_JAX = 'jax.config.update("jax_compilation_cache_dir", {place!r})\n'
OF_JITNEY = "jitney.configure(cache_dir={place!r})\n"

_NO_FLATBUFFERS = 'import sys\nsys.modules["flatbuffers"] = None\n'


def loaded_elsewhere(first=""):
    """A program that another process loads."""
    jitney.optimize(lambda x: jnp.sum(x**2)).export("total.jitney", X)
    name = str(pathlib.Path("total.jitney").absolute())
    load = f"assert jitney.load({name!r})(jnp.array([1.0, -2.0, 3.0])) == 14\n"
    return process(load, imports=first + _IMPORTS)


PROGRAM = """
import jax.numpy as jnp, jitney

@jitney.optimize
def total(x):
    return jnp.sum(x**2)

assert total(jnp.array([1.0, -2.0, 3.0])) == 14
"""


@functools.cache
def _recorded(report: str, *more: str) -> str:
    pathlib.Path("program.py").write_text(PROGRAM)
    words = ("run", *more, "--report", report, "program.py")
    done = subprocess.run(
        [sys.executable, "-m", "jitney", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or "Fix: " in done.stderr:
        raise Told(done.stderr)
    return pathlib.Path(report).read_text()


def recorded(report="out.json", *more):
    """A report of a run of the program."""
    pathlib.Path(report).write_text(_recorded(report, *more))
    return pathlib.Path(report).exists()


def page(source="out.json", target="out.html", content: Any = None):
    """A page of a report, or of a file of this content."""
    if content is None:
        recorded()
    else:
        pathlib.Path("out.json").write_text(content)
    command("report", source, target)
    return pathlib.Path(target).exists()


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def on_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        attach.read_port(taken.getsockname()[1])


def beside_a_server(further):
    with patch.object(attach._SERVER, "port", 9999):
        return attach.read_port(9999 + further)


def served_by_the_program(port):
    with patch.object(jax.profiler, "start_server", side_effect=ValueError("Only one server")):
        attach.serve(port)


def in_a_thread(call):
    """What a call in another thread raises."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return pool.submit(call).result()


def captured(*, xprof, writes=True):
    """A capture by a stand-in for JAX's command, which tests/test_attach.py runs itself."""

    def run(typed, **options):
        if writes:
            with jax.profiler.trace("traces"):
                jax.numpy.ones(3).block_until_ready()
        return subprocess.CompletedProcess(typed, 0, "", "")

    with (
        patch.object(capture.subprocess, "run", run),
        patch.object(capture.importlib.util, "find_spec", lambda name: xprof or None),
    ):
        command("profile", "localhost:9999", "--seconds", "5")


CASES = [
    # The processes of a run; here there is one.
    *(
        Remedy(
            f"{LAUNCH}:read_request",
            words,
            functools.partial(jitney.processes.distributed, *given),
            joined,
            14.0,
        )
        for words, given in [
            ("pass an int", ("127.0.0.1:1", "two", 0)),
            ("pass how many there are", ("127.0.0.1:1", 0, 0)),
            ("pass process_id=0 in the first", ("127.0.0.1:1", 1, 1)),
            ("write host and port", ("localhost", 1, 0)),
        ]
    ),
    Remedy(
        f"{LAUNCH}:_number",
        "set it to a number",
        lambda: counted_by("one"),
        joined_by_environment,
        SQUARES,
    ),
    Remedy(
        f"{LAUNCH}:start_run",
        "call it first, before any array is made",
        lambda: process(
            "jax.devices()\n" + _PORT + "jitney.processes.distributed(address, 2, 0)\n"
        ),
        joined,
        SQUARES,
    ),
    Remedy(
        f"{LAUNCH}:start_run",
        "pass it, or set JAX_COORDINATOR_ADDRESS",
        lambda: process(_PORT + "jitney.processes.distributed(address, num_processes=2)\n"),
        joined,
        SQUARES,
    ),
    Remedy(
        f"{LAUNCH}:start_run",
        "or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID",
        lambda: process(_PORT + "jitney.processes.distributed(address, num_processes=2)\n"),
        joined_by_environment,
        SQUARES,
    ),
    Remedy(
        "_processes/distributed.py:distributed",
        "call it once, at the start, and keep what it returns",
        lambda: process(_PORT + JOINS + JOINS),
        joined,
        SQUARES,
    ),
    Remedy(
        "_processes/distributed.py:distributed",
        "write …=60",
        lambda: jitney.processes.distributed("127.0.0.1:1", 1, 0, timeout=-1),
        joined,
        SQUARES,
    ),
    # What JAX starts with.
    Remedy(
        f"{CONFIGURE}:configure",
        "call it right after the imports",
        lambda: jitney.configure(threads=7, platform="rocm"),
        configured,
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:configure",
        "or set JITNEY_THREADS, JITNEY_MEMORY or JITNEY_PLATFORM",
        lambda: jitney.configure(threads=7, platform="rocm"),
        lambda: process(JITNEY_THREADS="2"),
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:_threads",
        "correct it",
        lambda: jitney.configure(threads="many"),
        configured,
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:_platform",
        "correct it",
        lambda: jitney.configure(platform="c p u"),
        configured,
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:_memory",
        'write memory="8GiB"',
        lambda: jitney.configure(memory="much"),
        configured,
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:_memory",
        "or memory=0.5",
        lambda: jitney.configure(memory="much"),
        in_part,
        SQUARES,
    ),
    Remedy(
        f"{CONFIGURE}:from_environment",
        "import jitney first",
        lambda: process(imports=_LATE, JITNEY_THREADS="2"),
        lambda: process(JITNEY_THREADS="2"),
        SQUARES,
    ),
    # The cache of compiled programs.
    Remedy(
        f"{CACHE}:_option_message",
        "correct or remove `…`",
        lambda: jitney.configure(cache="perhaps"),
        lambda: process("jitney.configure(cache=False)\n"),
        SQUARES,
    ),
    Remedy(
        f"{CACHE}:_cache_choice",
        "set JITNEY_CACHE=off",
        lambda: cached(JITNEY_CACHE="perhaps"),
        process,
        SQUARES,
    ),
    Remedy(
        f"{CACHE}:_conflict_warning",
        "give one of the two, `cache_dir` or",
        lambda: cached(OF_JAX + OF_JITNEY),
        lambda: cached(OF_JITNEY),
        SQUARES,
    ),
    Remedy(
        f"{FOLDER}:prepare",
        "set JITNEY_CACHE_DIR to a folder named in UTF-8",
        lambda: cached(folder=os.fsdecode(b"\xff")),
        cached,
        SQUARES,
    ),
    Remedy(
        f"{FOLDER}:prepare",
        "or JITNEY_CACHE_DIR to a local folder of your own",
        lambda: cached(JITNEY_CACHE_DIR="s3://bucket/programs"),
        cached,
        SQUARES,
    ),
    Remedy(
        f"{FOLDER}:limited_by_jax",
        "install filelock",
        lambda: cached(_NO_FILELOCK, JAX_COMPILATION_CACHE_MAX_SIZE="1000000"),
        lambda: cached(JAX_COMPILATION_CACHE_MAX_SIZE="1000000"),
        SQUARES,
    ),
    Remedy(
        f"{FOLDER}:limited_by_jax",
        "or set that to -1",
        lambda: cached(_NO_FILELOCK, JAX_COMPILATION_CACHE_MAX_SIZE="1000000"),
        lambda: cached(_NO_FILELOCK, JAX_COMPILATION_CACHE_MAX_SIZE="-1"),
        SQUARES,
    ),
    Remedy(f"{FOLDER}:_check_space", "free some space", lambda: cached(_FULL), cached, SQUARES),
    Remedy(
        "_export/container.py:missing_flatbuffers",
        'pip install "jitney[export]"',  # met by who loads
        lambda: loaded_elsewhere(_NO_FLATBUFFERS),
        loaded_elsewhere,
        SQUARES,
    ),
    # Commands on the cache, and of a program that is run.
    Remedy(
        f"{KEPT}:_check",
        "add --older-than 30d",
        lambda: command("cache", "prune"),
        lambda: command("cache", "prune", "--older-than", "30d"),
    ),
    Remedy(
        f"{KEPT}:_age",
        "write 30d",
        lambda: command("cache", "prune", "--older-than", "soon"),
        lambda: command("cache", "prune", "--older-than", "30d"),
    ),
    Remedy(
        f"{KEPT}:_bytes",
        "write 2GB",
        lambda: command("cache", "prune", "--larger-than", "much"),
        lambda: command("cache", "prune", "--larger-than", "2GB"),
    ),
    Remedy(
        f"{ATTACH}:read_port",
        "write profiler_port=9999",
        lambda: jitney.configure(profiler_port=-1),
        lambda: attach.read_port(free_port()),
    ),
    Remedy(
        f"{ATTACH}:read_port",
        "take another port",
        on_a_port_that_is_taken,
        lambda: attach.read_port(free_port()),
    ),
    Remedy(
        f"{ATTACH}:read_port",
        "capture from port …",
        lambda: beside_a_server(1),
        lambda: beside_a_server(0),
    ),
    Remedy(
        f"{ATTACH}:serve",
        "leave out one of the two",
        lambda: served_by_the_program(9999),
        lambda: served_by_the_program(None),
    ),
    Remedy(
        f"{ATTACH}:read_signal",
        'write report_signal="SIGUSR1"',
        lambda: jitney.configure(report_signal="SIGINT"),
        lambda: attach.read_signal("SIGUSR1"),
    ),
    Remedy(
        f"{ATTACH}:read_signal",
        "call it at the start of the program",
        lambda: in_a_thread(lambda: attach.read_signal("SIGUSR1")),
        lambda: attach.read_signal("SIGUSR1"),
    ),
    Remedy(
        f"{CAPTURE}:_address",
        "write localhost:9999",
        lambda: command("profile", "localhost"),
        lambda: capture._address("localhost:9999"),
    ),
    Remedy(
        f"{CAPTURE}:carry_out",
        "write --seconds 5",
        lambda: command("profile", ":1", "--seconds", "-5"),
        lambda: captured(xprof=True),
    ),
    Remedy(
        f"{CAPTURE}:carry_out",
        "python -m pip install",
        lambda: captured(xprof=False),
        lambda: captured(xprof=True),
    ),
    Remedy(
        f"{CAPTURE}:carry_out",
        "see that it runs",
        lambda: captured(xprof=True, writes=False),
        lambda: captured(xprof=True),
    ),
    Remedy(
        "_command/machine/monitor.py:carry_out",
        "write --interval 1",
        lambda: command("monitor", "--interval", "0"),
        lambda: command("monitor", "--interval", "1", "--count", "0"),
    ),
    Remedy(
        "_command/machine/monitor.py:_opened",
        "name a file in a folder that you may write",
        lambda: command("monitor", "--out", "no/such/out.jsonl"),
        lambda: command("monitor", "--out", "out.jsonl", "--count", "0"),
    ),
    Remedy(
        "_command/start.py:_budget",
        "write --budget 8GiB",
        lambda: command("run", "--budget", "much", __file__),
        lambda: recorded("out.html", "--budget", "8GiB"),
        True,
    ),
    Remedy(
        START,
        "write --report out.html",
        lambda: command("run", "--report", "out.png", "remedied.py"),
        lambda: recorded("out.html"),
        True,
    ),
    Remedy(
        START,
        "correct the name, or start where it is found",
        lambda: command("run", "elsewhere.py"),
        recorded,
        True,
    ),
    Remedy(REPORT, "write out.html", lambda: page(target="out.png"), page, True),
    Remedy(REPORT, "correct the name", lambda: page(source="other.json"), page, True),
    Remedy(REPORT, "run the program again", lambda: page(content="{"), page, True),
]
