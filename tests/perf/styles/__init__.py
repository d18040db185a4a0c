"""Functions in the style of the documentation of public packages, written anew and short, with
arguments: what one would decorate first.
"""

from . import gradients, images, models, numerics, optimisers, probability, solvers

CASES = (
    *gradients.CASES,
    *models.CASES,
    *optimisers.CASES,
    *solvers.CASES,
    *probability.CASES,
    *numerics.CASES,
    *images.CASES,
)
