"""What docs/measuring.md, docs/options/workers.md and docs/options/auto.md say of the cores to be
had: each limit counts in `jitney.devices`, in `workers="auto"`, in `auto=True` and in
`configure(threads="auto")`, in a process of its own that has this limit.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests._patience import patience

HERE = Path(__file__).parents[2]
# One core, by each limit; the files are below a root of the test's own.
V2 = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "100000 100000\n"}
V1 = {
    "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
}
ONE_CORE = {
    "the affinity of the process": {"affinity": [0]},
    "the cgroup": {"files": V2},
    "the cgroup (version 1)": {"files": V1},
    "SLURM_CPUS_PER_TASK": {"environment": {"SLURM_CPUS_PER_TASK": "1"}},
    "OMP_NUM_THREADS": {"environment": {"OMP_NUM_THREADS": "1,4"}},
}
SCRIPT = """
import functools, json, os, sys
given = json.loads(sys.argv[1])
if "affinity" in given:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
else:  # as on a machine of four cores
    os.sched_getaffinity = lambda _: {0, 1, 2, 3}
os.cpu_count = lambda: 4
from pathlib import Path
from jitney._host import limits
limits.Host = functools.partial(limits.Host, Path(given["root"]))

import numpy as np, jax, jax.numpy as jnp
import jitney
from jitney._program.auto.auto_calls import AutoCalls

AutoCalls.compile_seconds = lambda calls, measured: 1e-3
if "threads" in given:
    jitney.configure(threads=given["threads"])

def body(y):
    return jax.lax.fori_loop(0, 50, lambda _, x: jnp.sin(x), y)

y = np.linspace(0, 1, 600 * 90, dtype=np.float32).reshape(600, 90)
def line(name, **options):
    f = jitney.optimize(vmap={"row": {"y": 0}}, cache=False, **options)(body)
    def why():
        lines = f.plan(y).to_dict()["decisions"]
        return next(line["why"] for line in lines if line["name"] == name)
    for _ in range(2):
        f(y)
    while name == "auto" and "learns" in why() and "at a time" not in why():
        f(y)  # until its first trial, or what it says of it
    return why()

machine = jitney.devices()
print(json.dumps({
    "cores": {each.by: each.value for each in machine.cores},
    "least": [machine.allowed_cores.by, machine.allowed_cores.value],
    "shown": str(machine).splitlines()[0],
    "threads": os.environ.get("PJRT_NPROC"),
    "host": machine.host_bytes,
    "workers": line("workers", workers="auto"),
    "auto": line("auto", auto=True),
}))
"""


def facts(root, files=(), environment=(), **given):
    """What a process with these limits says."""
    for name, text in dict(files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    dropped = ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS", "PJRT_NPROC", "NPROC")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps({"root": str(root), **given})],
        env={**env, "JITNEY_CACHE": "off", **dict(environment)},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
@pytest.mark.parametrize("by", ONE_CORE)
def test_each_limit_of_one_core_counts(by, tmp_path):
    """`devices` names it, `workers` has one worker by it, and `auto` tries widths alone."""
    found = facts(tmp_path, **ONE_CORE[by], threads="auto")
    name = by.removesuffix(" (version 1)")
    assert found["cores"][name] == 1
    assert found["least"] == [name, 1]
    assert f"1 cores, by {name}" in found["shown"]
    assert found["threads"] == "1"
    assert found["workers"] == f"one worker, 1 core, by {name}"
    assert "64 at a time" in found["auto"]
    assert "in threads" not in found["auto"]


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_the_least_of_several_limits_counts(tmp_path):
    """A quota of two and a half cores is three threads; OpenMP asks for two, and SLURM gives four.
    XLA is left alone without `threads`, and the title says that it has more.
    """
    quota = V2 | {"sys/fs/cgroup/job/cpu.max": "250000 100000\n"}
    environment = {"SLURM_CPUS_PER_TASK": "4", "OMP_NUM_THREADS": "2"}
    found = facts(tmp_path, quota, environment)
    assert found["cores"] == {
        "the machine": 4,
        "the affinity of the process": 4,
        "the cgroup": 3,
        "SLURM_CPUS_PER_TASK": 4,
        "OMP_NUM_THREADS": 2,
    }
    assert found["least"] == ["OMP_NUM_THREADS", 2]
    assert "XLA has more threads than that" in found["shown"]
    assert found["threads"] is None
    assert found["workers"].endswith("in 2 threads (2 cores, by OMP_NUM_THREADS)")
    assert "64 at a time in threads" in found["auto"]


@pytest.mark.rest
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_the_memory_of_the_group_counts(tmp_path):
    """As the memory of the host, of which `memory="auto"` takes its part."""
    files = V2 | {
        "proc/meminfo": "MemTotal: 2000000 kB\nMemAvailable: 1000000 kB\n",
        "sys/fs/cgroup/job/memory.max": "512000000\n",
        "sys/fs/cgroup/job/memory.current": "12000000\n",
    }
    assert facts(tmp_path, files)["host"] == 512_000_000
