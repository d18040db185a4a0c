"""All bodies of the table."""

from __future__ import annotations

from . import classes, numbers, positions, prefixes

ALL = (*classes.BODIES, *numbers.BODIES, *positions.BODIES, *prefixes.BODIES)
