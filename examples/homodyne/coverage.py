"""How often the intervals of the posterior hold the truth, over synthetic sets; and consensus Monte
Carlo beside one posterior of all data: `python -m examples.homodyne.coverage` (needs `blackjax`).

Of intervals that are right, 68 % and 95 % hold the truth. The second table has, for each parameter,
the mean of the divided draws less that of the whole ones, in standard deviations of the latter, and
the ratio of both deviations: 0 and 1 for a posterior that is normal, apart from the error of the
draws themselves. The command ends with exit code 1 if a level lies more than four standard errors
of a count of so many sets from its own.

Sets are independent, so several processes share them: each with its `--first` and `--sets`, and one
folder, `--keep`, for all. A set that is there is not drawn again, and a last command over all of
them prints the table.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..trf._fail import fail
from ._mode_fit import fit_mode
from ._posterior import Posterior, posterior
from ._synthetic import TRUTH, synthetic

LEVELS = (0.68, 0.95)
LIMIT = 4.0
# So small that bounds are far off, where an interval has no level.
NOISE = {"laminar_flow": 0.001}
USUAL = 0.003
SIZES = ("mode", "frames", "angles", "noise", "chains", "draws", "warmup")


@dataclass(frozen=True)
class Held:
    """One set.

    Args:
        names: Of the parameters.
        held: Of each level, whether the interval of each parameter holds the truth.
        off: Mean less truth, in deviations.
        r_hat: The largest.
        effective: The least.
        ended: Steps that ended at a wall, or diverged.
    """

    names: list[str]
    held: list[list[bool]]
    off: list[float]
    r_hat: float
    effective: float
    ended: int

    @classmethod
    def of(cls, found: Posterior, truth: dict[str, float]) -> "Held":
        """The same of draws."""
        true = np.array([truth[name] for name in found.names])
        ends = [found.interval(level) for level in LEVELS]
        return cls(
            list(found.names),
            [((low <= true) & (true <= high)).tolist() for low, high in ends],
            ((found.mean - true) / found.deviation).tolist(),
            float(found.r_hat.max()),
            float(found.effective.min()),
            found.diverged,
        )


def drawn(seed: int, chosen: argparse.Namespace, parts: int = 1) -> Posterior:
    """Draws of one set."""
    data = synthetic(
        chosen.mode,
        frames=chosen.frames,
        angles=chosen.angles,
        noise=chosen.noise,
        seed=seed,
    )
    found = fit_mode(chosen.mode, data)
    return posterior(
        found,
        data,
        chains=chosen.chains,
        draws=chosen.draws,
        warmup=chosen.warmup,
        parts=parts,
        seed=seed,
    )


def one(seed: int, chosen: argparse.Namespace) -> Held:
    """One set, drawn or read."""
    truth = {**TRUTH[chosen.mode], "contrast": 0.3, "offset": 1.0}
    if chosen.keep is None:
        return Held.of(drawn(seed, chosen), truth)
    sizes = {name: getattr(chosen, name) for name in SIZES}
    path = chosen.keep / f"{chosen.mode}-{seed}.json"
    if path.exists():
        content = json.loads(path.read_text())
        if content["sizes"] != sizes:
            fail(
                f"{path} has {content['sizes']}, and {sizes} is asked for.",
                "Sets of one table are of one kind.",
                "give another folder as --keep.",
            )
        return Held(**content["set"])
    found = Held.of(drawn(seed, chosen), truth)
    chosen.keep.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({"sizes": sizes, "set": asdict(found)}))
    new.replace(path)
    return found


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.homodyne.coverage",
        description="Intervals that hold the truth.",
    )
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--keep", type=Path, help="folder of sets, which are not drawn again")
    parser.add_argument("--mode", choices=list(TRUTH), default="static_isotropic")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--angles", type=int, default=4)
    parser.add_argument("--noise", type=float, help=f"{USUAL}; {NOISE}")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--parts", type=int, nargs="*", default=[4, 16])
    chosen = parser.parse_args()
    if chosen.sets < 1 or chosen.first < 0:
        parser.error("take one set at least, from 0 on")
    if chosen.noise is None:
        chosen.noise = NOISE.get(chosen.mode, USUAL)
    return chosen


def table(sets: list[Held], chosen: argparse.Namespace) -> bool:
    """Print how many hold the truth; whether that is what it should be."""
    counted = np.mean([each.held for each in sets], axis=0)
    off = np.array([each.off for each in sets])
    print(
        f"{chosen.mode}, {len(sets)} sets; the largest R-hat is"
        f" {max(each.r_hat for each in sets):.3f}, the fewest effective draws are"
        f" {min(each.effective for each in sets):.0f};"
        f" {sum(each.ended for each in sets)} steps ended at a wall or diverged"
    )
    for i, name in enumerate(sets[0].names):
        print(
            f"  {name:16} 68 %: {counted[0][i]:.0%}   95 %: {counted[1][i]:.0%}   mean less truth:"
            f" {off[:, i].mean():+.2f} deviations, of which the deviation is {off[:, i].std():.2f}"
        )
    right = True
    for level, row in zip(LEVELS, counted, strict=True):
        allowed = LIMIT * np.sqrt(level * (1 - level) / len(sets))
        right &= bool(np.all(np.abs(row - level) <= allowed))
    return right


def divided(chosen: argparse.Namespace) -> None:
    """Print what consensus Monte Carlo makes of the first set."""
    if not chosen.parts:
        return
    whole = drawn(chosen.first, chosen)
    for parts in chosen.parts:
        found = drawn(chosen.first, chosen, parts)
        bias = (found.mean - whole.mean) / whole.deviation
        ratio = found.deviation / whole.deviation
        print(f"in {parts} parts, beside one posterior of all data")
        for name, shift, wide in zip(whole.names, bias, ratio, strict=True):
            print(f"  {name:16} mean {shift:+.2f} deviations   deviation {wide:.2f} times")


def main() -> int:
    """Draw and print."""
    chosen = options()
    sets = [one(seed, chosen) for seed in range(chosen.first, chosen.first + chosen.sets)]
    right = table(sets, chosen)
    divided(chosen)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
