"""What a network is trained on next: a mixture of sizes from the beginning, or a curriculum that
moves on by held-out quality.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ._data import SPREAD, WIDTH
from ._stream import Difficulty


@dataclass(frozen=True)
class Stage:
    """Models that are as difficult as each other.

    Args:
        variables: How many.
        linear: The chance that a mechanism is linear; the others are waves.
        spread: The variance of weights over that of the noise.
        most: The size of the largest parent set.
        least: The smallest number of answers that a campaign has.
    """

    variables: int
    linear: float = 0.5
    spread: float = SPREAD
    most: int = WIDTH
    least: int = 0

    @property
    def difficulty(self) -> Difficulty:
        """As a program has it."""
        return Difficulty.of(self.linear, self.spread, self.most, self.least)


@dataclass(frozen=True)
class Look:
    """Held-out quality at some time.

    Args:
        stage: What it was judged on.
        surprise: Minus the log probability of true parent sets, in nats, a mean.
        f1: Of edges.
    """

    stage: Stage
    surprise: float
    f1: float


class Schedule(Protocol):
    """What comes next, from what was seen so far."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """All numbers of variables that may come."""
        ...

    def choose(self, rng: np.random.Generator, looks: Sequence[Look]) -> Stage:
        """The models of a dispatch."""
        ...

    def watched(self, looks: Sequence[Look]) -> Stage | None:
        """The models whose held-out quality decides; None where nothing is decided."""
        ...


@dataclass(frozen=True)
class Mixture:
    """All sizes from the beginning, at full difficulty.

    Args:
        sizes: Numbers of variables.
        shares: How often each comes.
    """

    sizes: tuple[int, ...] = (3, 5, 8, 12, 20)
    shares: tuple[float, ...] = (1, 2, 2, 2, 1)

    def choose(self, rng: np.random.Generator, looks: Sequence[Look]) -> Stage:
        """By its share."""
        shares = np.array(self.shares) / sum(self.shares)
        return Stage(int(rng.choice(self.sizes, p=shares)))

    def watched(self, looks: Sequence[Look]) -> Stage | None:
        """Nothing is decided."""
        return None


# Few variables, linear and with little noise first; then waves, noise and more variables
STAGES = (
    Stage(3, linear=1.0, spread=4 * SPREAD, most=1, least=10),
    Stage(3),
    Stage(5, linear=1.0, spread=4 * SPREAD, most=1, least=10),
    Stage(5),
    Stage(8),
    Stage(12),
    Stage(20),
)


@dataclass(frozen=True)
class Curriculum:
    """One stage after the other.

    Half of the dispatches are of the present stage, the other half of those before at full
    difficulty, so that nothing is forgotten. After the last stage all sizes come, as in a mixture.

    Args:
        stages: By difficulty.
        tolerance: A stage is done where the last two looks are better than all looks before by
            less than so many nats.
        mixture: What comes after the last stage.
        known: Sizes that the network has learned before; they come as those of done stages do.
        least: The F1 of edges that a stage has to reach before it is done. A network that has not
            begun to learn stands still as well, with an F1 of 0.
    """

    stages: tuple[Stage, ...] = STAGES
    tolerance: float = 0.01
    mixture: Mixture = Mixture()
    known: tuple[int, ...] = ()
    least: float = 0.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the stages, and of the mixture."""
        return tuple(sorted({each.variables for each in self.stages} | {*self.mixture.sizes}))

    def level(self, looks: Sequence[Look]) -> int:
        """How many stages are done."""
        level, here = 0, list[float]()
        for look in looks:
            if level == len(self.stages) or look.stage != self.stages[level]:
                continue
            here.append(look.surprise)
            still = len(here) > 2 and min(here[:-2]) - min(here[-2:]) < self.tolerance
            if still and look.f1 >= self.least:
                level, here = level + 1, []
        return level

    def choose(self, rng: np.random.Generator, looks: Sequence[Look]) -> Stage:
        """The present stage, or one before."""
        level = self.level(looks)
        if level == len(self.stages):
            return self.mixture.choose(rng, looks)
        done = {each.variables for each in self.stages[:level]}
        before = sorted(done | {*self.known})
        if before and rng.random() < 0.5:
            return Stage(int(rng.choice(before)))
        return self.stages[level]

    def watched(self, looks: Sequence[Look]) -> Stage | None:
        """The present stage."""
        level = self.level(looks)
        return self.stages[level] if level < len(self.stages) else None
