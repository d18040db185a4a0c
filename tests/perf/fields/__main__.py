"""Print how many of 52 bodies of public code are reached, in both precisions: `python -m
tests.perf.fields [--only NAME] [--bits 64] [--all]`.

Each is padded, cut and streamed along its axis, its value and its gradient, beside plain JAX at
exact size; a body with a number that varies is called with four numbers, for at most two
programs. A body counts as exact if all of that is.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from examples._figures import record

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_experimental_ynn_fusion_type= --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true",
)
os.environ.setdefault("JITNEY_CACHE", "off")


def outcome_of(cells: Sequence[Any]) -> str:
    """Of a body, by its worst way; what mathematics does not allow counts for nothing."""
    if any(cell.outcome in ("WRONG", "raw error") for cell in cells):
        return "wrong"
    return "refused" if any(cell.is_ours for cell in cells) else "exact"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.fields", description=__doc__)
    parser.add_argument("--only", default="", help="bodies whose names hold this")
    parser.add_argument("--bits", type=int, choices=(32, 64), help="one precision of the two")
    parser.add_argument("--all", action="store_true", help="a line for each body")
    options = parser.parse_args()

    import jax

    from ._body import tried
    from .bodies import ALL

    counts: dict[int, Counter[str]] = {}
    for bits in (options.bits,) if options.bits else (32, 64):
        jax.config.update("jax_enable_x64", bits == 64)
        counts[bits] = Counter(exact=0, refused=0, wrong=0)
        for body in ALL:
            if options.only not in body.name:
                continue
            cells = list(tried(body, is_wide=bits == 64))
            outcome = outcome_of(cells)
            counts[bits][outcome] += 1
            if options.all or outcome != "exact":
                print(f"float{bits}, {body.group}, {body.name}: {outcome}", flush=True)
            for cell in cells:
                if outcome != "exact" and cell.outcome != "exact" and cell.never is None:
                    print(f"  {cell.way}, {cell.of}: {cell}", flush=True)
    for bits, count in counts.items():
        print(f"float{bits}: {', '.join(f'{name} {n}' for name, n in count.items())}")
    record(**{f"float{bits}": dict(count) for bits, count in counts.items()})
    return any(count["wrong"] for count in counts.values())


if __name__ == "__main__":
    raise SystemExit(main())
