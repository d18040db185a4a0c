"""Sparse derivatives: which elements of a result depend on which of an argument, and how few directions find them all.

The pattern is read off the program of the derivative itself, products of it with directions, so it holds for all values of the arguments,
and a function's own derivative rule counts as it will be used. Values of the arguments are never tried.
"""

from .colouring import REVERSE as REVERSE
from .colouring import WAYS as WAYS
from .colouring import Way as Way
from .jacobian_mode import Made as Made
from .jacobian_mode import Mode as Mode
from .jacobian_mode import elements as elements
from .jacobian_mode import jacobian as jacobian
from .jacobian_mode import possible as possible
