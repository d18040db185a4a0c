"""A run as small as it gets. All tests share its program."""

from dataclasses import dataclass

import optax

from examples.surrogate._step import Recipe
from examples.surrogate._train import Run

RATE = 0.1


@dataclass(frozen=True)
class Momentum(Recipe):
    """Gradient descent with momentum: the first step is one along the gradient, and later ones
    depend on a state.
    """

    def optimiser(self):
        """The momentum is what a checkpoint must keep."""
        return optax.sgd(RATE, momentum=0.9)


RUN = Run(Momentum(steps=5), hidden=8, depth=1, examples=2, samples=6, variables=(3, 4))
