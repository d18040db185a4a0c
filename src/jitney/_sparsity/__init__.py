"""Sparse derivatives: which elements of a result depend on which of an argument, and how few directions find them all.

The pattern is read off the program of the derivative itself, products of it with directions, so it holds for all values of the arguments,
and a function's own derivative rule counts as it will be used. Values of the arguments are never tried.
"""

from ._choice import Made as Made
from ._choice import Mode as Mode
from ._choice import elements as elements
from ._choice import jacobian as jacobian
from ._choice import possible as possible
from ._colouring import REVERSE as REVERSE
from ._colouring import WAYS as WAYS
from ._colouring import Way as Way
