"""Amortised causal discovery: a network that reads samples and predicts which variables are the
parents of one of them.
"""

from ._expert import batch as batch
from ._step import PAD as PAD
from ._step import Recipe as Recipe
from ._step import loss_of as loss_of
from ._step import start as start
from ._step import step_of as step_of
from .model import Surrogate as Surrogate
