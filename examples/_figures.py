"""What a benchmark prints for people, as data too: `python -m tests.perf.page` asks for it, and
makes `docs/benchmarks.md` of it.
"""

import json
import os
from pathlib import Path
from typing import Any

FILE = "JITNEY_BENCH_FIGURES"


def record(**figures: Any) -> None:
    """Write figures to the file that JITNEY_BENCH_FIGURES names; unset, there is none. A benchmark
    does so once, when all is measured.
    """
    if os.environ.get(FILE):
        Path(os.environ[FILE]).write_text(json.dumps(figures))
