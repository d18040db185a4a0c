"""Hunt among programs whose Python looks at sizes alone, each padded at twenty sizes:
`python -m tests.hunt.looking --programs 1000 --seed 1`.

Plain JAX runs operation by operation and its lines are kept by their text, so what is compiled
is jitney's program alone. Where the two differ, the hunt's own judge compares it with `jax.jit`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from typing import Any

import jax
import numpy as np

from jitney import optimize

from . import _hunt, _looks, _values
from ._draw import HEAVY, LIGHT, Case, Expression, Writer
from ._judge import difference, leaves_of
from ._options import Way, plain
from ._program import evaluated
from ._sizes import pick

FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# JAX 0.10 alone knows it; with it small programs compile 1.5 times as fast.
NO_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
# Programs of one dtype and one set of sizes, which share what is compiled; of 450 the programs of
# JAX that are kept need more mapped regions than Linux gives a process.
BLOCK = 300
POOL = 12  # recipes of a block's later lines: most of the time plain JAX compiles operations
DTYPES = ("float32", "float32", "int32", "float32", "float64", "bfloat16", "bool", "float16")
FLAVOURS = ("normal", "normal", "whole", "ties", "special")
MOST = 40
SIZES = 20
LATER = [
    recipe for recipe in (*_looks.RECIPES, *LIGHT) if not any(word in recipe.text for word in HEAVY)
]


class Block:
    """Sizes, arguments at each, and what plain JAX makes of lines of these arguments."""

    def __init__(self, seed: int, number: int):
        rng = np.random.default_rng([seed, number])
        self.sizes = [int(n) for n in rng.choice(np.arange(1, MOST + 1), SIZES, replace=False)]
        flavour = pick(rng, FLAVOURS)
        if flavour not in _values.FLAVOURS:
            flavour = _values.FLAVOURS[0]
        dtype = DTYPES[number % len(DTYPES)]
        self.case = Case(seed, number, dtype, "int32", flavour, 20, ())
        self.arrays = {n: self.case.arrays(n) for n in self.sizes}
        self.lines: dict[tuple[str, int], Any] = {}
        self.later = [LATER[k] for k in rng.choice(len(LATER), POOL, replace=False)]

    def drawn(self, rng: Any, at: int) -> Expression | None:
        """A program that begins with the line of its turn."""
        writer = Writer(rng, self.case, "r")
        lines, exact = [], "bits"
        for k in range(1 + int(rng.choice(3, p=[0.5, 0.3, 0.2]))):
            turn = _looks.RECIPES[at % len(_looks.RECIPES)]
            for _ in range(4):
                recipe = turn if k == 0 else pick(rng, self.later)
                if (line := writer.line(recipe, f"r{'abc'[k]}")) is not None:
                    break
            else:
                break
            lines.append(line)
            exact = max(exact, recipe.exact, key=("bits", "close", "loose").index)
            if writer.newest is None:
                break
        return writer.finished(lines, exact) if lines else None

    def want(self, e: Expression, n: int) -> list[Any] | None:
        """By plain JAX, line by line; None where it cannot run."""
        values: dict[str, Any] = {name: self.arrays[n][name] for name, _ in e.program.takes}
        values = {name: jax.numpy.asarray(x) for name, x in values.items()}
        given = frozenset(values)
        try:
            for name, text in e.program.lines:
                is_first = name == e.program.lines[0][0]
                key = (text, n)
                if is_first and key in self.lines:
                    values[name] = self.lines[key]
                    continue
                values[name] = evaluated(text, values)
                if is_first:
                    self.lines[key] = values[name]
        except Exception:  # noqa: BLE001 # whatever plain JAX cannot do
            return None
        del given
        return leaves_of(tuple(values[name] for name in e.program.gives))


def _buckets(rng: Any) -> Any:
    return pick(rng, ("pow2", "pow2", [MOST + 24], [16, MOST + 3], "aligned"))


def judged(block: Block, e: Expression, rng: Any, counts: Counter[str]) -> list[Any]:
    """Findings of one program at all sizes, in an order of its own."""
    buckets, fn = _buckets(rng), e.program.compiled()
    padded: Any = optimize(pad={"n": buckets})(fn)
    score = _hunt.Score()
    ran = 0
    for n in rng.permutation(block.sizes).tolist():
        want = block.want(e, n)
        if want is None:
            continue
        given = {name: block.arrays[n][name] for name, _ in e.program.takes}
        ran += 1
        try:
            got = leaves_of(padded(**given))
        except Exception as error:  # noqa: BLE001 # judged below
            got = [np.array(str(error))]
        if len(got) == len(want) and difference(got, want, e.exact) is None:
            continue
        counts["judged again"] += 1

        def way(program: Any, padded: Any = padded, fn: Any = fn) -> Way:
            code = f'optimize(pad={{"n": {buckets!r}}})(f)'
            return Way(lambda arrays: padded(**arrays), plain(fn), code)

        case = Case(**{**vars(block.case), "n": n})
        object.__setattr__(case, "expressions", (e,))
        _hunt._alone("pad", case, e, score, way, 0, also=(n,))
        if score.findings:
            break
    counts["sizes"] += ran
    counts["compiles"] += padded.stats.compiles
    counts["padded"] += ran > padded.stats.compiles
    counts["programs"] += ran > 0
    counts["unstable"] += sum(score.unstable.values())
    counts["refused"] += sum(score.refused.values())
    return score.findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunt.looking", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # before JAX starts its backend: most of the time is the compiler's
    is_old = jax.__version_info__ < (0, 11)
    os.environ.setdefault("XLA_FLAGS", f"{FLAGS} {NO_EMITTERS}" if is_old else FLAGS)
    os.environ.setdefault("JITNEY_CACHE", "off")
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    until, block, number, findings = time.time() + 60 * options.minutes, None, -1, 0
    for index in range(options.first, options.first + options.programs):
        if index // BLOCK != number:
            number = index // BLOCK
            jax.clear_caches()
            block = Block(options.seed, number)
        rng = np.random.default_rng([options.seed, index, 3])
        with block.case.numbers(), np.errstate(all="ignore"):
            e = block.drawn(rng, index)
            found = judged(block, e, rng, counts) if e is not None else []
        for each in found:
            findings += 1
            counts[each.kind] += 1
            print(f"\n{each.kind} of program {index}, n={each.n}, {each.dtype}: {each.what}")
            print(each.program.source(), f"    by {each.code}", sep="", flush=True)
        if index % 50 == 49:
            print(f"at {index + 1}: {dict(counts)}, {time.process_time():.0f} s", flush=True)
        if time.time() > until:
            break
    print(f"seed {options.seed}: {dict(counts)}, {findings} findings")
    return findings > 0


if __name__ == "__main__":
    sys.exit(main())
