"""Known parameters, fitted from synthetic sets in every mode: `python -m
examples.homodyne.recovery`.

For each parameter the table has the mean and the standard deviation of (fitted - true) / standard
error over the sets, which are 0 and 1 for a fit without bias whose errors are right, and the
largest. The command ends with exit code 1 if a mean lies more than four of its own standard errors
from zero, or a fit failed.
"""

import argparse
import sys
from typing import Any

import numpy as np

from ._mode_fit import ModeFit, fit_mode
from ._modes import MODES
from ._synthetic import TRUTH, synthetic

SPREAD = 0.15  # of the contrasts of angles, where each has its own
LIMIT = 4.0
WITH = {
    "static_isotropic": {"frames": 120, "angles": 6},
    "static_anisotropic": {"frames": 120, "angles": 6},
    "laminar_flow": {"frames": 120, "angles": 6},
    "two_component": {"frames": 200, "angles": 6, "noise": 0.005},
}


def contrasts(mode: str, angles: int) -> np.ndarray | float:
    """One for all, or one for each."""
    if not MODES[mode].by_angle:
        return 0.3
    return 0.3 * (1 + SPREAD * np.cos(np.arange(angles) * 2.4))


def one(mode: str, seed: int, **options: Any) -> tuple[ModeFit, np.ndarray]:
    """A fit, and the true values of its parameters."""
    size = {**WITH[mode], **options}
    contrast = contrasts(mode, size["angles"])
    found = fit_mode(mode, synthetic(mode, seed=seed, contrast=contrast, **size))
    own = (len(found.names) - len(MODES[mode].names)) // 2
    optical = [*np.broadcast_to(contrast, (size["angles"],))[:own], *[1.0] * own]
    return found, np.array([*(TRUTH[mode][name] for name in MODES[mode].names), *optical])


def main() -> int:
    """Fit and print."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.recovery",
        description="Fit sets of known truth.",
    )
    parser.add_argument("--sets", type=int, default=20, help="for each mode (default: 20)")
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    chosen = parser.parse_args()
    wrong = 0
    for mode in chosen.modes:
        runs = [one(mode, seed) for seed in range(chosen.sets)]
        fits, truth = [found for found, _ in runs], runs[0][1]
        free = fits[0].errors > 0
        z = np.array([(f.x - truth)[free] / f.errors[free] for f in fits])
        failed = sum(not f.success for f in fits)
        print(
            f"{mode}: {fits[0].points:,} points, {chosen.sets} sets, {failed} did not converge;"
            f" chi squared by degree of freedom {np.mean([f.reduced for f in fits]):.4f};"
            f" {np.mean([f.iterations for f in fits]):.1f} iterations;"
            f" {np.mean(np.abs(z) < 1):.0%} within one standard error, {np.mean(np.abs(z) < 2):.0%}"
            " within two"
        )
        for i, name in enumerate(np.array(fits[0].names)[free]):
            column = z[:, i]
            off = abs(column.mean()) * np.sqrt(len(column)) > LIMIT
            wrong += off
            print(
                f"  {name:16} {truth[free][i]:>10g}  mean {column.mean():+.2f}  sd"
                f" {column.std(ddof=1):.2f}  largest {np.abs(column).max():.2f}"
                f"{'  BIASED' if off else ''}"
            )
        wrong += failed
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
