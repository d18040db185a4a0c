"""Anonymous memory (RssAnon: without pages of files, which are the system's) while products are
summed from disk, of a tenth of the points and of all: `python -m examples.homodyne.memory --points
1e8`. Linux only.

Each size is summed twice in a process of its own, and read every 5 ms while it is the second time,
after programs are compiled. The command ends with exit code 1 if the larger one takes `--limit` MiB
more than the smaller. Data are written first, and stay in `--out`.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from ._data import Data
from ._fit import START, streamed

STATUS = Path("/proc/self/status")
PAUSE = 5e-3


def anonymous() -> float:
    """MiB of anonymous memory that this process has.

    Raises:
        OSError: The system does not say.
    """
    found = re.search(r"^RssAnon:\s*(\d+) kB", STATUS.read_text(), flags=re.MULTILINE)
    if found is None:
        raise OSError("This kernel does not count anonymous memory.\nFix: run it on Linux 4.5.")
    return int(found[1]) / 1024


class Course(threading.Thread):
    """Reads the memory until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        """Read it."""
        while not self.is_over.wait(PAUSE):
            self.most = max(self.most, anonymous())


def measured(data: Data, chunk: int) -> tuple[float, float]:
    """The most MiB of one pass over all points, and its seconds."""
    products = streamed(data, chunk=chunk)
    products(START)
    course = Course()
    course.start()
    began = time.perf_counter()
    products(START)
    seconds = time.perf_counter() - began
    course.is_over.set()
    course.join()
    return course.most, seconds


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.memory",
        description="Memory of products from disk.",
    )
    parser.add_argument("--points", type=float, default=2e7, help="about how many, of all angles")
    parser.add_argument("--angles", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=2**16, help="points of an angle at a time")
    parser.add_argument("--limit", type=float, default=20.0, help="MiB (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/homodyne"))
    parser.add_argument("--one", choices=("write", "sum"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure both sizes, or one."""
    chosen = options()
    points = int(chosen.points)
    if chosen.one:
        data = Data.make(chosen.out / f"{points}-{chosen.angles}", points, chosen.angles)
        if chosen.one == "sum":
            print(json.dumps([data.points, *measured(data, chosen.chunk)]))
        return 0
    found = []
    for size in (points // 10, points):
        one(size, "write", chosen)  # whose blocks would be counted in a process that also sums
        count, most, seconds = json.loads(one(size, "sum", chosen).splitlines()[-1])
        print(
            f"{count:>13,} points  {most:8.1f} MiB at most  {seconds:7.2f} s a pass",
            flush=True,
        )
        found.append(most)
    grown = found[1] - found[0]
    print(f"Ten times the points take {grown:+.1f} MiB (limit {chosen.limit:g}).")
    return 1 if grown > chosen.limit else 0


def one(points: int, what: str, chosen: argparse.Namespace) -> str:
    """A process that writes the data, or sums their products; what it says."""
    command = [sys.executable, "-m", f"{__package__}.memory", "--one", what]
    for name in ("angles", "chunk", "out"):
        command += [f"--{name}", str(getattr(chosen, name))]
    command += ["--points", str(points)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
