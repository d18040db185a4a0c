"""Rows of unlike lengths beside plain JAX by hand: `python -m examples.rows` all with small sizes,
`... hmm --full` one of them at the size of the figures in docs/problems/ragged.md, and
`... all --full` all of those, one table after the other.
"""

import argparse
import importlib
import os
import sys
import time

# before NumPy loads it: threads that contend for two cores slow LAPACK 40 times
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax

from . import NAMES
from ._sides import compare, shared_lines

ALL = "all"


def main() -> int:
    """Run what is named."""
    parser = argparse.ArgumentParser(prog="python -m examples.rows", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*NAMES, ALL], default=ALL, help="one of them")
    parser.add_argument(
        "--full", action="store_true", help="at the size of the figures in the documentation"
    )
    chosen = parser.parse_args()
    if chosen.full:  # first calls are to be compiled
        jax.config.update("jax_enable_compilation_cache", False)
    print(f"jax {jax.__version__}; {shared_lines()} lines that all sides by hand share")
    began = time.perf_counter()
    for name in NAMES if chosen.name == ALL else [chosen.name]:
        for work in importlib.import_module(f"{__package__}.{name}").works(full=chosen.full):
            print(f"\n{compare(work, full=chosen.full)}", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
