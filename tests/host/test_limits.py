"""What a process may use, by files and variables that are the tests' own."""

import os

import pytest

from jitney._host.limits import Host, allowed_cores, cores, host_memory


def host(root, files, affinity=8, **environment):
    """A machine with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Host(root, environment, affinity)


def by(host: Host, name: str) -> int | None:
    return next((limit.value for limit in host.cores() if limit.by == name), None)


V2 = {"proc/self/cgroup": "0::/job\n"}
V1 = {"proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n"}
QUOTAS = {
    "version 2": ({**V2, "sys/fs/cgroup/job/cpu.max": "250000 100000\n"}, 2.5),
    "version 2, above": (
        {**V2, "sys/fs/cgroup/cpu.max": "300000 100000", "sys/fs/cgroup/job/cpu.max": "max 100000"},
        3.0,
    ),
    "version 2, none": ({**V2, "sys/fs/cgroup/job/cpu.max": "max 100000\n"}, None),
    "version 1": (
        {
            **V1,
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
        1.5,
    ),
    "version 1, none": (
        {
            **V1,
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        },
        None,
    ),
    "in a container": (
        {"proc/self/cgroup": "0::/../host/path\n", "sys/fs/cgroup/cpu.max": "200000 100000"},
        2.0,
    ),
    "no cgroups": ({}, None),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_the_quota_is_that_of_the_cgroup(case, tmp_path):
    """Of both versions, and of groups above."""
    files, quota = QUOTAS[case]
    assert host(tmp_path, files).quota() == quota


def test_the_machine_and_the_affinity_are_counted():
    """As the standard library counts them."""
    found = {limit.by: limit.value for limit in cores()}
    assert found["the machine"] == os.cpu_count()
    assert found["the affinity of the process"] == len(os.sched_getaffinity(0))
    assert allowed_cores().value == min(found.values())


@pytest.mark.parametrize(
    ("text", "whole"),
    [("150000 100000", 2), ("50000 100000", 1), ("200000 100000", 2), ("max 100000", None)],
)
def test_a_part_of_a_core_is_one(text, whole, tmp_path):
    """A thread can run on it."""
    assert by(host(tmp_path, {**V2, "sys/fs/cgroup/job/cpu.max": text}), "the cgroup") == whole


def test_memory_is_what_the_group_leaves(tmp_path):
    """The least of what is free in the machine and in the group, which may be one around that of
    the process.
    """
    meminfo = {
        "proc/self/cgroup": "0::/job/step",
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 500 kB\n",
    }
    assert host_memory(host(tmp_path / "free", meminfo)) == (1_024_000, 512_000)
    limits = {
        "job/step/memory.max": "max",
        "job/step/memory.current": "7",
        "job/memory.max": "1000",
        "job/memory.current": "400",
    }
    assert host_memory(
        host(
            tmp_path,
            {**meminfo, **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()}},
        )
    ) == (1000, 600)


def test_variables_are_limits(tmp_path):
    """OpenMP's first level; what is no number is none."""
    told = host(tmp_path, {}, OMP_NUM_THREADS="1,4", SLURM_CPUS_PER_TASK="many")
    assert (by(told, "OMP_NUM_THREADS"), by(told, "SLURM_CPUS_PER_TASK")) == (1, None)
