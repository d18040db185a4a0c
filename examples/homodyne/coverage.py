"""How often the intervals of the posterior hold the truth, over synthetic sets; and consensus Monte
Carlo beside one posterior of all data: `python -m examples.homodyne.coverage` (needs `blackjax`).

Of intervals that are right, 68 % and 95 % hold the truth. The second table has, for each parameter,
the mean of the divided draws less that of the whole ones, in standard deviations of the latter, and
the ratio of both deviations: 0 and 1 for a posterior that is normal, apart from the error of the
draws themselves. The command ends with exit code 1 if a level lies more than four standard errors
of a count of so many sets from its own.
"""

import argparse
import sys

import numpy as np

from ._mode_fit import fit_mode
from ._posterior import Posterior, posterior
from ._synthetic import TRUTH, synthetic

LEVELS = (0.68, 0.95)
LIMIT = 4.0
NOISE = 0.003  # so small that bounds are far off, where an interval has no level


def drawn(mode: str, seed: int, chosen: argparse.Namespace, parts: int = 1) -> Posterior:
    """Draws of one set."""
    data = synthetic(mode, frames=chosen.frames, angles=chosen.angles, noise=NOISE, seed=seed)
    found = fit_mode(mode, data)
    return posterior(
        found,
        data,
        chains=chosen.chains,
        draws=chosen.draws,
        warmup=chosen.warmup,
        parts=parts,
        seed=seed,
    )


def main() -> int:
    """Draw and print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.coverage",
        description="Intervals that hold the truth.",
    )
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--mode", choices=list(TRUTH), default="static_isotropic")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--angles", type=int, default=4)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--parts", type=int, nargs="*", default=[4, 16])
    chosen = parser.parse_args()
    truth = {**TRUTH[chosen.mode], "contrast": 0.3, "offset": 1.0}
    hits, worst = [], 0.0
    for seed in range(chosen.sets):
        found = drawn(chosen.mode, seed, chosen)
        true = np.array([truth[name] for name in found.names])
        ends = [found.interval(level) for level in LEVELS]
        hits.append([(low <= true) & (true <= high) for low, high in ends])
        worst = max(worst, float(found.r_hat.max()))
    counted = np.mean(hits, axis=0)
    print(f"{chosen.mode}, {chosen.sets} sets; the largest R-hat is {worst:.3f}")
    wrong = 0
    for i, name in enumerate(found.names):
        print(f"  {name:16} 68 %: {counted[0][i]:.0%}   95 %: {counted[1][i]:.0%}")
    for level, row in zip(LEVELS, counted, strict=True):
        allowed = LIMIT * np.sqrt(level * (1 - level) / chosen.sets)
        wrong += int(np.any(np.abs(row - level) > allowed))
    whole = drawn(chosen.mode, 0, chosen)
    for parts in chosen.parts:
        divided = drawn(chosen.mode, 0, chosen, parts)
        bias = (divided.mean - whole.mean) / whole.deviation
        ratio = divided.deviation / whole.deviation
        print(f"in {parts} parts, beside one posterior of all data")
        for name, shift, wide in zip(whole.names, bias, ratio, strict=True):
            print(f"  {name:16} mean {shift:+.2f} deviations   deviation {wide:.2f} times")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
