"""Limits of containers and batch systems, on made-up machines."""

import pytest

from jitney._command.machine.checks import memory, threads
from jitney._host.limits import Host


def machine(root, files, affinity=8, **environment):
    """A machine with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Host(root, environment, affinity)


V1 = {"proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n"}
V2 = {"proc/self/cgroup": "0::/job\n"}


def test_more_threads_than_cores_are_a_warning_with_a_number(tmp_path):
    """XLA counts the cores of the affinity; the quota, rounded up, is what there is."""
    check = threads(machine(tmp_path, {**V2, "sys/fs/cgroup/job/cpu.max": "250000 100000"}))
    assert (check.state, check.fix) == ("warn", "export PJRT_NPROC=3")


@pytest.mark.parametrize(
    ("environment", "state", "fix"),
    [
        ({"SLURM_CPUS_PER_TASK": "4"}, "warn", "export PJRT_NPROC=4"),
        ({"SLURM_CPUS_PER_TASK": "4", "PJRT_NPROC": "4"}, "ok", ""),
        ({"SLURM_CPUS_PER_TASK": "4", "NPROC": "2"}, "ok", ""),
        ({"OMP_NUM_THREADS": "2"}, "ok", ""),
        ({}, "ok", ""),
    ],
)
def test_what_a_batch_system_gives_counts(environment, state, fix, tmp_path):
    """Unless XLA was told."""
    check = threads(machine(tmp_path, {}, **environment))
    assert (check.state, check.fix) == (state, fix)


def test_memory_is_that_of_the_machine_and_of_the_cgroup(tmp_path):
    """A limit of 2**63 is none."""
    meminfo = {"proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n"}
    limits = {
        "sys/fs/cgroup/job/memory.max": str(2**29),
        "sys/fs/cgroup/job/memory.current": str(2**28),
    }
    check = memory(machine(tmp_path, {**V2, **meminfo, **limits}))
    assert check.state == "ok"
    assert check.data == {"total": 2**30, "available": 2**29, "limit": 2**29, "used": 2**28}
    old = machine(
        tmp_path / "old",
        {**V1, "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(2**63 - 4096)},
    )
    assert old.memory_limit() is None


def test_little_memory_is_a_warning(tmp_path):
    """Below a tenth."""
    assert (
        memory(
            machine(tmp_path, {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 50 kB\n"})
        ).state
        == "warn"
    )
    assert memory(machine(tmp_path / "silent", {})).value == "unknown on this system"
