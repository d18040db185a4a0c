"""Amortised causal discovery: a network that reads samples and predicts which variables are the
parents of one of them.
"""

from examples.surrogate._expert import batch as batch
from examples.surrogate._step import PAD as PAD
from examples.surrogate._step import Recipe as Recipe
from examples.surrogate._step import loss_of as loss_of
from examples.surrogate._step import start as start
from examples.surrogate._step import step_of as step_of
from examples.surrogate.model import Surrogate as Surrogate
