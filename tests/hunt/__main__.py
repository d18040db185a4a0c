"""Hunt for some minutes, or some cases: `python -m tests.hunt --cases 64 --seed 1`. The exit code
says whether anything fell.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests._patience import patience

from ._report import Report, shown

HANGS_AFTER = 120.0  # seconds in one step, on an idle machine
# Eight devices for `shard`; and most of a hunt's time is XLA's compiler. Without the fusions by which
# XLA for CPUs changes numbers by itself, unless these are what is hunted for.
FLAGS = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
)
WITHOUT_FUSIONS = "--xla_cpu_experimental_ynn_fusion_type="
FUSED = ("pad large",)  # options that are tried with these fusions
# On a GPU products of float32 are rounded to 10 bits unless they are asked to be whole, and trying
# kernels takes most of a compile.
ON_GPU = {
    "XLA_FLAGS": "--xla_gpu_autotune_level=0",
    "JAX_PLATFORMS": "cuda,cpu",
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunt", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=None, help="10, if no number of cases is given"
    )
    parser.add_argument("--seed", type=int, default=None, help="fresh if it is left out")
    parser.add_argument("--index", type=int, default=None, help="this case alone")
    parser.add_argument("--first", type=int, default=0, help="the case to begin with")
    parser.add_argument(
        "--cases",
        type=int,
        default=None,
        help="so many; without `--minutes`, however long they take",
    )
    parser.add_argument(
        "--only",
        default="",
        help="options, separated by commas: pad,chunk,stream,...; derivatives, of its own lines;"
        " pad large, in arrays of thousands of elements, with XLA's fusions of such",
    )
    parser.add_argument(
        "--among",
        default="",
        help="lines that come in turn: a group of _draw.py; looks, whose Python looks at sizes; or"
        " overlaps, of updates of an array by a part of itself",
    )
    parser.add_argument(
        "--sizes", type=int, default=1, help="other sizes that a padded program runs at"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--save", type=Path, default=None, help="a file for all findings, as JSON")
    parser.add_argument(
        "--table",
        action="store_true",
        help="print which operations are refused under pad and chunk, and stop",
    )
    parser.add_argument("--gpu", action="store_true", help="on a GPU, which is one device")
    options = parser.parse_args()
    if options.table:
        return subprocess.run(
            [sys.executable, "-m", "tests.hunt._table"],
            env=_environment(None, gpu=options.gpu),
            check=False,
        ).returncode
    seed = options.seed if options.seed is not None else int(time.time())
    if options.minutes is None and options.cases is None:
        options.minutes = 10.0
    report = Report(seed)
    print(f"hunt: seed {seed}, {_bound(options)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="jitney-hunt-") as folder:
        crew = [
            _Crew(options, seed, k, folder, report)
            for k in range(1 if options.index is not None else options.workers)
        ]
        try:
            _watch(crew)
        except KeyboardInterrupt:
            print("hunt: stopped", flush=True)
        finally:
            for each in crew:
                each.stop()
    print(report)
    if options.save is not None:
        report.saved(options.save)
    return 0 if report.is_clean else 1


def _bound(options: argparse.Namespace) -> str:
    """How long, in words."""
    minutes = "" if options.minutes is None else f"{options.minutes:g} minutes"
    cases = "" if options.cases is None else f"{options.cases} cases"
    return ", at most ".join(filter(None, (minutes, cases)))


def _environment(
    folder: str | None,
    *,
    gpu: bool,
    fuses: bool = False,
) -> dict[str, str]:
    flags = FLAGS if fuses else f"{WITHOUT_FUSIONS} {FLAGS}"
    platform = ON_GPU if gpu else {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    made = {**os.environ, **platform, "PYTHONWARNINGS": "ignore"}
    if folder is not None:
        made |= {"JITNEY_CACHE_DIR": folder, "JITNEY_CACHE": "off"}
    return made


class _Crew:
    """One worker, and the next one when it is over or hangs."""

    def __init__(self, options: Any, seed: int, number: int, folder: str, report: Report):
        self.options, self.seed, self.folder, self.report = options, seed, folder, report
        self.step = options.workers if options.index is None else 1
        self.next = options.first + number if options.index is None else options.index
        self.end = options.first + options.cases if options.cases is not None else math.inf
        self.until = (
            time.time() + 60 * options.minutes
            if options.index is None and options.minutes is not None
            else math.inf
        )
        self.process: subprocess.Popen[str] | None = None
        self.doing, self.at, self.current = "start", time.time(), -1
        self.told_at = time.time()
        self.start()

    def start(self) -> None:
        cases = (
            1
            if self.options.index is not None
            else int(min(60, (self.end - self.next + self.step - 1) / self.step))
        )
        command = [
            sys.executable,
            "-m",
            "tests.hunt._worker",
            "--seed",
            str(self.seed),
            "--first",
            str(self.next),
            "--step",
            str(self.step),
        ]
        command += ["--until", str(self.until), "--cases", str(cases), "--only", self.options.only]
        command += ["--among", self.options.among, "--sizes", str(self.options.sizes)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(
                self.folder,
                gpu=self.options.gpu,
                fuses=bool(set(self.options.only.split(",")) & {*FUSED}),
            ),
        )
        self.doing, self.at, self.current = "start", time.time(), -1

    def read(self) -> bool:
        """Take in one message; whether the hunt goes on."""
        line = self.process.stdout.readline() if self.process and self.process.stdout else ""
        if not line:
            return self.ended(crashed=True)
        # what XLA writes by itself, or a process that dies, is no message
        if not line.startswith('{"'):
            return True
        message = json.loads(line)
        self.at = time.time()
        if "began" in message:
            self.current, self.next = message["began"], message["began"] + self.step
        if "doing" in message:
            self.doing = message["doing"]
        if "tried" in message:
            self.current = -1
            for each in self.report.add(message):
                print(f"\n{shown(each)}", flush=True)
            if time.time() - self.told_at > 15:
                self.told_at = time.time()
                print(f"hunt: {self.report.line()}", flush=True)
        if "over" in message:
            return self.ended(crashed=False)
        return True

    def ended(self, *, crashed: bool) -> bool:
        if crashed and self.current >= 0:
            found = self.report.hang(self.current, self.doing)
            found["what"] = (
                f"the process ended with {self.process.wait() if self.process else None}"
            )
            print(f"\n{shown(found)}", flush=True)
        self.stop()
        over = time.time() > self.until or self.next >= self.end
        if self.options.index is not None or over or (crashed and self.current < 0):
            return False
        self.start()
        return True

    def late(self) -> bool:
        """End a worker that hangs, and go on behind it; whether the hunt goes on."""
        quiet = time.time() - self.at
        if quiet < HANGS_AFTER or quiet < patience(HANGS_AFTER):
            return True
        print(f"\n{shown(self.report.hang(self.current, self.doing))}", flush=True)
        self.current = -1
        return self.ended(crashed=False)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _watch(crew: list[_Crew]) -> None:
    while crew:
        with selectors.DefaultSelector() as selector:
            for each in crew:
                if each.process is not None and each.process.stdout is not None:
                    selector.register(each.process.stdout, selectors.EVENT_READ, each)
            ready = {key.data for key, _ in selector.select(timeout=2.0)}
        crew[:] = [each for each in crew if (each.read() if each in ready else each.late())]


if __name__ == "__main__":
    sys.exit(main())
