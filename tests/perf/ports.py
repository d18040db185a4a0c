"""Profile the main job of each port at a small size: `nox -s profile`, or `python -m
tests.perf.ports [trf homodyne equilibrium surrogate]`.

Each runs in a process of its own under `jitney.profile` and `jitney.watch`, from its imports on and
with the persistent cache off. `out/profile/NAME` has JAX's trace for XProf, TensorBoard and
Perfetto, `table.txt` what is printed at the end, with the operations, and `table.json` all rows.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jitney

ROOT = Path(__file__).parents[2]
OUT = Path("out/profile")
# The arguments of each main job, `--out` apart.
JOBS = {
    "trf": ["Misra1a", "BoxBOD"],
    "homodyne": ["--points", "1e5", "--angles", "3"],
    "equilibrium": ["--draws", "50"],
    "surrogate": [
        "train",
        "--steps",
        "40",
        "--vars",
        "3",
        "4",
        "--every",
        "20",
        "--held-out",
        "20",
    ],
}
SHOWN = 8  # rows of a table, longest first
COMPILED = f"{'compiled':52}{'traces':>8}{'compiles':>10}{'trace s':>9}{'lower s':>9}{'XLA s':>8}"
RUN = f"{'run':52}{'calls':>8}{'runs':>10}{'host s':>17}{'device s':>9}"
Row = Mapping[str, object]


def number(row: Row, *keys: str) -> float:
    """The sum of figures of a row."""
    values = [row[key] for key in keys]
    return sum(value for value in values if isinstance(value, (int, float)))


def compiling(row: Row) -> float:
    """Seconds until a function could run."""
    return number(row, "trace_seconds", "lower_seconds", "compile_seconds")


def running(row: Row) -> float:
    """Seconds of calls, on the host and on the device, whichever is more: they overlap."""
    return max(number(row, "host_seconds"), number(row, "device_seconds"))


def named(row: Row) -> str:
    """Name and place of a function, cut to its column."""
    name, place = str(row["name"]), str(row["place"])
    text = place if place.startswith(name) else f"{name}, {place}"
    return f"{text.rstrip(', ')[:51]:52}"


def table(head: str, compiled: Sequence[Row], run: Sequence[Row]) -> str:
    """Where the time of a job went.

    Args:
        head: What ran, and how long.
        compiled: `work` of `jitney.watch`, a row for each function and line.
        run: `programs` of `jitney.profile`.
    """
    counts = f"{sum(number(row, 'compiles') for row in compiled):.0f} programs"
    before, device = (
        sum(map(compiling, compiled)),
        sum(number(row, "device_seconds") for row in run),
    )
    lines = [head, f"{before:.2f} s to compile {counts}, {device:.2f} s of the device", COMPILED]
    for row in sorted(compiled, key=compiling, reverse=True)[:SHOWN]:
        trace, lower, xla = (number(row, f"{key}_seconds") for key in ("trace", "lower", "compile"))
        counted = f"{row['traces']:>8}{row['compiles']:>10}"
        lines.append(f"{named(row)}{counted}{trace:>9.3f}{lower:>9.3f}{xla:>8.3f}")
    lines += [f"and {len(compiled) - SHOWN} more"] * (len(compiled) > SHOWN) + [RUN]
    for row in sorted(run, key=running, reverse=True)[:SHOWN]:
        counted = f"{'-' if row['calls'] is None else row['calls']:>8}{row['runs']:>10}"
        host, device = number(row, "host_seconds"), number(row, "device_seconds")
        lines.append(f"{named(row)}{counted}{host:>17.3f}{device:>9.3f}")
    return "\n".join(lines + [f"and {len(run) - SHOWN} more"] * (len(run) > SHOWN))


def profiled(name: str, folder: Path) -> int:
    """Run the main job of a port in this process, and write its profile; return its exit code."""
    sys.argv = [f"examples.{name}", *JOBS[name], "--out", str(folder / "job")]
    status, began = 0, time.perf_counter()
    with jitney.profile(folder) as found, jitney.watch() as seen:
        try:
            runpy.run_module(f"examples.{name}", run_name="__main__")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        seconds = time.perf_counter() - began
    data = {"compiled": seen.to_dict()["work"], **found.to_dict()}
    head = f"python -m examples.{name} {' '.join(JOBS[name])}: {seconds:.1f} s"
    head += f", exit code {status}" * bool(status)
    text = table(head, data["compiled"], data["programs"])
    (folder / "table.json").write_text(json.dumps({"job": JOBS[name], **data}, indent=1))
    (folder / "table.txt").write_text(f"{text}\n\n{found}\n")
    # 1 is a verdict on the figures, as that of a network which has hardly been trained
    return 0 if status == 1 else status


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile the ports that are named, or all; the exit code is 1 if a job did not run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf.ports", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("ports", nargs="*", metavar="PORT", help=", ".join(JOBS))
    parser.add_argument("--out", type=Path, default=OUT, help="(default: %(default)s)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.ports if name not in JOBS]:
        parser.error(f"no port {', '.join(unknown)}: there are {', '.join(JOBS)}")
    if given.here:
        return profiled(given.ports[0], given.out)

    tables, failed = [], []
    env = {**os.environ, "JITNEY_CACHE": "off", "OPENBLAS_NUM_THREADS": "1"}
    for name in given.ports or JOBS:
        folder = (given.out / name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.perf.ports", "--here", name, "--out", str(folder)]
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
            failed.append(name)
        else:
            text = (folder / "table.txt").read_text().partition("\n\n")[0]
            tables.append(f"\n{text}\nIts trace is in {given.out / name}.")
    print(*tables, sep="\n")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
