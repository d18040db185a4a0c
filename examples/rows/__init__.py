"""Rows of unlike lengths in six shapes of work, each beside plain JAX by hand: `python -m
examples.rows`.
"""

NAMES = ("hmm", "light_curves", "attention", "graphs", "hazards", "curves")
