"""The table of where the time of a port goes, from figures that are written here."""

from tests.perf.ports import JOBS, table


def row(name, **figures):
    return {"name": name, "place": "fit.py:3", **figures}


def test_the_longest_come_first():
    """Of the compiles by all their phases, of the runs by the larger of host and device; sums are
    those of all rows, and a function that is not decorated has no calls.
    """
    phases = {"trace_seconds": 1.0, "lower_seconds": 0.25, "compile_seconds": 2.0}
    compiled = [row(f"f{i}", traces=1, compiles=1, **phases) for i in range(9)]
    compiled[8] |= {"trace_seconds": 5.0}
    run = [
        row("slow", calls=3, runs=4, host_seconds=0.5, device_seconds=0.25),
        row("plain", calls=None, runs=7, host_seconds=0.0, device_seconds=0.75),
    ]
    lines = table("python -m job: 40.0 s", compiled, run).splitlines()
    assert lines[0] == "python -m job: 40.0 s"
    assert lines[1] == "33.25 s to compile 9 programs, 1.00 s of the device"
    assert lines[3].split() == ["f8,", "fit.py:3", "1", "1", "5.000", "0.250", "2.000"]
    assert "and 1 more" in lines
    assert lines[-2].split() == ["plain,", "fit.py:3", "-", "7", "0.000", "0.750"]
    assert lines[-1].split() == ["slow,", "fit.py:3", "3", "4", "0.500", "0.250"]


def test_each_port_has_a_job():
    """Those of the demo."""
    assert set(JOBS) == {"trf", "homodyne", "equilibrium", "surrogate"}
